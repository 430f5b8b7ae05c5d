"""The command of a step, as people see it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toban.definition import RenderError, Scope, Workflow, bind_params, command_line, preview, render

Read = Callable[[str], Workflow]

HEAD = """\
name: demo
description: d
params:
  s: {default: text}
  n: {type: integer, default: 3}
  f: {type: number, default: 2}
  b: {type: boolean, default: true}
  l: {type: list, default: [1, a, null]}
  m: {type: mapping, default: {k: {deep: あ}}}
  none: {type: string}
env: {BASE: "/srv/{{ params.s }}", RUN: "{{ run.id }}"}
steps:
  first: {run: x}
  second-one: {run: x, depends_on: [first]}
"""


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            "run: |\n      echo {{ params.s }}\n\n      cat <<E\n      $1\n      E\n    args: [a b]",
            "echo {{ params.s }} ⏎ cat <<E ⏎ $1 ⏎ E 'a b'",
        ),
        (
            "job_type: exec\n    target: '/bin/{{ params.s }}'\n    args: [a b, 5]",
            "'/bin/{{ params.s }}' 'a b' 5",
        ),
        ("job_type: python\n    target: pkg.mod:fn\n    args: [1]", "pkg.mod:fn"),
        (
            "job_type: cmd\n    target: |\n      dir {{ params.s }}\n    args: [a b, 5]",
            'dir {{ params.s }} "a b" 5',
        ),
        (
            "job_type: powershell\n    target: |\n      $x = 1\n      ./a.ps1\n    args: [it's, 5]",
            "$x = 1 ⏎ ./a.ps1 'it''s' 5",
        ),
        (f"run: echo {'x' * 2000}", f"echo {'x' * 994}…"),
    ],
)
def test_the_command_is_one_line_without_values(workflow: Read, step: str, expected: str) -> None:
    found = workflow(f"{HEAD}  last:\n    depends_on: [second-one]\n    {step}\n")
    assert command_line(found.steps["last"]) == expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            (
                "run: |\n      echo {{ params.s + ' x' }} {{ steps.first.stdout }} $(({{ params.n }}))\n"
                "      cat <<E\n      {{ params.s }} {{ raw(params.s) }} $1\n      E\n    args: ['{{ params.s }}', a b]"
            ),
            "echo 'text x' {{ steps.first.stdout }} $((3)) ⏎ cat <<E ⏎ text text $1 ⏎ E text 'a b'",
        ),
        ("run: echo {{ env.BASE }} {{ env.RUN }}", "echo /srv/text {{ env.RUN }}"),
        ("run: echo {{ run.workflow }} {{ run.id }}", "echo demo {{ run.id }}"),
        ("run: echo {{ params.n + run.number }}", "echo {{ params.n + run.number }}"),
        (
            (
                "job_type: exec\n    target: '/bin/{{ params.s }}'\n"
                "    args: ['{{ params.l }}', '{{ params.s }} {{ steps.first.stdout }}', {a: '{{ params.n }}'}]"
            ),
            "/bin/text '[1,\"a\",null]' 'text {{ steps.first.stdout }}' '{\"a\":3}'",
        ),
        (
            (
                "job_type: python\n    target: pkg.mod:fn\n    args: [1, '{{ params.s }}']\n"
                "    kwargs: {n: '{{ params.n }}', r: '{{ steps.first.result }}', t: 'x{{ params.n }}'}"
            ),
            'pkg.mod:fn(1, "text", n=3, r={{ steps.first.result }}, t="x3")',
        ),
        ("job_type: python\n    target: pkg.mod:fn", "pkg.mod:fn"),
        (
            "job_type: workflow\n    target: child\n    kwargs: {day: '{{ params.s }}'}",
            'workflow child(day="text")',
        ),
        ("job_type: approval", "approval"),
        (
            "job_type: powershell\n    target: f {{ params.s + ' x' }} \"{{ params.s }}\"",
            "f 'text x' \"text\"",
        ),
        (
            'job_type: cmd\n    target: dir "{{ params.s }}" {{ steps.first.stdout }}',
            'dir "text" {{ steps.first.stdout }}',
        ),
        (
            (
                "run: echo {{ item }} {{ iteration }} {{ check.stdout }}\n    for_each: [1]\n"
                "    completion_check: {run: x}\n    max_iterations: 2"
            ),
            "echo {{ item }} {{ iteration }} {{ check.stdout }}",
        ),
    ],
)
def test_a_preview_fills_in_what_is_known(step: str, expected: str, workflow: Read) -> None:
    found = workflow(f"{HEAD}  last:\n    depends_on: [second-one]\n    {step}\n")
    scope = Scope(params=bind_params(found, {}), run={"workflow": "demo"}, env={}, steps={})
    assert preview(found, found.steps["last"], scope) == expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            (
                "run: |\n      echo {{ params.s + ' x' }} {{ steps.first.stdout }} $(({{ params.n }}))\n"
                "    args: ['{{ params.n }}', a b]"
            ),
            "echo 'text x' 'it'\"'\"'s' $((3)) 3 'a b'",
        ),
        ("run: echo {{ env.BASE }} $BASE {{ params.s }}", "echo {{ env.BASE }} $BASE text"),
        (
            (
                "job_type: exec\n    target: '/bin/{{ params.s }}'\n    env: {T: hidden}\n"
                "    args: ['{{ params.l }}', 'x{{ env.BASE }}', {a: '{{ steps.first.stdout }}'}]"
            ),
            "/bin/text '[1,\"a\",null]' 'x{{ env.BASE }}' '{\"a\":\"it'\"'\"'s\"}'",
        ),
        (
            (
                "job_type: python\n    target: pkg.mod:fn\n    args: [1, '{{ params.s }}']\n"
                "    kwargs: {r: '{{ run.id }}'}"
            ),
            'pkg.mod:fn(1, "text", r="r-1")',
        ),
        ("job_type: cmd\n    target: dir {{ params.s }}\n    args: [a b]", 'dir text "a b"'),
        ("job_type: powershell\n    target: f {{ params.s }}", "f text"),
        ("run: echo {{ item }}\n    for_each: [5]", "echo 5"),
        (f"run: echo {'x' * 2000}", f"echo {'x' * 994}…"),
    ],
)
def test_the_record_of_a_command_has_values_but_none_of_the_environment(
    step: str, expected: str, workflow: Read
) -> None:
    found = workflow(f"{HEAD}  last:\n    depends_on: [second-one]\n    {step}\n")
    scope = Scope(
        params=bind_params(found, {}),
        run={"workflow": "demo", "id": "r-1", "number": 7},
        env={},
        steps={"first": {"stdout": "it's"}},
        item=5,
    )
    assert render(found, found.steps["last"], scope).command == expected


def test_a_record_repeats_no_evaluation_and_fails_no_step(workflow: Read) -> None:
    text = " ".join(["{{ steps.first.stdout }}"] * 300)
    found = workflow(f"{HEAD}  last:\n    depends_on: [first]\n    run: echo {text}\n")
    scope = Scope(params=bind_params(found, {}), run={"id": "r-1"}, env={}, steps={"first": {"stdout": "x" * 60_000}})
    rendered = render(found, found.steps["last"], scope)
    assert rendered.command == command_line(found.steps["last"])


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("run: echo {{ params.n / 0 }}", "divide by zero"),
        ("job_type: exec\n    target: x\n    args: ['{{ [1.0 / 0.0] }}']", "not finite"),
        ("job_type: python\n    target: m:f\n    kwargs: {a: '{{ 1.0 / 0.0 }}'}", "not finite"),
    ],
)
def test_a_preview_fails_where_the_step_certainly_will(step: str, message: str, workflow: Read) -> None:
    found = workflow(f"{HEAD}  last:\n    depends_on: [second-one]\n    {step}\n")
    scope = Scope(params=bind_params(found, {}), run={}, env={}, steps={})
    with pytest.raises(RenderError, match=message):
        preview(found, found.steps["last"], scope)
