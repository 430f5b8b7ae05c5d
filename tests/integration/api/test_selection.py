"""RunService: partial runs and dry runs."""

from __future__ import annotations

import json
from typing import Any

import grpc

from helpers.daemon import Daemon, run_state, skip_reason, step_states, steps_of
from helpers.refusal import refused
from toban.v1 import run_pb2 as pb
from toban.v1 import workflow_pb2

STEPS = {
    "fetch": {"run": 'echo "got=$TOBAN_RUN_ID" >> "$TOBAN_OUTPUT"'},
    "build": {
        "run": "echo built {{ steps.fetch.outputs.got }} {{ params.day }}",
        "depends_on": ["fetch"],
    },
    "test": {"run": "true", "depends_on": ["build"]},
}


def apply(daemon: Daemon, name: str, steps: object = STEPS, **fields: object) -> None:
    params = {"day": {"type": "string", "default": "friday"}}
    definition = {"name": name, "description": "for a test", "params": params, **fields}
    daemon.apply(json.dumps({**definition, "steps": steps}))


def start(daemon: Daemon, name: str, **how: Any) -> pb.Run:
    made = daemon.runs.StartRun(pb.StartRunRequest(workflow=name, **how), timeout=20).run
    return daemon.wait_run(made.id)


def plan(daemon: Daemon, name: str, **how: Any) -> pb.PlanRunResponse:
    return daemon.runs.PlanRun(pb.PlanRunRequest(workflow=name, **how), timeout=20)


def test_a_plan_says_what_would_run_in_order_and_runs_nothing(daemon: Daemon) -> None:
    steps = {
        "last": {"run": "true", "depends_on": ["each"], "when": "params.day == 'friday'"},
        "each": {"run": "echo {{ item }}", "for_each": ["a", "b"], "depends_on": ["first"]},
        "first": {"run": "echo {{ params.day }}"},
        "loop": {"run": "true", "completion_check": {"run": "true"}, "max_iterations": 7},
    }
    apply(daemon, "planned", steps)
    request = pb.PlanRunRequest(workflow="planned")
    request.params.update({"day": "it's monday"})
    answer = daemon.runs.PlanRun(request, timeout=20)
    assert (answer.workflow, answer.version) == ("planned", 1)
    by_id = {step.id: step for step in answer.steps}
    order = [step.id for step in answer.steps]
    assert sorted(order) == sorted(steps)
    assert order.index("first") < order.index("each") < order.index("last")
    assert "monday" in by_id["first"].command
    assert "{{ item }}" in by_id["each"].command
    assert by_id["each"].for_each
    assert by_id["last"].when == "params.day == 'friday'"
    assert list(by_id["last"].depends_on) == ["each"]
    assert by_id["loop"].max_iterations == 7
    assert not any(step.skip_reason for step in answer.steps)
    assert not daemon.runs.ListRuns(pb.ListRunsRequest(workflow="planned"), timeout=20).runs


def test_a_plan_is_refused_as_the_run_would_be(daemon: Daemon) -> None:
    apply(daemon, "refused-plan")
    assert refused(lambda: plan(daemon, "no-such-plan")).reason == "WORKFLOW_NOT_FOUND"
    assert refused(lambda: plan(daemon, "refused-plan", only=["x"])).reason == "UNKNOWN_STEP"
    request = pb.PlanRunRequest(workflow="refused-plan")
    request.params.update({"day": 5})
    wrong = refused(lambda: daemon.runs.PlanRun(request, timeout=20))
    assert wrong.reason == "INVALID_PARAMS"


def test_a_scope_runs_its_steps_and_takes_the_rest_from_before(daemon: Daemon) -> None:
    apply(daemon, "scoped", scopes={"quick": ["build"]})
    missing = refused(lambda: start(daemon, "scoped", scope="quick"))
    assert (missing.code, missing.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "NO_PRIOR_RESULT",
    )
    assert missing.metadata["step"] == "fetch"
    whole = start(daemon, "scoped")
    planned = plan(daemon, "scoped", scope="quick")
    assert {step.id: skip_reason(step) for step in planned.steps} == {
        "fetch": "scope",
        "build": "",
        "test": "scope",
    }
    assert {step.id: step.source_run for step in planned.steps}["fetch"] == whole.id
    run = start(daemon, "scoped", scope="quick")
    assert (run.scope, run_state(run)) == ("quick", "SUCCEEDED")
    assert step_states(run) == {
        "fetch": "SKIPPED(scope)",
        "build": "SUCCEEDED",
        "test": "SKIPPED(scope)",
    }
    steps = steps_of(run)
    assert (steps["fetch"].source_run, steps["test"].source_run) == (whole.id, "")
    out = pb.LOG_STREAM_STDOUT
    assert daemon.log_of(run.id, "build")[out] == daemon.log_of(whole.id, "build")[out]


