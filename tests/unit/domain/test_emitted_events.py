"""Events that a transition of a run emits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from toban.definition import ErrorClass
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.emitted_events import PARAMS_MOST, Emitted, EventSource, announced
from toband.domain.plan import Plan
from toband.domain.run_model import Run, RunState, StepRun, StepState, Trigger

from .workflow_builder import workflow

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
RUN = Run(
    id="r",
    workflow="w",
    version=1,
    number=7,
    created_at=NOW,
    started_at=NOW,
    state=RunState.RUNNING,
    trigger=Trigger.SCHEDULE,
    params={"day": "monday"},
    touched=frozenset(),
)
DEFINED = workflow({"s": {}})
PLAN = Plan(replace(DEFINED, title="夜間バッチ", steps={"s": replace(DEFINED.steps["s"], name="集計")}))


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (RunState.SUCCEEDED, ["RUN_SUCCEEDED"]),
        (RunState.FAILED, ["RUN_FAILED"]),
        (RunState.TIMED_OUT, ["RUN_FAILED"]),
        (RunState.CANCELLED, []),
        (RunState.RUNNING, []),
    ],
)
def test_the_end_of_a_run(state: RunState, told: list[str]) -> None:
    after = replace(RUN, state=state, error="why", finished_at=NOW + timedelta(seconds=1))
    found = announced(PLAN, RUN, after)
    assert [event_type for event_type, _, _ in found] == told
    for _, step, payload in found:
        assert step == ""
        assert payload == {
            "run_id": "r",
            "workflow": "w",
            "workflow_title": "夜間バッチ",
            "number": 7,
            "trigger": "schedule",
            "params": {"day": "monday"},
            "state": state.value,
            "error": "why",
            "failed_steps": 0,
            "incomplete_steps": 0,
            "started_at": "2026-03-02T12:00:00+00:00",
            "finished_at": "2026-03-02T12:00:01+00:00",
        }
    assert announced(PLAN, after, after) == []


def test_parameters_that_are_too_large_are_left_out() -> None:
    run = replace(RUN, params={"text": "x" * PARAMS_MOST})
    ((_, _, payload),) = announced(PLAN, run, replace(run, state=RunState.SUCCEEDED))
    assert (payload["params"], payload["params_left_out"]) == ({}, True)


def test_a_step_that_failed_for_good_and_not_each_of_its_instances() -> None:
    attempt = Attempt(
        id="a",
        run_id="r",
        step="s",
        number=2,
        ordinal=1,
        token="t",
        state=AttemptState.FAILED,
        created_at=NOW,
        error="exit code 3",
    )
    waiting = StepRun(id="s", index=0, state=StepState.RUNNING)
    instance = StepRun(id="s[0]", index=0, parent="s", instance=0, state=StepState.FAILED)
    failed = replace(
        waiting,
        state=StepState.FAILED,
        attempts=2,
        exit_code=3,
        attempt=attempt,
        error_class=ErrorClass.NON_RETRYABLE,
        reason="exit code 3",
    )
    before = replace(RUN, steps={"s": waiting})
    after = replace(RUN, steps={"s": failed, "s[0]": instance}, touched=frozenset({"s", "s[0]"}))
    ((event_type, step, payload),) = announced(PLAN, before, after)
    assert (event_type, step) == ("STEP_FAILED", "s")
    assert payload == {
        "run_id": "r",
        "workflow": "w",
        "workflow_title": "夜間バッチ",
        "number": 7,
        "trigger": "schedule",
        "params": {"day": "monday"},
        "step": "s",
        "step_title": "集計",
        "reason": "exit code 3",
        "exit_code": 3,
        "error_class": "NON_RETRYABLE",
        "attempts": 2,
        "error": "exit code 3",
    }
    assert announced(PLAN, after, after) == []


def test_what_conditions_see_of_an_event() -> None:
    event = Emitted(id="e", type="T", payload={"a": 1}, at=NOW, source=EventSource.STEP, depth=2)
    assert event.seen() == {
        "id": "e",
        "type": "T",
        "payload": {"a": 1},
        "source": "step",
        "source_run": "",
        "source_step": "",
        "depth": 2,
        "at": "2026-03-02T12:00:00+00:00",
        "coalesced": 1,
    }
