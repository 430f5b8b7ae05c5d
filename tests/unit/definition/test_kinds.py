"""Kinds of steps and their fields."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toban.definition import (
    FailurePolicy,
    JobType,
    Overlap,
    Problem,
    RenderError,
    Scope,
    Workflow,
    command_line,
    render,
)

Read = Callable[[str], Workflow]
Errors = Callable[[str | bytes], list[Problem]]
Error = Callable[[str | bytes], Problem]

HEAD = "name: a\ndescription: d\n"


def test_approvals(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}defaults: {{env: {{A: 1}}, on_lost: rerun, target: x, kwargs: {{a: 1}}}}
steps:
  ask:
    job_type: approval
    name: May it go out?
    approvers: [alice, "uid:1000"]
    timeout: 1d
    on_failure: skip
    max_retries: 1
    when: run.number > 1
"""
    ).steps["ask"]
    assert (found.job_type, found.target, found.kwargs) == (JobType.APPROVAL, "", {})
    assert (found.approvers, found.timeout) == (("alice", "uid:1000"), 86400)
    assert (found.on_failure, found.env) == (FailurePolicy.SKIP, {})
    assert command_line(found) == "approval"


def test_child_workflows(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}params: {{n: {{type: integer, default: 4}}}}
defaults: {{args: [1], env: {{A: 1}}}}
steps:
  call: {{job_type: workflow, target: other-one, kwargs: {{n: "{{{{ params.n }}}}", m: [1]}}, timeout: 1h}}
"""
    )
    step = found.steps["call"]
    assert (step.job_type, step.target, step.args, step.env) == (
        JobType.WORKFLOW,
        "other-one",
        (),
        {},
    )
    assert command_line(step) == "workflow other-one"
    result = render(found, step, Scope(params={"n": 4}, run={}, env={}, steps={}))
    assert result.call == {"target": "other-one", "kwargs": {"n": 4, "m": [1]}}
    assert (result.argv, result.env, result.stdin, result.outputs) == ((), {}, None, ())


def test_approvals_are_not_rendered(workflow: Read) -> None:
    found = workflow(f"{HEAD}steps: {{a: {{job_type: approval}}}}")
    with pytest.raises(RenderError, match="approval steps have no process"):
        render(found, found.steps["a"], Scope(params={}, run={}, env={}, steps={}))


PROCESS_FIELDS = {
    "args": "[1]",
    "env": "{A: 1}",
    "stdin": "x",
    "python": "python3",
    "workspace": "w",
    "idle_timeout": "1s",
    "kill_grace": "1s",
    "success_codes": "[0]",
    "error_classes": "{3: FATAL}",
    "outputs": "[{name: o, path: p}]",
    "completion_check": "{run: y}",
    "max_iterations": "3",
    "interval": "1s",
    "on_iterations_exhausted": "abort",
    "stop_when_unchanged": "x",
    "on_lost": "fail",
    "user": "root",
    "resources": "{nice: 1}",
}


@pytest.mark.parametrize("field", PROCESS_FIELDS)
@pytest.mark.parametrize("kind", ["approval", "workflow"])
def test_fields_of_processes_make_no_sense_elsewhere(kind: str, field: str, error: Error) -> None:
    target = "" if kind == "approval" else ", target: b"
    found = error(f"{HEAD}steps: {{a: {{job_type: {kind}{target}, {field}: {PROCESS_FIELDS[field]}}}}}")
    article = "an" if kind == "approval" else "a"
    assert found.path == f"steps.a.{field}"
    assert found.message == f'"{field}" does not apply to {article} {kind} step: remove it'


@pytest.mark.parametrize(
    ("step", "path", "message"),
    [
        ("{job_type: approval, target: x}", ".target", '"target" does not apply to an approval'),
        ("{job_type: approval, kwargs: {a: 1}}", ".kwargs", '"kwargs" does not apply to an approval'),
        ("{job_type: approval, run: x}", ".job_type", '"run" is short for job_type: shell'),
        ("{job_type: approval, approvers: []}", ".approvers", "expected at least one entry"),
        ("{job_type: approval, approvers: [' ']}", ".approvers[0]", "expected text"),
        ("{job_type: approval, approvers: ['{{ 1 }}']}", ".approvers[0]", "a template is not allowed"),
        ("{run: x, approvers: [bob]}", ".approvers", "only approval steps have approvers"),
        ("{job_type: workflow}", "", "the step has no target"),
        ("{job_type: workflow, target: b, approvers: [bob]}", ".approvers", "does not apply to a"),
        ("{job_type: workflow, target: a}", ".target", '"a" would start itself endlessly'),
        ("{job_type: workflow, target: b c}", ".target", '"b c" is not a valid name'),
        ("{job_type: workflow, target: '{{ run.id }}'}", ".target", "a template cannot choose the"),
        ("{job_type: workflow, target: b, kwargs: {a: '{{ params.x }}'}}", ".kwargs.a", "unknown"),
        ("{job_type: worker, target: b}", ".job_type", 'job_type "worker" is not supported yet'),
        ("{run: x, python: python3}", ".python", "only python steps have an interpreter"),
        ("{job_type: python, target: 'm:f', python: '{{ 1 }}'}", ".python", "a template is not allowed"),
        ("{run: x, stdin: [a]}", ".stdin", "expected a string, found a list"),
        ("{run: x, stdin: '{{ params.x }}'}", ".stdin", 'unknown parameter "x"'),
    ],
)
def test_what_is_wrong(step: str, path: str, message: str, error: Error) -> None:
    found = error(f"{HEAD}steps: {{a: {step}}}")
    assert (found.line, found.path) == (3, f"steps.a{path}")
    assert message in found.message


def test_standard_input_and_interpreter(workflow: Read) -> None:
    found = workflow(
        f"{HEAD}steps: {{a: {{job_type: python, target: 'm:f', python: .venv/bin/python, stdin: ''}}}}"
    ).steps["a"]
    assert (found.python, found.stdin) == (".venv/bin/python", "")


@pytest.mark.parametrize("overlap", list(Overlap))
def test_overlaps(overlap: Overlap, workflow: Read) -> None:
    assert workflow(f"{HEAD}overlap: {overlap}\nsteps: {{a: {{run: x}}}}").overlap is overlap


def test_context_and_scopes(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}context_dir: out/context
scopes: {{full: [b], some: [b, a, b]}}
steps: {{a: {{run: x}}, b: {{run: x}}}}
"""
    )
    assert found.context_dir == "out/context"
    assert found.scopes == {"full": ("b",), "some": ("b", "a")}


@pytest.mark.parametrize("target", ["pkg.mod.func", "pkg.mod:func"])
def test_a_function_by_its_dotted_path(target: str, workflow: Read) -> None:
    found = workflow(f"name: a\ndescription: d\nsteps: {{a: {{job_type: python, target: {target}}}}}")
    assert found.steps["a"].target == "pkg.mod:func"


def test_a_function_needs_a_module(error: Error) -> None:
    found = error("name: a\ndescription: d\nsteps: {a: {job_type: python, target: func}}")
    assert found.message == 'expected package.module:function, found "func"'


@pytest.mark.parametrize("kind", ["shell", "exec", "cmd", "powershell", "python", "workflow", "approval"])
def test_empty_arguments_on_any_kind(kind: str, workflow: Read) -> None:
    target = "" if kind == "approval" else "target: m.f, " if kind == "python" else "target: other, "
    found = workflow(f"name: a\ndescription: d\nsteps: {{a: {{job_type: {kind}, {target}args: [], kwargs: {{}}}}}}")
    assert (found.steps["a"].args, found.steps["a"].kwargs) == ((), {})
