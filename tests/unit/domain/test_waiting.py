"""Waiting runs: a pause, an approval, a child, a backoff, the next start of the daemon."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from toban.definition import ErrorClass
from toband.domain.attempt_model import AttemptState, TreeCause
from toband.domain.run_events import (
    CancelRequested,
    ChildEnded,
    CollectOutputs,
    DecisionMade,
    EvaluateStep,
    IterationDue,
    LaunchReady,
    PauseRequested,
    ResumeRequested,
    RetryDue,
    RunStarted,
    RunTimeoutPassed,
    StartFinallyTimer,
    StartIterationTimer,
    StartRetryTimer,
    StartRunTimer,
    StartStepTimer,
    StopAttempt,
    StopCollection,
)
from toband.domain.run_model import Ending, EndingCause, FinallyPart, Phase, RunState, StepState
from toband.domain.transition import effects_of

from .simulator import EPOCH, Simulator
from .workflow_builder import workflow


def started(simulator: Simulator, until: float = 0.5) -> Simulator:
    simulator.at(0, RunStarted())
    simulator.go_on(until=until)
    return simulator


def test_a_pause_is_told_and_resume_takes_it_back() -> None:
    simulator = started(Simulator(workflow({"a": {}}), {"a": ["hang"]}))
    simulator.deliver(PauseRequested())
    paused = simulator.run
    assert paused.paused_at == EPOCH + timedelta(seconds=0.5)
    assert paused.state is RunState.RUNNING
    simulator.deliver(PauseRequested())
    assert simulator.run is paused
    simulator.deliver(ResumeRequested())
    resumed = simulator.run
    assert resumed.paused_at is None
    simulator.deliver(ResumeRequested())
    assert simulator.run is resumed


def test_a_run_that_ends_is_not_paused() -> None:
    simulator = started(Simulator(workflow({"a": {}}), {"a": ["hang"]}))
    simulator.deliver(CancelRequested())
    simulator.deliver(PauseRequested())
    assert simulator.run.paused_at is None


def test_what_became_ready_in_a_pause_starts_when_it_ends() -> None:
    steps = {"a": {}, "b": {"depends_on": ["a"]}, "c": {"depends_on": ["a"]}}
    simulator = started(Simulator(workflow(steps, concurrency=1)))
    simulator.deliver(PauseRequested())
    simulator.go_on(until=9)
    assert [each.step for each in simulator.launched] == ["a"]
    simulator.deliver(ResumeRequested())
    assert [each.step for each in simulator.launched] == ["a", "b"]


def test_a_decision_is_kept_with_its_person() -> None:
    simulator = started(Simulator(workflow({"a": {"job_type": "approval"}})))
    waiting = simulator.run.steps["a"]
    assert (waiting.state, waiting.phase, waiting.attempt) == (
        StepState.RUNNING,
        Phase.APPROVAL,
        None,
    )
    simulator.deliver(DecisionMade(step="a", approved=True, by="uid:7", note="go"))
    step = simulator.run.steps["a"]
    at = (EPOCH + timedelta(seconds=0.5)).isoformat()
    assert step.result == {"approved": True, "by": "uid:7", "at": at, "note": "go"}
    assert step.state is StepState.SUCCEEDED


def test_a_rejection_says_who_and_why() -> None:
    simulator = started(Simulator(workflow({"a": {"job_type": "approval"}})))
    simulator.deliver(DecisionMade(step="a", approved=False, by="uid:7", note="not today"))
    step = simulator.run.steps["a"]
    assert step.error_class is ErrorClass.NON_RETRYABLE
    assert step.reason == "rejected by uid:7: not today"
    assert step.result["approved"] is False


def test_a_decision_about_something_else_changes_nothing() -> None:
    simulator = started(Simulator(workflow({"a": {}}), {"a": ["hang"]}))
    before = simulator.run
    simulator.deliver(DecisionMade(step="a", approved=True, by="uid:7"))
    simulator.deliver(DecisionMade(step="no such step", approved=True, by="uid:7"))
    assert simulator.run is before


def test_an_approval_has_its_time_from_when_it_is_asked_for() -> None:
    steps = {"a": {}, "b": {"job_type": "approval", "timeout": "5s", "depends_on": ["a"]}}
    simulator = started(Simulator(workflow(steps)), until=2)
    (timer,) = [effect for effect in simulator.effects if isinstance(effect, StartStepTimer)]
    assert timer.due == EPOCH + timedelta(seconds=6)
    assert "timed out" in simulator.go_on().steps["b"].reason


def test_a_child_is_an_attempt_without_a_process() -> None:
    simulator = started(Simulator(workflow({"a": {"job_type": "workflow"}}), {"a": ["hang"]}))
    (attempt,) = simulator.launched
    assert attempt.child
    simulator.now = 7
    ended = ChildEnded(
        step="a",
        token=attempt.token,
        state=RunState.SUCCEEDED,
        error="",
        number=12,
        started_at=EPOCH,
        finished_at=EPOCH + timedelta(seconds=6),
    )
    simulator.deliver(ended)
    step = simulator.run.steps["a"]
    assert step.result == {"run_id": attempt.id, "number": 12, "state": "SUCCEEDED"}
    assert step.finished_at == EPOCH + timedelta(seconds=6)
    assert step.attempt is not None
    assert step.attempt.state is AttemptState.COMPLETED


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (RunState.FAILED, ErrorClass.RETRYABLE_TRANSIENT),
        (RunState.TIMED_OUT, ErrorClass.RETRYABLE_TRANSIENT),
        (RunState.CANCELLED, ErrorClass.NON_RETRYABLE),
    ],
)
def test_what_the_end_of_a_child_means(state: RunState, expected: ErrorClass) -> None:
    simulator = started(Simulator(workflow({"a": {"job_type": "workflow"}}), {"a": ["hang"]}))
    (attempt,) = simulator.launched
    simulator.deliver(
        ChildEnded(
            step="a",
            token=attempt.token,
            state=state,
            error="it broke",
            number=1,
            started_at=EPOCH,
            finished_at=EPOCH,
        )
    )
    step = simulator.run.steps["a"]
    assert (step.state, step.error_class) == (StepState.FAILED, expected)
    assert step.result["state"] == state.value
    assert step.reason


def test_the_timeout_of_a_child_stops_it_once() -> None:
    definition = workflow({"a": {"job_type": "workflow", "timeout": "5s"}})
    simulator = started(Simulator(definition, {"a": ["hang"]}), until=60)
    assert sum(isinstance(effect, StopAttempt) for effect in simulator.effects) == 1
    step = simulator.run.steps["a"]
    assert (step.reason, step.error_class) == ("timed out", ErrorClass.RETRYABLE_TRANSIENT)
    assert step.attempt is not None
    assert step.attempt.state is AttemptState.TIMED_OUT


def test_the_end_of_an_earlier_back_off_is_none() -> None:
    steps = {"a": {"on_failure": "retry", "retry": {"delay": "10s"}}}
    simulator = started(Simulator(workflow(steps), {"a": [1, 1]}), until=12.5)
    second = simulator.run
    assert second.steps["a"].retries == 2
    simulator.deliver(RetryDue(step="a", retries=1))
    simulator.deliver(RetryDue(step="no such step", retries=1))
    assert simulator.run is second


def test_an_interval_begins_when_the_check_ended() -> None:
    loop = {"completion_check": {}, "max_iterations": 3, "interval": "10s"}
    simulator = started(Simulator(workflow({"a": loop}), {"a.check": [75, 75, 0]}), until=5)
    step = simulator.run.steps["a"]
    assert (step.state, step.phase, step.not_before) == (StepState.READY, Phase.NEXT, EPOCH + timedelta(seconds=12))
    assert not step.retrying
    timer = StartIterationTimer(step="a", iteration=1, due=EPOCH + timedelta(seconds=12))
    assert timer in simulator.effects
    assert effects_of(simulator.plan, simulator.run) == (timer, LaunchReady())
    # Of the interval after another iteration, or of no loop at all.
    before = simulator.run
    simulator.deliver(IterationDue(step="a", iteration=2))
    simulator.deliver(IterationDue(step="none", iteration=1))
    assert simulator.run is before
    run = simulator.go_on()
    assert run.state is RunState.SUCCEEDED
    begun = [(each.created_at - EPOCH).total_seconds() for each in simulator.launched if not each.check]
    assert begun == [0, 12, 24]


def test_a_run_that_was_loaded_asks_for_what_it_waits_for() -> None:
    steps: dict[str, dict[str, Any]] = {
        "backs_off": {"on_failure": "retry", "retry": {"delay": "60s"}},
        "asked": {"when": "true"},
        "kept": {"outputs": [{"name": "o", "path": "o"}]},
        "person": {"job_type": "approval", "timeout": "1h"},
        "child": {"job_type": "workflow", "timeout": "2h"},
        "loop": {"completion_check": {}, "max_iterations": 2, "timeout": "3h"},
        "waits": {"depends_on": ["child"], "when": "true"},
    }
    said: dict[str, list[int | str]] = {"backs_off": [1], "child": ["hang"], "loop": ["hang"]}
    # It is slow to find out what `asked` says.
    simulator = Simulator(
        workflow(steps, timeout=36_000),
        said,
        lasts=lambda name, number: 5000 if name == "asked.when" else 1,
    )
    run = started(simulator, until=1.01).run
    effects = effects_of(simulator.plan, run)
    later = {
        "backs_off": StartRetryTimer(step="backs_off", retries=1, due=EPOCH + timedelta(seconds=61)),
        "person": StartStepTimer(step="person", attempts=1, due=EPOCH + timedelta(hours=1)),
        "child": StartStepTimer(step="child", attempts=1, due=EPOCH + timedelta(hours=2)),
        "loop": StartStepTimer(step="loop", attempts=0, due=EPOCH + timedelta(hours=3)),
    }
    timers = {effect.step: effect for effect in effects if isinstance(effect, StartRetryTimer | StartStepTimer)}
    assert timers == later
    assert StartRunTimer(due=EPOCH + timedelta(hours=10)) in effects
    assert EvaluateStep(step="asked") in effects
    assert [each.attempt.step for each in effects if isinstance(each, CollectOutputs)] == ["kept"]
    assert LaunchReady() in effects
    assert len(effects) == len(later) + 4


def test_a_run_that_ends_asks_only_for_what_is_being_kept() -> None:
    steps = {"a": {"outputs": [{"name": "o", "path": "o"}]}, "b": {}}
    simulator = started(Simulator(workflow(steps, timeout=60), {"b": ["hang"]}), until=1.01)
    simulator.deliver(CancelRequested())
    assert [type(effect) for effect in effects_of(simulator.plan, simulator.run)] == [
        CollectOutputs,
        StopCollection,
    ]


def test_the_time_of_finally_steps_begins_when_the_daemon_hears_of_the_end() -> None:
    """Of the run's timeout nothing is asked any more; after a restart their own is the same."""
    last = {"f": {"when": "true"}, "g": {}}
    simulator = Simulator(workflow({"a": {}}, timeout=100, last=last, finally_timeout="1m"), {"g": ["hang"]})
    started(simulator, until=0.1)
    simulator.now = 50
    ended = simulator.live[simulator.launched[0].token]
    simulator.deliver(simulator._ended(ended, TreeCause.EXITED, exit_code=0))
    run = simulator.run
    assert run.finally_part == FinallyPart(state=RunState.SUCCEEDED, began_at=EPOCH + timedelta(seconds=50))
    timer = StartFinallyTimer(due=EPOCH + timedelta(seconds=110))
    assert timer in simulator.effects
    assert effects_of(simulator.plan, run) == (timer, EvaluateStep(step="f"), LaunchReady())
    simulator.deliver(RunTimeoutPassed())
    assert simulator.run is run
    simulator.deliver(PauseRequested())
    assert simulator.run is run
    run = simulator.go_on()
    assert (run.state, run.steps["g"].state) == (RunState.SUCCEEDED, StepState.CANCELLED)
    assert run.finally_part is not None
    ending = Ending(cause=EndingCause.TIMED_OUT, at=EPOCH + timedelta(seconds=110))
    assert run.finally_part.ending == ending
    assert (run.ending, run.error) == (None, "")


def test_a_run_that_is_over_or_has_not_begun_asks_for_nothing() -> None:
    simulator = Simulator(workflow({"a": {}}, timeout=60))
    assert not effects_of(simulator.plan, simulator.run)
    simulator.play()
    assert not effects_of(simulator.plan, simulator.run)
