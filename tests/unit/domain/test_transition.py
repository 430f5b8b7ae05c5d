"""The pure core: properties of every workflow and every order of events, and special cases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toban.definition import ErrorClass, JobType
from toband.domain.attempt_model import AttemptState, Orphans, TreeCause, TreeEnding
from toband.domain.error_class import classify
from toband.domain.run_events import (
    AttemptEnded,
    AttemptLost,
    AttemptStarted,
    AttemptVoided,
    CancelRequested,
    Event,
    LaunchAttempt,
    PauseRequested,
    RunStarted,
    RunTimeoutPassed,
    not_started,
)
from toband.domain.run_model import Phase, RunState, StepState
from toband.domain.state_table import PHASES, RUN_MOVES
from toband.domain.transition import transition

from .simulator import EPOCH, Simulator
from .workflow_builder import step as build_step
from .workflow_builder import workflow

OUTCOMES = st.one_of(
    st.sampled_from([0, 1, 3, 75, 78, 127]),
    st.sampled_from(
        [
            "hang",
            "hang_ignoring_term",
            "lost",
            "lost_unproved",
            "limit",
            "nostart",
            "void",
            "outside",
        ]
    ),
)


@st.composite
def scenarios(draw: st.DrawFn) -> Simulator:
    """A DAG of up to seven steps and two finally steps, what each of its processes does, and perhaps two cancels."""
    count = draw(st.integers(1, 7))
    steps: dict[str, dict[str, Any]] = {}
    outcomes: dict[str, list[int | str]] = {}
    run_timeout = draw(st.none() | st.integers(2, 30))
    for number in range(count):
        name = f"s{number}"
        steps[name] = {
            "depends_on": sorted(draw(st.sets(st.sampled_from(sorted(steps)), max_size=3))) if steps else [],
            "on_failure": draw(st.sampled_from(["abort", "continue"])),
            "on_lost": draw(st.sampled_from(["fail", "rerun"])),
            "success_codes": draw(st.sampled_from([[0], [0, 3], [1]])),
            "timeout": draw(st.none() | st.integers(1, 12)),
        }
        outcomes[name] = draw(st.lists(OUTCOMES, max_size=3))
        if run_timeout is None and steps[name]["timeout"] is None:
            # Nothing would ever end a step that hangs for ever: give it a timeout.
            steps[name]["timeout"] = 12
    last: dict[str, dict[str, Any]] = {}
    for number in range(draw(st.integers(0, 2))):
        last[f"f{number}"] = {
            "depends_on": sorted(last) if draw(st.booleans()) else [],
            "on_failure": draw(st.sampled_from(["abort", "continue"])),
            "timeout": draw(st.none() | st.integers(1, 12)),
        }
        outcomes[f"f{number}"] = draw(st.lists(OUTCOMES, max_size=3))
    definition = workflow(
        steps,
        concurrency=draw(st.none() | st.integers(1, 3)),
        timeout=run_timeout,
        last=last,
        finally_timeout=draw(st.integers(1, 30)),
    )
    simulator = Simulator(definition, outcomes)
    cancel = draw(st.none() | st.floats(-1, 20, allow_nan=False))
    if cancel is not None:
        simulator.at(cancel, CancelRequested())
        simulator.at(cancel + draw(st.floats(0, 20, allow_nan=False)), CancelRequested(ends_finally=True))
    return simulator


@settings(max_examples=150)
@given(scenarios())
def test_every_run_ends_and_every_rule_holds(simulator: Simulator) -> None:
    run = simulator.play()
    assert run.state.terminal
    assert simulator.forgotten == 1
    assert not simulator.live, "a process was left behind"
    for step in run.steps.values():
        assert step.state.terminal
    failed_for_good = any(
        step.state is StepState.FAILED and simulator.plan.steps[step.id].on_failure.value == "abort"
        for step in run.steps.values()
        if step.id not in simulator.plan.finally_steps
    )
    if run.started_at is not None and simulator.plan.finally_steps:
        assert run.finally_part is not None, "its finally steps never ran"
        assert run.finally_part.state is run.state
    if run.state is RunState.SUCCEEDED:
        assert not failed_for_good
        others = [step for step in run.steps.values() if step.id not in simulator.plan.finally_steps]
        assert all(step.state in (StepState.SUCCEEDED, StepState.FAILED) for step in others)
    if run.state is RunState.FAILED:
        assert failed_for_good
        assert run.error
    if run.state is RunState.TIMED_OUT:
        assert run.timeout is not None
    tokens = [attempt.token for attempt in simulator.launched]
    assert len(tokens) == len(set(tokens)), "a token was launched twice"


def stray_events(token: str) -> st.SearchStrategy[Event]:
    ending = TreeEnding(cause=TreeCause.EXITED, proved_empty=True)
    ended = AttemptEnded(step="s0", token=token, ending=ending, started_at=EPOCH, finished_at=EPOCH, exit_code=0)
    return st.sampled_from(
        [
            RunStarted(),
            AttemptStarted(step="s0", token=token, pid=9, started_at=EPOCH),
            ended,
            AttemptLost(step="s0", token=token, error="x", orphans=Orphans.NONE),
            AttemptVoided(step="s0", token=token),
            CancelRequested(),
            RunTimeoutPassed(),
            replace(ended, step="no such step"),
        ]
    )


@settings(max_examples=60)
@given(scenarios(), st.data())
def test_a_terminal_run_never_changes(simulator: Simulator, data: st.DataObject) -> None:
    run = simulator.play()
    tokens = [attempt.token for attempt in simulator.launched] or ["none"]
    for _ in range(5):
        event = data.draw(stray_events(data.draw(st.sampled_from(tokens))))
        after, effects = transition(simulator.plan, run, event, at=EPOCH, ids=simulator.ids)
        assert after is run
        assert not effects


@settings(max_examples=60)
@given(scenarios(), st.data())
def test_reports_of_a_superseded_token_change_nothing(simulator: Simulator, data: st.DataObject) -> None:
    simulator.deliver(RunStarted())
    run = simulator.run
    event = data.draw(stray_events("a token of long ago").filter(lambda e: hasattr(e, "token")))
    after, effects = transition(simulator.plan, run, event, at=EPOCH, ids=simulator.ids)
    assert after is run
    assert not effects


def test_a_repeated_start_or_cancel_changes_nothing() -> None:
    simulator = Simulator(workflow({"a": {}}), {"a": ["hang"]})
    simulator.deliver(RunStarted())
    started = simulator.run
    simulator.deliver(RunStarted())
    assert simulator.run is started
    simulator.deliver(CancelRequested(reason="enough"))
    cancelled = simulator.run
    assert cancelled.error == "cancelled: enough"
    assert cancelled.state is RunState.RUNNING
    simulator.deliver(CancelRequested())
    assert simulator.run is cancelled


EVERY_PHASE: dict[str, dict[str, Any]] = {
    "works": {"on_failure": "retry", "max_retries": 5, "retry": {"delay": 1}},
    "collects": {"outputs": [{"name": "o", "path": "o"}]},
    "loops": {"completion_check": {}, "max_iterations": 9, "interval": 1, "on_failure": "retry"},
    "asks": {"job_type": "approval", "when": "true", "timeout": 2, "on_failure": "retry"},
    "waits": {"job_type": "wait", "wait": {"event": "e"}, "timeout": 2, "on_failure": "retry"},
    "many": {"for_each": "[1, 2]"},
    "later": {"depends_on": ["works"]},
}


def test_a_cancel_reaches_a_step_in_every_state_and_phase() -> None:
    met: set[tuple[StepState, Phase]] = set()
    moments = [second + part for second in range(12) for part in (0.0001, 0.001, 0.005, 0.02, 0.05, 0.2, 0.4, 0.6, 0.8)]
    for paused_at in (100, 0.5):
        for moment in moments:
            outcomes: dict[str, list[int | str]] = {"works": [1, 1, "hang"], "loops.check": [75, 1, 75, 75, 75]}
            simulator = Simulator(workflow(EVERY_PHASE), outcomes)
            simulator.at(0, RunStarted())
            simulator.at(paused_at, PauseRequested())
            simulator.go_on(until=moment)
            met |= {(step.state, step.phase) for step in simulator.run.steps.values() if not step.state.terminal}
            launched = len(simulator.launched)
            simulator.deliver(CancelRequested())
            run = simulator.go_on()
            assert run.state is RunState.CANCELLED
            assert len(simulator.launched) == launched, "a step began after the cancel"
            assert not simulator.live
    assert met == {(state, phase) for state, phases in PHASES.items() for phase in phases}


def test_a_run_in_the_queue_never_ends_well() -> None:
    """What has no beginning has not succeeded, failed or timed out."""
    after = {after for before, after in RUN_MOVES if before is RunState.PENDING}
    assert after == {RunState.RUNNING, RunState.CANCELLED}
    simulator = Simulator(workflow({"a": {}}))
    run = simulator.run
    simulator.deliver(RunTimeoutPassed())
    assert simulator.run is run
    simulator.deliver(CancelRequested())
    assert (simulator.run.state, simulator.run.started_at) == (RunState.CANCELLED, None)


def test_an_error_of_an_earlier_attempt_is_not_left_in_a_step_that_succeeded() -> None:
    simulator = Simulator(workflow({"a": {"on_failure": "retry"}}), {"a": [1, 0]})
    run = simulator.play()
    assert (run.state, run.error) == (RunState.SUCCEEDED, "")
    step = run.steps["a"]
    assert (step.state, step.reason, step.error_class, step.attempts) == (StepState.SUCCEEDED, "", None, 2)


def test_a_void_attempt_is_launched_again_under_a_new_token() -> None:
    simulator = Simulator(workflow({"a": {}}), {"a": ["hang", "hang"]})
    simulator.deliver(RunStarted())
    first = simulator.launched[0]
    simulator.deliver(AttemptVoided(step="a", token=first.token))
    second = simulator.launched[1]
    assert second.token != first.token
    assert (second.id, second.number, second.ordinal) == (first.id, first.number, first.ordinal)
    simulator.deliver(AttemptVoided(step="a", token=first.token))
    assert len(simulator.launched) == 2


def test_a_chain_needs_one_transition_per_step() -> None:
    simulator = Simulator(workflow({"a": {}, "b": {"depends_on": ["a"]}}))
    simulator.deliver(RunStarted())
    ended = AttemptEnded(
        step="a",
        token=simulator.launched[0].token,
        ending=TreeEnding(cause=TreeCause.EXITED, proved_empty=True),
        started_at=EPOCH,
        finished_at=EPOCH,
        exit_code=0,
        outputs={"k": "v"},
        result={"n": 1},
    )
    after, effects = transition(simulator.plan, simulator.run, ended, at=EPOCH, ids=simulator.ids)
    assert [type(effect) for effect in effects] == [LaunchAttempt]
    step = after.steps["a"]
    assert step.attempt is not None
    assert step.attempt.state is AttemptState.COMPLETED
    assert (step.outputs, step.result, step.exit_code) == ({"k": "v"}, {"n": 1}, 0)
    assert after.current_step == "b"


@pytest.mark.parametrize(
    ("job_type", "exit_code", "expected"),
    [
        (JobType.SHELL, 1, ErrorClass.RETRYABLE_TRANSIENT),
        (JobType.SHELL, 64, ErrorClass.NON_RETRYABLE),
        (JobType.SHELL, 75, ErrorClass.RETRYABLE_TRANSIENT),
        (JobType.SHELL, 78, ErrorClass.NON_RETRYABLE),
        (JobType.SHELL, 126, ErrorClass.NON_RETRYABLE),
        (JobType.SHELL, 127, ErrorClass.NON_RETRYABLE),
        (JobType.EXEC, 127, ErrorClass.RETRYABLE_TRANSIENT),
        (JobType.PYTHON, 78, ErrorClass.NON_RETRYABLE),
    ],
)
def test_classes_of_failures(job_type: JobType, exit_code: int, expected: ErrorClass) -> None:
    ended = AttemptEnded(
        step="a",
        token="t",
        ending=TreeEnding(cause=TreeCause.EXITED),
        started_at=EPOCH,
        finished_at=EPOCH,
        exit_code=exit_code,
    )
    assert classify(build_step("a", {"job_type": job_type.value}), ended) is expected


def test_what_could_not_start_is_not_retryable() -> None:
    simulator = Simulator(workflow({"a": {}}), {"a": ["hang"]})
    simulator.deliver(RunStarted())
    event = not_started(simulator.launched[0], "cannot start it: not found", EPOCH)
    assert classify(build_step("a", {}), event) is ErrorClass.NON_RETRYABLE
    simulator.deliver(event)
    assert simulator.run.error == "step a failed: cannot start it: not found"


def ended(simulator: Simulator, **changes: object) -> AttemptEnded:
    attempt = simulator.launched[0]
    event = AttemptEnded(
        step="a",
        token=attempt.token,
        ending=TreeEnding(cause=TreeCause.EXITED, proved_empty=True),
        started_at=EPOCH,
        finished_at=EPOCH,
        exit_code=0,
    )
    return replace(event, **changes)  # type: ignore[arg-type]


def test_a_step_whose_outputs_were_lost_has_not_succeeded() -> None:
    simulator = Simulator(workflow({"a": {}}), {"a": ["hang"]})
    simulator.deliver(RunStarted())
    simulator.deliver(ended(simulator, error="no space for its outputs"))
    step = simulator.run.steps["a"]
    assert (step.state, step.error_class) == (StepState.FAILED, ErrorClass.NON_RETRYABLE)
    assert simulator.run.error == "step a failed: no space for its outputs"


def test_a_failure_at_a_limit_says_so_and_a_success_does_not() -> None:
    limit = TreeEnding(cause=TreeCause.EXITED, proved_empty=True, limit="memory: 64MiB")
    for code, error in (
        (1, "step a failed: exit code 1; it reached its limit of memory: 64MiB"),
        (0, ""),
    ):
        simulator = Simulator(workflow({"a": {}}), {"a": ["hang"]})
        simulator.deliver(RunStarted())
        simulator.deliver(ended(simulator, ending=limit, exit_code=code))
        assert simulator.run.error == error


def test_a_long_error_is_cut_wherever_it_is_kept() -> None:
    """A process can say anything, and what it says comes again in every list."""
    steps = {"a": {"on_failure": "retry", "max_retries": 0, "on_failure_exhausted": "continue"}}
    simulator = Simulator(workflow(steps))
    simulator.deliver(RunStarted())
    attempt = simulator.run.steps["a"].attempt
    assert attempt is not None
    simulator.deliver(not_started(attempt, "x" * 100_000_000 + "end", EPOCH))
    step = simulator.run.steps["a"]
    assert step.attempt is not None
    texts = [step.reason, step.attempt.error, *(letter.error for letter in simulator.letters)]
    assert len(texts) == 3
    for text in texts:
        assert len(text) < 5000
        assert text.endswith("xend")


def test_a_run_is_over_when_its_last_step_was() -> None:
    """Whoever hears of it a day later does not make it a day longer."""
    simulator = Simulator(workflow({"a": {}, "b": {"depends_on": ["a"]}}), {"a": ["hang"]})
    simulator.deliver(RunStarted())
    simulator.now = 86_400
    then = EPOCH + timedelta(seconds=60)
    simulator.deliver(ended(simulator, exit_code=1, finished_at=then))
    run = simulator.run
    assert (run.finished_at, run.steps["b"].finished_at) == (then, then)
    assert run.ending is not None
    assert run.ending.at == then


def test_a_timeout_that_passed_unseen_passed_when_it_did() -> None:
    simulator = Simulator(workflow({"a": {}, "b": {"depends_on": ["a"]}}, timeout=100), {"a": ["hang"]})
    simulator.deliver(RunStarted())
    simulator.now = 86_400
    simulator.deliver(RunTimeoutPassed())
    simulator.deliver(ended(simulator, finished_at=EPOCH + timedelta(seconds=60)))
    run = simulator.run
    assert run.state is RunState.TIMED_OUT
    assert run.finished_at == EPOCH + timedelta(seconds=100)
