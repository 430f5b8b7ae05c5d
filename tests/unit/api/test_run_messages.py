"""Messages about runs and steps."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from helpers.messages import waits_for
from toban.definition import ErrorClass, JobType, parse
from toban.v1 import dead_letter_pb2, run_pb2
from toband.api import run_messages, run_summary
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.plan import Plan
from toband.domain.run_events import Event, name_of_type
from toband.domain.run_model import (
    Artifact,
    DeadLetter,
    DeadLetterState,
    Ending,
    EndingCause,
    Phase,
    Run,
    RunState,
    StepRun,
    StepState,
    Trigger,
)
from toband.ports import LogKind, OutputEnd

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TEXT = """
name: w
description: for a test
steps:
  fetch: {run: "true", max_retries: 2}
  build:
    run: echo {{ item }}
    for_each: "['a', 'b']"
    depends_on: [fetch]
  loop:
    run: "true"
    completion_check: {run: "false"}
    max_iterations: 5
  gate: {job_type: approval, approvers: [alice, bob]}
  open: {job_type: approval}
  call: {job_type: workflow, target: other}
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(TEXT)


def plan_of(text: str) -> Plan:
    parsed = parse(text)
    assert parsed.ok, parsed.problems
    workflow = parsed.documents[0].workflow
    assert workflow is not None
    return Plan(workflow)


def run_of(plan: Plan, *steps: StepRun, **more: Any) -> Run:
    run = plan.new_run(run_id="r", version=1, params={}, trigger=Trigger.API, caller="me", at=NOW)
    return replace(run, state=RunState.RUNNING, steps={step.id: step for step in steps}, **more)


def attempt(step: str, **more: Any) -> Attempt:
    return Attempt(
        id="a1",
        run_id="r",
        step=step,
        number=1,
        ordinal=0,
        token="t",
        state=AttemptState.RUNNING,
        created_at=NOW,
        **more,
    )


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (StepRun(id="fetch", index=0), ""),
        (StepRun(id="fetch", index=0, state=StepState.READY), "SLOT"),
        (
            StepRun(id="fetch", index=0, state=StepState.READY, not_before=NOW),
            "BACKOFF",
        ),
        (
            StepRun(id="loop", index=2, state=StepState.READY, phase=Phase.NEXT, not_before=NOW),
            "INTERVAL",
        ),
        (StepRun(id="fetch", index=0, state=StepState.RUNNING), ""),
        (
            StepRun(id="gate", index=3, state=StepState.RUNNING, phase=Phase.APPROVAL),
            "APPROVAL",
        ),
        (
            StepRun(id="open", index=4, state=StepState.RUNNING, phase=Phase.APPROVAL),
            "APPROVAL",
        ),
        (StepRun(id="gate", index=3, state=StepState.SUCCEEDED, phase=Phase.APPROVAL), ""),
    ],
)
def test_a_step_says_what_it_waits_for(plan: Plan, step: StepRun, expected: str) -> None:
    assert waits_for(run_messages.step(step, plan)) == expected


def test_what_is_ready_in_a_paused_run_waits_for_it(plan: Plan) -> None:
    ready = StepRun(id="fetch", index=0, state=StepState.READY)
    made = run_messages.run(run_of(plan, ready, paused_at=NOW), plan)
    assert (waits_for(made), waits_for(made.steps[0])) == ("RESUME", "RESUME")
    assert made.paused_at.ToDatetime(UTC) == NOW


