from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from toban.definition import (
    NO_EVENT,
    NO_ITEM,
    CostlyError,
    Rendered,
    RenderError,
    Scope,
    Workflow,
    bind_params,
    check_references,
    evaluate_when,
    references,
    render,
)

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
STEPS: dict[str, dict[str, Any]] = {
    "first": {
        "stdout": "out",
        "exit_code": 0.0,
        "outputs": {"key": "value"},
        "status": "SUCCEEDED",
    },
    "second-one": {"result": {"path": "p", "items": [1, 2], "n": 7, "none": None}, "stderr": ""},
}
RUN = {"id": "r-1", "workflow": "demo", "number": 4, "trigger": "api"}


def rendered(read: Read, step: str, given: dict[str, Any] | None = None) -> Rendered:
    workflow = read(f"{HEAD}  last:\n    depends_on: [second-one]\n    {step}\n")
    params = bind_params(workflow, given or {})
    scope = Scope(params=params, run=RUN, env={}, steps=STEPS)
    return render(workflow, workflow.steps["last"], scope)


def test_a_shell_step(workflow: Read) -> None:
    found = rendered(
        workflow,
        "run: |\n      echo {{ params.s }} {{ params.n + 1 }} {{params.s}}\n"
        "      cat <<E\n      {{ steps.first.stdout }} $2\n      E\n"
        "    args: [1, '{{ params.l }}']\n"
        "    env: {RUN: '{{ env.RUN }}!', OTHER: '{{ env.BASE }}/x'}\n"
        "    workspace: '{{ params.s }}/work'",
    )
    script = 'echo "${TOBAN_V1}" "${TOBAN_V2}" "${TOBAN_V1}"\ncat <<E\n${TOBAN_V3} $2\nE\n'
    assert found.argv == ("/bin/sh", "-e", "-c", script, "sh", "1", '[1,"a",null]')
    assert found.env == {
        "BASE": "/srv/text",
        "RUN": "r-1!",
        "OTHER": "/srv/text/x",
        "TOBAN_V1": "text",
        "TOBAN_V2": "4",
        "TOBAN_V3": "out",
    }
    assert found.workspace == "text/work"
    assert found.call is None


def test_an_exec_step(workflow: Read) -> None:
    found = rendered(
        workflow,
        "job_type: exec\n    target: '/bin/{{ params.s }}'\n"
        "    args: [a b, 1.50, true, null, {k: [1]}, 'x{{ params.n }}y', '$HOME', '{{ params.m }}']",
    )
    assert found.argv == (
        *["/bin/text", "a b", "1.5", "true", "", '{"k":[1]}', "x3y", "$HOME"],
        '{"k":{"deep":"あ"}}',
    )
    assert "TOBAN_V1" not in found.env


