"""Kinds of steps and their fields."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toban.definition import (
    NO_EVENT,
    FailurePolicy,
    JobType,
    Overlap,
    Problem,
    RenderedWait,
    RenderError,
    Scope,
    Wait,
    Workflow,
    command_line,
    judge_wait,
    references,
    render,
    render_wait,
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


def test_waits(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}params: {{n: {{type: integer, default: 4}}, at: {{}}}}
defaults: {{run: echo x, env: {{A: 1}}, on_failure: continue}}
steps:
  a: {{wait: {{for: 1h30m}}}}
  b: {{job_type: wait, wait: {{until: "{{{{ params.at }}}}"}}, timeout: 1d}}
  c:
    wait: {{event: [x, RUN_FAILED], condition: event.payload.n == params.n && steps.a.status != ''}}
    depends_on: [a]
  d: {{wait: {{file: in/data, settle: 0}}, when: run.number > 1, for_each: [1, 2]}}
"""
    ).steps
    assert {(step.job_type, step.target) for step in found.values()} == {(JobType.WAIT, "")}
    assert [step.wait for step in found.values()] == [
        Wait(duration=5400),
        Wait(until="{{ params.at }}"),
        Wait(events=("x", "RUN_FAILED"), condition="event.payload.n == params.n && steps.a.status != ''"),
        Wait(file="in/data", settle=0),
    ]
    assert [command_line(step) for step in found.values()] == [
        "wait for 1h30m",
        "wait until {{ params.at }}",
        "wait for the event x or RUN_FAILED",
        "wait for the file in/data",
    ]
    assert references(found["c"]) == {"a": frozenset({"status"})}
    assert {step.on_failure for step in found.values()} == {FailurePolicy.CONTINUE}


def test_a_wait_and_what_runs_replace_each_other(workflow: Read) -> None:
    jobs = workflow(
        f"{HEAD}defaults: {{run: x}}\nsteps: {{a: {{wait: {{for: 1s}}}}, b: {{target: y, job_type: exec}}}}"
    )
    assert [step.job_type for step in jobs.steps.values()] == [JobType.WAIT, JobType.EXEC]


def test_a_wait_is_not_inherited(error: Error) -> None:
    found = error(f"{HEAD}defaults: {{wait: {{for: 1s}}}}\nsteps: {{a: {{run: x}}}}")
    assert found.message == '"wait" cannot be inherited: give it in each step'


def waits_for(workflow: Workflow, scope: Scope) -> list[RenderedWait]:
    return [render_wait(workflow, step, scope) for step in workflow.steps.values()]


def test_what_a_step_waits_for_is_filled_in(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}params: {{n: {{type: integer, default: 4}}, at: {{}}}}
steps:
  a: {{wait: {{for: "{{{{ params.n }}}}"}}}}
  b: {{wait: {{for: "{{{{ params.n }}}}m"}}}}
  c: {{wait: {{until: "{{{{ params.at }}}}"}}}}
  d: {{wait: {{file: "x/{{{{ params.n }}}}"}}}}
  e: {{wait: {{event: x}}}}
"""
    )
    assert waits_for(found, Scope(params={"n": 4, "at": "09:30"}, run={}, env={}, steps={})) == [
        RenderedWait(duration=4),
        RenderedWait(duration=240),
        RenderedWait(until="09:30"),
        RenderedWait(file="x/4"),
        RenderedWait(),
    ]
    with pytest.raises(RenderError, match="wait steps have no process"):
        render(found, found.steps["a"], Scope(params={"n": 4}, run={}, env={}, steps={}))
    with pytest.raises(RenderError, match=r"cannot render wait\.for of step a: a duration cannot be negative"):
        waits_for(found, Scope(params={"n": -4, "at": ""}, run={}, env={}, steps={}))


@pytest.mark.parametrize(
    ("payload", "judged"), [({"n": 4}, True), ({"n": 5}, False), ({"n": "4"}, False), ({}, None), (3, None)]
)
def test_which_events_end_a_wait(payload: object, judged: bool | None, workflow: Read) -> None:
    found = workflow(
        f"{HEAD}params: {{n: {{type: integer, default: 4}}}}\n"
        "steps: {a: {wait: {event: x, condition: event.payload.n == params.n}}}"
    )
    scope = Scope(params={"n": 4}, run={}, env={}, steps={}, event={**NO_EVENT, "payload": payload})
    if judged is None:
        with pytest.raises(RenderError, match=r"cannot evaluate wait\.condition of step a"):
            judge_wait(found, found.steps["a"], scope)
    else:
        assert judge_wait(found, found.steps["a"], scope) is judged


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
@pytest.mark.parametrize("kind", ["approval", "workflow", "wait"])
def test_fields_of_processes_make_no_sense_elsewhere(kind: str, field: str, error: Error) -> None:
    target = {"approval": "", "workflow": ", target: b", "wait": ", wait: {for: 1s}"}[kind]
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
        ("{job_type: wait}", "", 'the step does not say what it waits for: add "wait"'),
        ("{wait: 5m}", ".wait", "expected a mapping such as {for: 10m}, {until"),
        ("{wait: {}}", ".wait", "it does not say what to wait for: write {for: 10m}"),
        ("{wait: {for: 1m, until: '09:00'}}", ".wait.until", '"for" is given already: remove "until", or use two'),
        ("{wait: {fro: 1m}}", ".wait.fro", 'unknown field "fro": did you mean "for"?'),
        ("{wait: {for: soon}}", ".wait.for", 'expected a duration, found "soon"'),
        ("{wait: {for: -1}}", ".wait.for", "a duration cannot be negative"),
        ("{wait: {for: '{{ params.x }}'}}", ".wait.for", 'unknown parameter "x"'),
        ("{wait: {until: tomorrow}}", ".wait.until", 'expected a time, found "tomorrow": write a time of day'),
        ("{wait: {until: '24:00'}}", ".wait.until", 'expected a time, found "24:00"'),
        ("{wait: {until: 2026-02-30 10:00}}", ".wait.until", "is not a valid time"),
        ("{wait: {until: 9}}", ".wait.until", "expected a string, found the number 9"),
        ("{wait: {file: ''}}", ".wait.file", "expected a path, found an empty string"),
        ("{wait: {event: a b}}", ".wait.event", "it has a space or a control character"),
        ("{wait: {event: []}}", ".wait.event", "expected at least one type"),
        ("{wait: {event: DEFINITION_CHANGED}}", ".wait.event", "no step can wait for DEFINITION_CHANGED"),
        ("{wait: {event: x, condition: event.kind == 1}}", ".wait.condition", 'unknown field "kind" of event'),
        ("{wait: {event: x, condition: '1'}}", ".wait.condition", "expected a boolean"),
        ("{wait: {event: x, condition: item == 1}}", ".wait.condition", "item has a value only in steps with for_each"),
        ("{wait: {for: 1m, condition: 'true'}}", ".wait.condition", '"condition" belongs to "event": add "event"'),
        ("{wait: {for: 1m, settle: 1s}}", ".wait.settle", '"settle" belongs to "file": add "file"'),
        ("{wait: {for: 1m}, run: x}", ".run", 'a step with "wait" runs nothing: remove "run", or use two steps'),
        ("{wait: {for: 1m}, job_type: exec}", ".job_type", 'a step with "wait" runs nothing: remove "job_type"'),
        ("{wait: {for: 1m}, approvers: [bob]}", ".approvers", '"approvers" does not apply to a wait step: remove it'),
        ("{run: x, sleep: 5}", ".sleep", 'unknown field "sleep": write wait: {for: …}'),
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