def test_a_run_waits_only_if_nothing_of_it_moves(plan: Plan) -> None:
    gate = StepRun(id="gate", index=3, state=StepState.RUNNING, phase=Phase.APPROVAL)
    held = StepRun(id="fetch", index=0, state=StepState.READY, not_before=NOW)
    moving = StepRun(id="loop", index=2, state=StepState.CHECKING, phase=Phase.CHECK)
    done = StepRun(id="call", index=5, state=StepState.SUCCEEDED)
    later = StepRun(id="build", index=1)

    def waits(*steps: StepRun, **more: Any) -> tuple[str, list[str]]:
        made = run_messages.run(run_of(plan, *steps, **more), plan)
        return waits_for(made), list(made.waiting_steps)

    assert waits(gate, done, later) == ("APPROVAL", ["gate"])
    assert waits(held, gate) == ("BACKOFF", ["fetch", "gate"])
    assert waits(gate, moving) == ("", [])
    assert waits(done, later) == ("", [])
    ending = Ending(cause=EndingCause.CANCELLED, at=NOW)
    assert waits(gate, ending=ending) == ("PROCESSES", [])


def test_a_step_names_its_approvers(plan: Plan) -> None:
    gate = StepRun(id="gate", index=3, state=StepState.RUNNING, phase=Phase.APPROVAL)
    assert list(run_messages.step(gate, plan).approvers) == ["alice", "bob"]


@pytest.mark.parametrize(
    ("overlap", "parent", "expected"),
    [("allow", "", "START"), ("skip", "", "QUEUE"), ("queue", "", "QUEUE"), ("skip", "p", "QUEUE")],
)
def test_a_run_that_has_not_begun(overlap: str, parent: str, expected: str) -> None:
    plan = plan_of(f"name: w\ndescription: d\noverlap: {overlap}\nsteps: {{a: {{run: 'true'}}}}\n")
    run = replace(run_of(plan, parent_run=parent), state=RunState.PENDING)
    assert waits_for(run_messages.run(run, plan)) == expected


def test_instances_are_told_with_their_item_and_their_step(plan: Plan) -> None:
    group = StepRun(id="build", index=1, instances=2, state=StepState.RUNNING, phase=Phase.GROUP)
    one = StepRun(id="build[1]", index=1, parent="build", instance=1, item={"os": "ü"}, state=StepState.FAILED)
    steps = run_messages.run(run_of(plan, group, one), plan).steps
    assert (steps[0].instances, steps[0].item_json) == (2, "")
    assert not steps[0].HasField("instance")
    assert (steps[1].parent, steps[1].instance, steps[1].index) == ("build", 1, 1)
    assert json.loads(steps[1].item_json) == {"os": "ü"}
    assert list(steps[1].depends_on) == ["fetch"]
    assert steps[1].job_type == run_pb2.JOB_TYPE_SHELL


def test_an_item_may_be_null_or_false(plan: Plan) -> None:
    for item in (None, False, 0, ""):
        step = StepRun(id="build[0]", index=1, parent="build", instance=0, item=item)
        assert json.loads(run_messages.step(step, plan).item_json) == item


def test_the_summary_counts_states(plan: Plan) -> None:
    states = {StepState.SKIPPED: 4, StepState.FAILED: 1, StepState.SUCCEEDED: 2000}
    summary = run_messages.run(run_of(plan, step_states=states), plan).summary
    assert [(each.state, each.count) for each in summary.counts] == [
        (run_pb2.STEP_STATE_SUCCEEDED, 2000),
        (run_pb2.STEP_STATE_FAILED, 1),
        (run_pb2.STEP_STATE_SKIPPED, 4),
    ]
    assert (list(summary.steps), summary.left_out) == ([], 0)


def test_a_summary_of_many_steps_has_those_that_did_not_succeed() -> None:
    states = {700: StepState.FAILED, 3: StepState.RUNNING, 999: StepState.CANCELLED}
    steps = [
        StepRun(id=f"s{number}", index=number, state=states.get(number, StepState.SUCCEEDED)) for number in range(1000)
    ]
    shown = [step.index for step in run_summary.choose(steps)]
    assert shown == [*range(98), 700, 999]
    assert run_summary.choose(steps[:100]) == steps[:100]