def test_a_python_step_keeps_types(workflow: Read) -> None:
    found = rendered(
        workflow,
        "job_type: python\n    target: pkg.mod:fn\n"
        "    args: [1, '{{ params.l }}', ['{{ params.none }}', 'n={{ params.n }}']]\n"
        "    kwargs: {n: '{{ params.n }}', f: '{{ params.f }}', b: '{{ params.b }}', m: '{{ params.m.k }}',"
        " r: '{{ steps[\"second-one\"].result }}', x: '{{ {\"a\": params.n + 1} }}', t: ' {{ params.n }}'}",
    )
    assert found.argv == ()
    assert found.call == {
        "target": "pkg.mod:fn",
        "args": [1, [1, "a", None], [None, "n=3"]],
        "kwargs": {
            "n": 3,
            "f": 2.0,
            "b": True,
            "m": {"deep": "あ"},
            "r": {"path": "p", "items": [1, 2], "n": 7, "none": None},
            "x": {"a": 4},
            "t": " 3",
        },
    }
    assert found.call == json.loads(json.dumps(found.call))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("params.s", "text"),
        ("params.n", "3"),
        ("params.f", "2"),
        ("params.f / 3.0", "0.6666666666666666"),
        ("params.b", "true"),
        ("params.none", ""),
        ("params.l", '[1,"a",null]'),
        ("params.m.k.deep", "あ"),
        ("params.none == null", "true"),
        ("params.l.map(x, string(dyn(x) == null))", '["false","false","true"]'),
        ("run.number + 1", "5"),
        ("run.workflow + run.trigger", "demoapi"),
        ("env.BASE", "/srv/text"),
        ("steps.first.exit_code", "0"),
        ("steps.first.exit_code == 0 ? 'ok' : 'bad'", "ok"),
        ("steps.first.outputs.key", "value"),
        ("steps.first.outputs", '{"key":"value"}'),
        ("steps['second-one'].result.items", "[1,2]"),
        ("steps['second-one'].result.items[1]", "2"),
        ("steps['second-one'].result.none", ""),
        ("size(steps['second-one'].stderr)", "0"),
        ("1u", "1"),
        ("1e300 * 1e300", "inf"),
    ],
)
def test_values_as_text(expression: str, text: str, workflow: Read) -> None:
    quoted = expression.replace("'", "''")
    found = rendered(workflow, f"job_type: exec\n    target: x\n    args: ['<{{{{ {quoted} }}}}>']")
    assert found.argv == ("x", f"<{text}>")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("run: 'echo {{ steps[\"second-one\"].result.nope }}'", 'has no field "nope"'),
        ("run: 'echo {{ steps[\"second-one\"].result.path.x }}'", 'has no field "x": it is "p"'),
        ("run: 'echo {{ steps[\"second-one\"].result.n.x + 1 }}'", "has no fields"),
        ("run: 'echo {{ steps.first.stderr }}'", "steps.first.stderr has no value in this run"),
        ("run: 'echo {{ params.n / 0 }}'", "{{ params.n / 0 }}: divide by zero"),
        ("run: 'echo {{ 9223372036854775807 + params.n }}'", "integer overflow"),
        ("run: 'echo {{ params.l[10] }}'", "index"),
        (
            "run: 'echo {{ params.l.map(a, params.l.map(b, params.l.map(c, params.l.map(d, 1)))) }}'",
            "",
        ),
        ("run: 'echo {{ \"a\\x00b\" }}'", "NUL"),
        ("run: 'echo {{ dyn(b\"x\") }}'", "turn it into text with string"),
        ("run: 'echo {{ {1: 2} }}'", "keys that are not strings"),
        ("run: 'echo {{ [1.0 / 0.0] }}'", "not finite"),
        (
            "job_type: exec\n    target: '{{ params.none }}'",
            "cannot render target of step last: it is empty",
        ),
        (
            "run: x\n    workspace: '{{ params.none }}'",
            "cannot render workspace of step last: it is empty",
        ),
        ("job_type: python\n    target: m:f\n    args: ['{{ 1.0 / 0.0 }}']", "not finite"),
    ],
)
def test_what_fails_when_rendered(step: str, message: str, workflow: Read) -> None:
    if not message:
        rendered(workflow, step)
        return
    with pytest.raises(RenderError, match=r"cannot render .* of step last: ") as caught:
        rendered(workflow, step)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("stdout", "a\0b", "NUL"),
        ("stdout", "\udcff", "not valid Unicode"),
        ("result", 2**63, "out of range"),
        ("result", {"a": [-(2**63) - 1]}, "out of range"),
        ("result", {1: 2}, "keys that are not strings"),
        ("result", object(), "found a object"),
    ],
)
@pytest.mark.parametrize("form", ["{{ steps.s.%s }}", "{{ [steps.s.%s] }}"])
def test_values_that_templates_cannot_take(form: str, where: str, value: Any, message: str, workflow: Read) -> None:
    text = f"name: a\nsteps: [{{name: s, run: x}}, {{name: t, run: 'echo {form % where}'}}]"
    found = workflow(text)
    scope = Scope(params={}, run={}, env={}, steps={"s": {where: value}})
    with pytest.raises(RenderError, match=message):
        render(found, found.steps["t"], scope)


def test_params_event_and_run_are_also_whole_values(workflow: Read) -> None:
    text = """
name: a
params: {n: {type: integer, default: 3}, f: {type: number, default: 2}, s: {default: x}}
steps:
  s:
    job_type: python
    target: m:f
    when: "size(params) == 3 && params.s in ['x'] && 's' in params && params['s'] == 'x'"
    kwargs: {params: "{{ params }}", event: "{{ event }}", run: "{{ run }}", one: "{{ params[params.s + ''] }}"}
    env: {P: "{{ params }}"}
    stdin: "{{ event.payload }} {{ event }}"
"""
    found = workflow(text)
    step = found.steps["s"]
    # As read from JSON, which may turn integers into floats and back.
    params, run = {"n": 3.0, "f": 2, "s": "x", "x": [1]}, {"id": "r", "base_dir": "/b"}
    scope = Scope(params=params, run=run, env={}, steps={}, event={"type": "T", "payload": {"k": [1, None]}})
    shown = render(found, step, scope)
    event = {**NO_EVENT, "type": "T", "payload": {"k": [1, None]}}
    assert shown.call is not None
    assert shown.call["kwargs"] == {"params": {**params, "n": 3, "f": 2.0}, "event": event, "run": run, "one": [1]}
    assert isinstance(shown.call["kwargs"]["params"]["n"], int)
    assert shown.env == {"P": '{"n":3,"f":2.0,"s":"x","x":[1]}'}
    assert shown.stdin == f'{{"k":[1,null]}} {json.dumps(event, separators=(",", ":"))}'
    nothing = Scope(params={"s": "x"}, run={}, env={}, steps={})
    assert evaluate_when(found, step, nothing) is False
    assert render(found, step, Scope(params={"s": "s"}, run={}, env={}, steps={})).call["kwargs"]["event"] == NO_EVENT  # type: ignore[index]