def test_a_scope_full_is_used_without_a_selection(daemon: Daemon) -> None:
    apply(daemon, "own-full", scopes={"full": ["fetch", "build"]}, on="EV_OWN_FULL")
    planned = plan(daemon, "own-full")
    assert (planned.scope, planned.definition_scope) == ("full", "full")
    assert [step.id for step in planned.steps if not step.skip_reason] == ["fetch", "build"]
    (by_event,) = daemon.emit("EV_OWN_FULL").runs
    for run in (
        daemon.wait_run(by_event.run_id),
        start(daemon, "own-full"),
        start(daemon, "own-full", scope="full"),
    ):
        assert (run.scope, run.definition_scope, run_state(run)) == ("full", "full", "SUCCEEDED")
        assert step_states(run)["test"] == "SKIPPED(scope)"
    part = start(daemon, "own-full", only=["test"])
    assert (part.scope, part.definition_scope, step_states(part)["test"]) == ("only test", "", "SUCCEEDED")


def test_results_come_from_the_run_that_was_named(daemon: Daemon) -> None:
    apply(daemon, "named-source")
    first, second = start(daemon, "named-source"), start(daemon, "named-source")
    run = start(daemon, "named-source", only=["build"], from_run=first.id)
    assert (run.from_run, steps_of(run)["fetch"].source_run) == (first.id, first.id)
    out = pb.LOG_STREAM_STDOUT
    printed = daemon.log_of(run.id, "build")[out]
    assert printed == daemon.log_of(first.id, "build")[out]
    assert printed != daemon.log_of(second.id, "build")[out]
    newest = start(daemon, "named-source", only=["build"])
    assert steps_of(newest)["fetch"].source_run == second.id


def test_from_a_step_on_and_what_all_choose_together(daemon: Daemon) -> None:
    apply(daemon, "from-on", scopes={"late": ["test"]})
    start(daemon, "from-on")
    run = start(daemon, "from-on", from_steps=["build"])
    assert step_states(run) == {
        "fetch": "SKIPPED(scope)",
        "build": "SUCCEEDED",
        "test": "SUCCEEDED",
    }
    both = start(daemon, "from-on", from_steps=["build"], scope="late")
    assert step_states(both)["build"] == "SKIPPED(scope)"
    none = refused(lambda: start(daemon, "from-on", only=["fetch"], scope="late"))
    assert none.reason == "NOTHING_TO_RUN"


def test_what_cannot_be_chosen_is_refused(daemon: Daemon) -> None:
    apply(daemon, "unknowns", scopes={"quick": ["build"]})
    scope = refused(lambda: start(daemon, "unknowns", scope="quikc"))
    assert (scope.code, scope.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "UNKNOWN_SCOPE")
    assert "quick" in scope.text
    step = refused(lambda: start(daemon, "unknowns", from_steps=["nope"]))
    assert (step.code, step.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "UNKNOWN_STEP")
    alone = refused(lambda: start(daemon, "unknowns", from_run="x"))
    assert alone.violations[0][0] == "from_run"
    nowhere = refused(lambda: start(daemon, "unknowns", only=["test"], from_run="x"))
    assert nowhere.reason == "RUN_NOT_FOUND"


def test_a_workflow_that_would_be_its_own_child_is_refused(daemon: Daemon) -> None:
    def calls(name: str, target: str) -> str:
        steps = {"s": {"job_type": "workflow", "target": target}}
        return json.dumps({"name": name, "description": "for a test", "steps": steps})

    apply(daemon, "circle-a")
    daemon.apply(calls("circle-b", "circle-a"))
    definition = workflow_pb2.Definition(source=calls("circle-a", "circle-b"))
    workflow = workflow_pb2.Workflow(name="circle-a", definition=definition)
    asked = workflow_pb2.UpdateWorkflowRequest(workflow=workflow)
    refusal = refused(lambda: daemon.workflows.UpdateWorkflow(asked, timeout=20))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "WORKFLOW_RECURSION",
    )
    assert refusal.metadata == {"path": "circle-a → circle-b → circle-a"}