def test_iterations_are_of_steps_with_a_check(plan: Plan) -> None:
    loop = StepRun(id="loop", index=2, iteration=3, checks=2, state=StepState.CHECKING)
    made = run_messages.step(loop, plan)
    assert (made.iteration, made.max_iterations, made.checks) == (3, 5, 2)
    assert made.state == run_pb2.STEP_STATE_CHECKING
    plain = run_messages.step(StepRun(id="fetch", index=0, iteration=1, retries=1), plan)
    assert (plain.iteration, plain.max_iterations) == (0, 0)
    assert (plain.retries, plain.max_retries) == (1, 2)


def test_a_child_is_told_with_the_step_and_with_its_attempt(plan: Plan) -> None:
    child = attempt("call", child=True)
    made = run_messages.step(StepRun(id="call", index=5, attempt=child), plan)
    assert (made.child_run, made.job_type) == ("a1", run_pb2.JOB_TYPE_WORKFLOW)
    assert run_messages.process_execution(child).child_run == "a1"
    process = attempt("fetch")
    assert run_messages.step(StepRun(id="fetch", index=0, attempt=process), plan).child_run == ""
    assert run_messages.process_execution(process).child_run == ""


def test_a_check_is_told_as_one(plan: Plan) -> None:
    made = run_messages.process_execution(attempt("loop.check", iteration=2, job="tests"))
    assert (made.step, made.check, made.iteration, made.job) == ("loop.check", True, 2, "tests")
    assert not run_messages.process_execution(attempt("loop")).check


def test_the_end_of_an_output_is_text(plan: Plan) -> None:
    made = run_messages.process_execution(attempt("fetch"))
    cut = OutputEnd(b"\x82\x82ab\xff", truncated=True)  # within a character of three bytes
    run_messages.add_output(made, {LogKind.STDOUT: cut, LogKind.SYSTEM: OutputEnd(b"note")})
    assert (made.stdout, made.stdout_truncated) == ("ab\ufffd", True)
    assert (made.stderr, made.stderr_truncated) == ("", False)
    run_messages.add_output(made, {LogKind.STDERR: OutputEnd(b"\x82x")})
    assert made.stderr == "\ufffdx"


def test_what_a_step_left_and_where_it_is_from(plan: Plan) -> None:
    left = Artifact(name="report", path="fetch/report/r.html", type="html", files=1, bytes=7)
    step = StepRun(id="fetch", index=0, artifacts=(left,), source="r0", spilled=70_000)
    made = run_messages.step(step, plan)
    assert made.artifacts[0] == run_pb2.Artifact(
        name="report",
        path="fetch/report/r.html",
        type="html",
        files=1,
        bytes=7,
        state=run_pb2.PROCESS_STATE_COMPLETED,
    )
    assert (made.source_run, made.result_bytes, made.result_json) == ("r0", 70_000, "")


def test_links_and_counts_of_a_run(plan: Plan) -> None:
    run = run_of(
        plan,
        incomplete_steps=2,
        retry_of="r1",
        from_run="r2",
        parent_run="r3",
        parent_step="s",
        trigger=Trigger.PARENT,
    )
    made = run_messages.run(run)
    assert (made.incomplete_steps, made.retry_of, made.from_run) == (2, "r1", "r2")
    assert (made.parent_run, made.parent_step) == ("r3", "s")
    assert made.triggered_by == run_pb2.TRIGGER_PARENT
    assert not made.HasField("paused_at")


def test_every_state_has_its_name_in_the_api() -> None:
    for run_state in RunState:
        run_pb2.RunState.Value(f"RUN_STATE_{run_state.value}")
    for step_state in StepState:
        run_pb2.StepState.Value(f"STEP_STATE_{step_state.value}")
    for trigger in Trigger:
        run_pb2.Trigger.Value(f"TRIGGER_{trigger.value}")
    for state in DeadLetterState:
        dead_letter_pb2.DeadLetterState.Value(f"DEAD_LETTER_STATE_{state.value}")