def test_whole_values_have_the_bounds_of_other_values(workflow: Read) -> None:
    head = "name: a\nparams: {s: {}, l: {type: list}}\nsteps:\n"
    text = head + "  s: {job_type: python, target: m:f, kwargs: {a: '{{ %s }}'}}\n"
    whole = workflow(text % "params")
    with pytest.raises(RenderError, match="its args and kwargs have 200,0"):
        render(whole, whole.steps["s"], Scope(params={"s": "x" * 200_000}, run={}, env={}, steps={}))
    with pytest.raises(RenderError, match="may produce at most 8 MiB"):
        render(whole, whole.steps["s"], Scope(params={"s": "x" * 9_000_000}, run={}, env={}, steps={}))
    costly = workflow(text % "params.map(k, params.map(n, 1))")
    with pytest.raises(CostlyError):
        render(costly, costly.steps["s"], Scope(params={"l": [1] * 9_000}, run={}, env={}, steps={}), cheap_only=True)


def test_comprehensions_are_bounded(workflow: Read) -> None:
    nested = "run: 'echo {{ params.l.map(x, params.l.map(y, 1)) }}'"
    with pytest.raises(RenderError, match="more than 10,000 elements"):
        rendered(workflow, nested, {"l": [0] * 1000})
    with pytest.raises(RenderError, match=r"a list or map of 2,001 elements"):
        rendered(workflow, "run: 'echo {{ params.l.map(x, 1) }}'", {"l": [0] * 2001})


def test_only_integers_reach_arithmetic(workflow: Read) -> None:
    found = workflow("name: a\nparams: {n: {type: integer, default: 1}}\nsteps: {s: {run: 'x $(({{ params.n }}))'}}")
    for value in ("x[$(id)]", True, 1.5):
        with pytest.raises(RenderError, match="only integers"):
            render(found, found.steps["s"], Scope(params={"n": value}, run={}, env={}, steps={}))


BOUNDS = """\
name: a
params: {s: {default: x}}
steps:
  script: {run: "echo {{ params.s }}"}
  program: {job_type: exec, target: echo, args: [ARGS]}
  function: {job_type: python, target: "m:f", args: [ARGS]}
""".replace("ARGS", ", ".join(["'{{ params.s }}'"] * 8))


@pytest.mark.parametrize(
    ("step", "text", "message"),
    [
        ("script", "é" * 65531, ""),
        ("script", "é" * 65531 + "x", "env.TOBAN_V1 has 131,072 bytes, but at most 131,071 are"),
        ("program", "x" * 131_070, ""),
        (
            "program",
            "x" * 131_072,
            "argument 1 has 131,072 bytes, but at most 131,071 are allowed",
        ),
        ("program", "x" * 131_071, "have 1,048,581 bytes, but at most 1,048,576 are allowed"),
        ("function", "x" * 16_000, ""),
        (
            "function",
            "x" * 17_000,
            r"have 136,0\d\d bytes as JSON, but at most 131,007 are allowed",
        ),
        ("function", "あ" * 3_000, r"have 144,0\d\d bytes as JSON"),
    ],
)
def test_sizes_are_bounded(step: str, text: str, message: str, workflow: Read) -> None:
    found = workflow(BOUNDS)
    scope = Scope(params={"s": text}, run={}, env={}, steps={})
    if message:
        with pytest.raises(RenderError, match=message):
            render(found, found.steps[step], scope)
    else:
        render(found, found.steps[step], scope)


