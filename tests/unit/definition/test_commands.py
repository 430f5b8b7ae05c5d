"""The command of a step, as people see it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toban.definition import RenderError, Scope, Workflow, bind_params, command_line, preview

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