def test_a_dead_letter() -> None:
    letter = DeadLetter(
        id="d",
        run_id="r",
        workflow="w",
        step="build[1]",
        attempt_id="a",
        attempts=4,
        error="exited with 1",
        error_class=ErrorClass.RETRYABLE_TRANSIENT,
        created_at=NOW,
    )
    made = run_messages.dead_letter(letter)
    assert (made.id, made.run_id, made.step, made.attempts) == ("d", "r", "build[1]", 4)
    assert made.state == dead_letter_pb2.DEAD_LETTER_STATE_OPEN
    assert not made.HasField("resolved_at")
    closed = replace(
        letter,
        state=DeadLetterState.REQUEUED,
        requeued_as="r2",
        resolved_by="me",
        resolved_at=NOW + timedelta(hours=1),
    )
    made = run_messages.dead_letter(closed)
    assert (made.requeued_as, made.resolved_by) == ("r2", "me")
    assert made.resolved_at.ToDatetime(UTC) == NOW + timedelta(hours=1)


def test_a_run_that_a_schedule_started(plan: Plan) -> None:
    by_hand = run_messages.run(run_of(plan))
    assert (by_hand.schedule_id, list(by_hand.missed)) == ("", [])
    assert not by_hand.HasField("scheduled_at")
    run = run_of(
        plan,
        trigger=Trigger.SCHEDULE,
        schedule="w/0",
        scheduled_at=NOW,
        missed=(NOW - timedelta(hours=2), NOW - timedelta(hours=1)),
    )
    made = run_messages.run(run)
    assert (made.triggered_by, made.schedule_id) == (run_pb2.TRIGGER_SCHEDULE, "w/0")
    assert made.scheduled_at.ToDatetime(tzinfo=UTC) == NOW
    assert [at.ToDatetime(tzinfo=UTC).hour for at in made.missed] == [10, 11]


def test_a_run_that_an_event_started(plan: Plan) -> None:
    by_hand = run_messages.run(run_of(plan))
    assert (by_hand.event_id, by_hand.event_type, by_hand.depth) == ("", "", 0)
    event = {"id": "e", "type": "DATA_CHANGED", "payload": {}}
    run = run_of(plan, trigger=Trigger.EVENT, event=event, depth=3)
    made = run_messages.run(run)
    assert (made.event_id, made.event_type, made.depth) == ("e", "DATA_CHANGED", 3)
    assert made.triggered_by == run_pb2.TRIGGER_EVENT
    # It may have to wait for other runs of events, whatever its workflow says.
    assert waits_for(run_messages.run(replace(run, state=RunState.PENDING), plan)) == "QUEUE"


@pytest.mark.parametrize("trigger", list(Trigger))
def test_every_trigger_can_be_told(plan: Plan, trigger: Trigger) -> None:
    made = run_messages.run(run_of(plan, trigger=trigger))
    assert run_pb2.Trigger.Name(made.triggered_by) == f"TRIGGER_{trigger.value}"


def test_every_event_of_a_run_and_every_type_of_a_step_has_a_name_in_the_contract() -> None:
    kinds = {run_messages.change_kind(name_of_type(kind)) for kind in get_args(Event)}
    assert kinds == set(run_pb2.RunChangeKind.values()) - {
        run_pb2.RUN_CHANGE_KIND_UNSPECIFIED,
        # Not stored: it does not change the state of a run.
        run_pb2.RUN_CHANGE_KIND_PROGRESS_REPORTED,
        # Not an event of the run, which begins with it.
        run_pb2.RUN_CHANGE_KIND_CREATED,
    }
    assert run_messages.change_kind("of_an_earlier_version") == run_pb2.RUN_CHANGE_KIND_UNSPECIFIED
    types = {run_messages.job_type(each) for each in JobType}
    assert types == set(run_pb2.JobType.values()) - {run_pb2.JOB_TYPE_UNSPECIFIED}