def test_references(workflow: Read) -> None:
    found = workflow(
        f"{HEAD}  last:\n    depends_on: [second-one]\n"
        "    run: |\n      # {{ steps.first.stderr }}\n      echo {{ steps.first.stdout }}\n"
        "    args: [{a: ['{{ steps.first.exit_code + 1 }}']}]\n"
        "    env: {A: '{{ steps[\"second-one\"].result.path }}'}\n"
        "    workspace: '{{ steps.first.outputs.dir }}'\n"
    )
    assert references(found.steps["last"]) == {
        "first": {"stdout", "exit_code", "outputs"},
        "second-one": {"result"},
    }
    assert references(found.steps["first"]) == {}


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("cmd", 'echo "{{ steps.first.stdout }}" {{ steps.first.exit_code }}'),
        (
            "powershell",
            '# {{ steps.first.stderr }}\n"{{ steps.first.stdout }}"\nf {{ steps.first.exit_code }}',
        ),
    ],
)
def test_references_of_other_scripts(kind: str, target: str, workflow: Read) -> None:
    step = json.dumps({"job_type": kind, "target": target, "depends_on": ["first"]})
    found = workflow(f"{HEAD}  last: {step}\n")
    assert references(found.steps["last"]) == {"first": {"stdout", "exit_code"}}


LOOP = """\
name: demo
params: {xs: {type: list, default: []}}
steps:
  s:
    run: work {{ iteration }} {{ check.stdout }}
    stdin: "{{ item.name }}\\n{{ check.exit_code }}"
    env: {N: "{{ iteration + 1 }}"}
    for_each: params.xs
    completion_check:
      job_type: exec
      target: test
      args: ["{{ item.name }}", "{{ iteration }}"]
      stdin: "{{ iteration }}"
    max_iterations: 3
"""


def test_items_iterations_and_checks(workflow: Read) -> None:
    found = workflow(LOOP)
    step = found.steps["s"]
    scope = Scope(
        params={"xs": []},
        run={},
        env={},
        steps={},
        item={"name": "x"},
        iteration=2,
        check={"stdout": "not yet", "exit_code": 1.0},
    )
    first = render(found, step, scope)
    assert first.argv[3] == 'work "${TOBAN_V1}" "${TOBAN_V2}"'
    assert first.env == {"N": "3", "TOBAN_V1": "2", "TOBAN_V2": "not yet"}
    assert first.stdin == "x\n1"
    assert step.completion_check is not None
    check = render(found, step.completion_check, scope)
    assert (check.argv, check.stdin) == (("test", "x", "2"), "2")
    assert check.env == {"N": "3"}
    assert check_references(step) == {"stdout", "exit_code"}
    assert check_references(step.completion_check) == frozenset()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"iteration": 1, "check": {"stdout": "", "exit_code": -1}}, "item has no value"),
        ({"item": {"name": 1}, "check": {"stdout": "", "exit_code": 0}}, "iteration has no value"),
        ({"item": {"name": 1}, "iteration": 1}, "check.stdout has no value"),
        ({"item": None, "iteration": 1, "check": {"stdout": "", "exit_code": 0}}, "it is null"),
    ],
)
def test_what_has_no_value_here(given: dict[str, Any], message: str, workflow: Read) -> None:
    found = workflow(LOOP)
    scope = Scope(params={"xs": []}, run={}, env={}, steps={}, **given)
    with pytest.raises(RenderError, match=message):
        render(found, found.steps["s"], scope)


def test_an_item_may_be_null(workflow: Read) -> None:
    found = workflow("name: a\nsteps: {s: {job_type: exec, target: x, args: ['{{ item == null }}'], for_each: [1]}}")
    scope = Scope(params={}, run={}, env={}, steps={}, item=None)
    assert render(found, found.steps["s"], scope).argv == ("x", "true")
    assert repr(NO_ITEM) == "NO_ITEM"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x" * 1024 * 1024, ""),
        ("x" * (1024 * 1024 + 1), "its stdin has 1,048,577 bytes, but at most 1,048,576"),
        ("a\0b", "NUL"),
    ],
)
def test_standard_input_is_bounded(text: str, message: str, workflow: Read) -> None:
    found = workflow("name: a\nparams: {s: {default: x}}\nsteps: {s: {run: x, stdin: '{{ params.s }}'}}")
    scope = Scope(params={"s": text}, run={}, env={}, steps={})
    if message:
        with pytest.raises(RenderError, match=message):
            render(found, found.steps["s"], scope)
    else:
        result = render(found, found.steps["s"], scope)
        assert result.stdin == text
        assert text not in result.env.values()


def test_the_parameters_of_a_child_are_bounded(workflow: Read) -> None:
    found = workflow(
        "name: a\nparams: {s: {default: x}}\nsteps: {s: {job_type: workflow, target: b, kwargs: {s: '{{ params.s }}'}}}"
    )
    render(found, found.steps["s"], Scope(params={"s": "x" * 500_000}, run={}, env={}, steps={}))
    scope = Scope(params={"s": "x" * 1_100_000}, run={}, env={}, steps={})
    with pytest.raises(RenderError, match="bytes as JSON, but at most 1,048,576 are allowed"):
        render(found, found.steps["s"], scope)
