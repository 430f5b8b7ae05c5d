"""`for_each` over many items: the cost of one event does not grow with them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

import pytest

from toband.domain.attempt_model import TreeCause, TreeEnding
from toband.domain.plan import Plan
from toband.domain.run_events import (
    AttemptEnded,
    AttemptStarted,
    LaunchAttempt,
    RunStarted,
    StepEvaluated,
)
from toband.domain.run_model import Run, RunState, Trigger
from toband.domain.transition import Ids, transition

from .simulator import EPOCH
from .workflow_builder import workflow


class Calls:
    """How many functions were called, those of C included: a measure of work that no busy machine disturbs."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, arg: object) -> None:
        self.count += event in ("call", "c_call")


def per_event(count: int, given: Mapping[str, Any], concurrency: int | None = None) -> float:
    """Calls for one event of a run of so many items, from the launch of the first to the end of the last."""
    plan = Plan(workflow({"each": {"for_each": "params.xs", **given}}, concurrency=concurrency))
    made = iter(range(sys.maxsize))
    ids = Ids(new_id=lambda: f"id{next(made)}", new_token=lambda: f"token{next(made)}")
    run = plan.new_run(run_id="r", version=1, params={}, trigger=Trigger.API, caller="", at=EPOCH)
    launched: list[LaunchAttempt] = []

    def happens(run: Run, event: Any) -> Run:
        after, effects = transition(plan, run, event, at=EPOCH, ids=ids)
        launched.extend(effect for effect in effects if isinstance(effect, LaunchAttempt))
        return after

    run = happens(run, RunStarted())
    run = happens(run, StepEvaluated(step="each", items=tuple(range(count))))
    events = 0
    with Calls() as calls:
        # The last one closes the group and the run, which is done once.
        while events < 2 * (count - 1):
            attempt = launched.pop(0).attempt
            run = happens(run, AttemptStarted(step=attempt.step, token=attempt.token, pid=1, started_at=EPOCH))
            run = happens(
                run,
                AttemptEnded(
                    step=attempt.step,
                    token=attempt.token,
                    exit_code=0,
                    started_at=EPOCH,
                    finished_at=EPOCH,
                    ending=TreeEnding(cause=TreeCause.EXITED),
                ),
            )
            events += 2
    assert run.steps["each"].ended == count - 1
    assert run.state is RunState.RUNNING
    return calls.count / events


@pytest.mark.parametrize(
    ("given", "concurrency"),
    [
        pytest.param({}, None, id="all-at-once"),
        pytest.param({"max_parallel": 8}, None, id="max-parallel"),
        pytest.param({}, 8, id="concurrency"),
        pytest.param({"on_failure": "continue"}, 8, id="continue"),
    ],
)
def test_an_event_costs_the_same_among_many_items(given: dict[str, Any], concurrency: int | None) -> None:
    few, many = per_event(50, given, concurrency), per_event(1500, given, concurrency)
    assert many <= 1.3 * few
