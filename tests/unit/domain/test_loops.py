"""Completion checks, collected outputs and instances: their state in a run, and the effects that they request."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from toban.definition import ErrorClass
from toband.domain import run_texts
from toband.domain.attempt_model import AttemptState
from toband.domain.run_events import (
    CancelRequested,
    CollectionFailed,
    CollectionStopped,
    CollectOutputs,
    Event,
    KeepDeadLetter,
    LaunchAttempt,
    OutputsCollected,
    RunStarted,
    RunTimeoutPassed,
    StartStepTimer,
    StepEvaluated,
    StepTimeoutPassed,
    StopCollection,
)
from toband.domain.run_model import Artifact, Phase, RunState, StepState

from .case_player import simulate
from .simulator import EPOCH, Simulator
from .workflow_builder import workflow

OUTPUTS = [{"name": "o", "path": "o"}]


def played(steps: dict[str, dict[str, Any]], **outcomes: list[int | str]) -> Simulator:
    said = {name.replace("_check", ".check"): words for name, words in outcomes.items()}
    return simulate({"steps": steps, "outcomes": said})


def test_attempts_of_a_loop_are_named_and_numbered() -> None:
    loop = {"completion_check": {}, "max_iterations": 3, "max_retries": 1}
    simulator = played({"a": loop}, a=[1, 0, 0], a_check=[75, "killed", 0])
    told = [(each.step, each.number, each.iteration, each.ordinal) for each in simulator.launched]
    assert told == [
        ("a", 1, 1, 0),
        ("a", 2, 1, 1),
        ("a.check", 1, 1, 2),
        ("a", 3, 2, 3),
        ("a.check", 2, 2, 4),
        ("a.check", 3, 2, 5),
    ]
    assert [each.owner for each in simulator.launched] == ["a"] * 6
    step = simulator.run.steps["a"]
    assert (step.attempts, step.checks, step.iteration) == (3, 3, 2)


def test_only_a_verdict_is_shown_to_the_next_iteration() -> None:
    loop = {"completion_check": {}, "max_iterations": 3, "max_retries": 1}
    simulator = played({"a": loop}, a_check=[75, "killed", 75, 0])
    checks = [each for each in simulator.launched if each.check]
    # The one that was killed said nothing, and the one that was content had nothing to say to anybody.
    assert simulator.run.steps["a"].check_token == checks[2].token


def test_a_step_is_checking_while_its_check_runs() -> None:
    simulator = Simulator(workflow({"a": {"completion_check": {}, "max_iterations": 2}}), {"a.check": ["hang"]})
    simulator.at(0, RunStarted())
    run = simulator.go_on(until=3)
    step = run.steps["a"]
    assert (step.state, step.phase) == (StepState.CHECKING, Phase.CHECK)
    assert step.attempt is not None
    assert step.attempt.check
    assert run.current_step == "a"
    # What the step itself left stays, whatever its check does.
    assert step.exit_code == 0


def test_the_result_of_a_loop_is_that_of_its_last_iteration() -> None:
    loop = {"completion_check": {}, "max_iterations": 3, "success_codes": [0, 3]}
    simulator = played({"a": loop}, a=[3, 0, 3], a_check=[75, 75, 0])
    assert simulator.run.steps["a"].exit_code == 3


def test_outputs_are_kept_after_every_iteration() -> None:
    loop = {"completion_check": {}, "max_iterations": 3, "outputs": OUTPUTS}
    simulator = played({"a": loop}, a_check=[75, 0])
    asked = [effect for effect in simulator.effects if isinstance(effect, CollectOutputs)]
    assert [(each.attempt.iteration, each.final) for each in asked] == [(1, False), (2, False)]
    assert simulator.run.steps["a"].artifacts == (Artifact(name="o", path="a/o"),)


def test_without_a_check_what_is_missing_will_not_come() -> None:
    simulator = played({"a": {"outputs": OUTPUTS}})
    (asked,) = [effect for effect in simulator.effects if isinstance(effect, CollectOutputs)]
    assert asked.final
    assert simulator.run.steps["a"].artifacts == (Artifact(name="o", path="a/o"),)


def test_nothing_is_collected_where_nothing_is_kept() -> None:
    simulator = played({"a": {"completion_check": {}, "max_iterations": 2}, "b": {}})
    assert not [effect for effect in simulator.effects if isinstance(effect, CollectOutputs)]


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (CancelRequested(), RunState.CANCELLED),
        (RunTimeoutPassed(), RunState.TIMED_OUT),
    ],
)
def test_a_run_that_ends_stops_what_is_being_collected(event: Event, state: RunState) -> None:
    simulator = Simulator(workflow({"a": {"outputs": OUTPUTS}, "b": {}}), {"b": ["hang"]})
    simulator.at(0, RunStarted())
    attempt = simulator.go_on(until=1.01).steps["a"].attempt
    assert attempt is not None
    simulator.deliver(CollectionStopped(step="a", token=attempt.token))
    assert not simulator.run.steps["a"].state.terminal, "nobody had asked for it"
    simulator.deliver(event)
    assert StopCollection(attempt=attempt) in simulator.effects
    simulator.deliver(CollectionStopped(step="a", token="of long ago"))
    assert not simulator.run.steps["a"].state.terminal
    simulator.deliver(CollectionStopped(step="a", token=attempt.token))
    assert simulator.run.steps["a"].state is StepState.CANCELLED
    assert simulator.run.ending is not None
    assert simulator.run.steps["a"].reason == run_texts.stopped(simulator.run)
    simulator.play()
    assert simulator.run.state is state


def test_a_collection_of_an_earlier_attempt_is_none() -> None:
    simulator = Simulator(workflow({"a": {"outputs": OUTPUTS}}))
    simulator.at(0, RunStarted())
    collecting = simulator.go_on(until=1.01)
    assert (collecting.steps["a"].state, collecting.steps["a"].phase) == (
        StepState.RUNNING,
        Phase.COLLECT,
    )
    simulator.deliver(OutputsCollected(step="a", token="of long ago"))
    simulator.deliver(CollectionFailed(step="a", token="of long ago", error="x"))
    simulator.deliver(OutputsCollected(step="no such step", token="x"))
    assert simulator.run is collecting
    assert simulator.go_on().state is RunState.SUCCEEDED


def test_a_missing_output_says_so() -> None:
    simulator = played({"a": {"outputs": OUTPUTS}}, a=["missing"])
    step = simulator.run.steps["a"]
    assert step.reason == 'output "o" is missing'
    assert simulator.run.error == 'step a failed: output "o" is missing'
    assert step.attempt is not None
    assert step.attempt.state is AttemptState.COMPLETED, "its process did nothing wrong"


def test_an_optional_output_may_be_missing_when_the_check_is_content() -> None:
    optional = [{"name": "o", "path": "o", "optional": True}]
    simulator = played({"a": {"completion_check": {}, "max_iterations": 2, "outputs": optional}}, a=["missing"])
    assert simulator.run.state is RunState.SUCCEEDED


def test_exhausted_says_why() -> None:
    loop = {"completion_check": {}, "max_iterations": 5, "stop_when_unchanged": "output"}
    still = played({"a": loop}, a=[0, "same"], a_check=[75, 75])
    assert "nothing changed" in still.run.steps["a"].reason
    assert "2 iterations" in still.run.steps["a"].reason
    enough = played({"a": {"completion_check": {}, "max_iterations": 2}}, a_check=[75, 75])
    assert "2 iterations" in enough.run.steps["a"].reason
    assert "nothing changed" not in enough.run.steps["a"].reason
    assert enough.run.error.startswith("step a failed: ")


def test_the_timer_of_a_loop_is_set_once() -> None:
    loop = {"completion_check": {}, "max_iterations": 3, "timeout": "1h", "max_retries": 1}
    simulator = played({"a": loop}, a=[1, 0, 0], a_check=[75, 0])
    timers = [effect for effect in simulator.effects if isinstance(effect, StartStepTimer)]
    assert [timer.due for timer in timers] == [EPOCH + timedelta(hours=1)]


def test_the_timeout_of_a_loop_is_told_as_one() -> None:
    loop = {"completion_check": {}, "max_iterations": 9, "timeout": "20s", "on_failure": "retry"}
    simulator = played({"a": loop}, a=[0, "hang"], a_check=[75])
    step = simulator.run.steps["a"]
    assert (step.reason, step.error_class) == ("timed out", ErrorClass.RETRYABLE_TRANSIENT)
    assert step.attempt is not None
    assert step.attempt.state is AttemptState.TIMED_OUT


def test_a_dead_letter_tells_what_was_tried() -> None:
    simulator = played({"a": {"on_failure": "retry", "max_retries": 2}}, a=[1, 1, 3])
    (letter,) = simulator.letters
    assert letter.run_id == "r"
    assert (letter.workflow, letter.step, letter.attempts) == ("w", "a", 3)
    assert (letter.error, letter.error_class) == ("exit code 3", ErrorClass.RETRYABLE_TRANSIENT)
    assert letter.attempt_id == simulator.launched[-1].id
    assert letter.created_at == simulator.run.finished_at


def test_a_dead_letter_of_a_step_that_was_never_tried() -> None:
    simulator = played({"a": {"on_failure": "retry", "when": "1/0"}})
    (letter,) = simulator.letters
    assert (letter.attempt_id, letter.attempts) == ("", 0)


def test_instances_stand_behind_their_step() -> None:
    simulator = simulate({"steps": {"a": {"for_each": '["x", {"os": "y"}]'}, "b": {}}})
    run = simulator.run
    first, second = run.steps["a[0]"], run.steps["a[1]"]
    assert (first.item, second.item) == ("x", {"os": "y"})
    assert [(each.parent, each.index, each.instance) for each in (first, second)] == [
        ("a", 0, 0),
        ("a", 0, 1),
    ]
    ordered = sorted(run.steps.values(), key=lambda each: each.position)
    assert [each.id for each in ordered] == ["a", "a[0]", "a[1]", "b"]
    group = run.steps["a"]
    assert (group.instances, group.attempt) == (2, None)
    assert group.finished_at == max(first.finished_at or EPOCH, second.finished_at or EPOCH)
    assert run.total_steps == 2


def test_a_group_tells_what_failed() -> None:
    simulator = simulate(
        {
            "steps": {"a": {"for_each": "[1, 2, 3]", "on_failure": "skip"}},
            "outcomes": {"a[1]": [3], "a[2]": [4]},
        }
    )
    reason = simulator.run.steps["a"].reason
    assert "a[1]" in reason
    assert "exit code 3" in reason
    assert "2 of 3" in reason
    assert simulator.run.error.startswith("step a failed: ")


def test_for_each_is_settled_once() -> None:
    simulator = Simulator(workflow({"a": {"for_each": "[1, 2]"}}))
    simulator.at(0, RunStarted())
    settled = simulator.go_on(until=0.5)
    assert len(settled.steps) == 3
    simulator.deliver(StepEvaluated(step="a", items=(1, 2, 3)))
    simulator.deliver(StepEvaluated(step="no such step"))
    assert simulator.run is settled


@pytest.mark.parametrize("count", [1, 400])
def test_a_launch_is_told_once_for_each_instance(count: int) -> None:
    simulator = simulate({"concurrency": 7, "steps": {"a": {"for_each": str(list(range(count))), "max_parallel": 5}}})
    launches = [effect for effect in simulator.effects if isinstance(effect, LaunchAttempt)]
    assert [each.attempt.step for each in launches] == [f"a[{n}]" for n in range(count)]
    assert simulator.run.state is RunState.SUCCEEDED


def test_a_stale_timeout_changes_nothing() -> None:
    child = {"job_type": "workflow", "timeout": "30s", "max_retries": 1}
    simulator = Simulator(workflow({"a": child}), {"a": ["child_failed", "hang"]})
    simulator.at(0, RunStarted())
    second = simulator.go_on(until=10)
    assert second.steps["a"].attempts == 2
    simulator.deliver(StepTimeoutPassed(step="a", attempts=1))
    simulator.deliver(StepTimeoutPassed(step="no such step", attempts=1))
    assert simulator.run is second


def test_a_letter_goes_with_the_change_that_ends_the_step() -> None:
    simulator = Simulator(workflow({"a": {"on_failure": "retry", "max_retries": 0}}), {"a": [1]})
    simulator.play()
    kinds = [type(effect) for effect in simulator.effects]
    assert kinds.count(KeepDeadLetter) == 1


def test_a_timeout_of_a_loop_that_is_told_twice_is_told_once() -> None:
    loop = {"completion_check": {}, "max_iterations": 2, "timeout": "4s"}
    simulator = Simulator(workflow({"a": loop}), {"a": ["hang_ignoring_term"]})
    simulator.at(0, RunStarted())
    told = simulator.go_on(until=5)
    assert told.steps["a"].state is StepState.RUNNING
    simulator.deliver(StepTimeoutPassed(step="a", attempts=0))
    assert simulator.run is told
    assert simulator.go_on().steps["a"].reason == "timed out"
