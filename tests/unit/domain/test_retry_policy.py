"""Retry policy: the class of a failure, whether it is retried, and the backoff."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toban.definition import ErrorClass
from toband.domain.attempt_model import TreeCause, TreeEnding
from toband.domain.error_class import classify
from toband.domain.retry_policy import back_off, may_retry, wait_asked
from toband.domain.run_events import AttemptEnded, RunStarted, StartRetryTimer
from toband.domain.run_model import StepRun

from .simulator import EPOCH, Simulator
from .workflow_builder import step, workflow

TRANSIENT, LIMITED = ErrorClass.RETRYABLE_TRANSIENT, ErrorClass.RETRYABLE_RATE_LIMIT
MIDDLE = 0.5
"""The chance that neither adds to a delay nor takes from it."""


def ended(exit_code: int | None = 1, cause: TreeCause = TreeCause.EXITED, **outputs: str) -> AttemptEnded:
    return AttemptEnded(
        step="a",
        token="t",
        ending=TreeEnding(cause=cause),
        started_at=EPOCH,
        finished_at=EPOCH,
        exit_code=exit_code,
        outputs={f"toban.{name}": text for name, text in outputs.items()},
    )


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (ended(3), "RETRYABLE_RATE_LIMIT"),
        (ended(78), "RETRYABLE_TRANSIENT"),
        (ended(64), "NON_RETRYABLE"),
        (ended(3, error_class="FATAL"), "FATAL"),
        (ended(3, error_class=" NON_RETRYABLE \n"), "NON_RETRYABLE"),
        (ended(3, error_class="SOMETHING_ELSE"), "RETRYABLE_RATE_LIMIT"),
        (ended(1, error_class=""), "RETRYABLE_TRANSIENT"),
        (ended(None, cause=TreeCause.TIMEOUT, error_class="FATAL"), "RETRYABLE_TRANSIENT"),
        (ended(78, cause=TreeCause.TIMEOUT), "RETRYABLE_TRANSIENT"),
        (ended(None, cause=TreeCause.LOOP_TIMEOUT), "RETRYABLE_TRANSIENT"),
        (ended(0, cause=TreeCause.IDLE_TIMEOUT, error_class="FATAL"), "RETRYABLE_TRANSIENT"),
        (ended(None, cause=TreeCause.LIMIT), "RETRYABLE_TRANSIENT"),
        (replace(ended(None), signal=9), "RETRYABLE_TRANSIENT"),
        (replace(ended(None), not_started=True), "NON_RETRYABLE"),
    ],
)
def test_its_own_word_then_its_definition_then_what_is_usual(event: AttemptEnded, expected: str) -> None:
    definition = step("a", {"error_classes": {3: "RETRYABLE_RATE_LIMIT", 78: "RETRYABLE_TRANSIENT"}})
    assert classify(definition, event) == expected


@pytest.mark.parametrize(
    ("given_", "kind", "code", "retries", "expected"),
    [
        ({"max_retries": 2}, TRANSIENT, 1, 1, True),
        ({"max_retries": 2}, TRANSIENT, 1, 2, False),
        ({}, TRANSIENT, 1, 0, False),
        ({"on_failure": "retry"}, LIMITED, 1, 2, True),
        ({"on_failure": "retry"}, LIMITED, 1, 3, False),
        ({"max_retries": 2}, ErrorClass.NON_RETRYABLE, 1, 0, False),
        ({"max_retries": 2}, ErrorClass.FATAL, 1, 0, False),
        ({"max_retries": 2, "retry": {"on": [3]}}, TRANSIENT, 3, 0, True),
        ({"max_retries": 2, "retry": {"on": [3]}}, TRANSIENT, 4, 0, False),
        ({"max_retries": 2, "retry": {"on": [3]}}, TRANSIENT, None, 0, False),
        ({"max_retries": 2, "retry": {"on": [3]}}, ErrorClass.NON_RETRYABLE, 3, 0, False),
        ({"max_retries": 2, "retry": {"on": ["RETRYABLE_RATE_LIMIT"]}}, TRANSIENT, 1, 0, False),
        ({"max_retries": 2, "retry": {"on": ["RETRYABLE_RATE_LIMIT", 1]}}, TRANSIENT, 1, 0, True),
    ],
)
def test_what_is_tried_again(
    given_: dict[str, Any], kind: ErrorClass, code: int | None, retries: int, expected: bool
) -> None:
    assert may_retry(step("a", given_), StepRun(id="a", index=0, retries=retries), kind, code) is (expected)


@pytest.mark.parametrize(
    ("retry", "kind", "waits"),
    [
        ({}, TRANSIENT, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
        ({}, LIMITED, [10, 20, 40, 80, 160, 300, 300]),
        ({"delay": "30s", "backoff": 1}, TRANSIENT, [30, 30, 30]),
        ({"delay": "30s", "backoff": 1, "max_delay": "2m"}, LIMITED, [120, 120]),
        ({"delay": 0}, TRANSIENT, [0, 0]),
        ({"delay": "250ms", "backoff": 3, "max_delay": "1s"}, TRANSIENT, [0.25, 0.75, 1, 1]),
    ],
)
def test_waits_grow_up_to_a_cap(retry: dict[str, Any], kind: ErrorClass, waits: list[float]) -> None:
    definition = step("a", {"retry": retry})
    found = [back_off(definition, number + 1, kind, None, lambda: MIDDLE) for number in range(len(waits))]
    assert found == pytest.approx(waits)


def test_a_wait_after_very_many_retries_is_the_longest() -> None:
    assert back_off(step("a", {}), 100_000, TRANSIENT, None, lambda: MIDDLE) == 300


@settings(max_examples=100)
@given(
    st.integers(1, 20),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    st.sampled_from([TRANSIENT, LIMITED]),
)
def test_chance_changes_a_wait_by_its_share_at_most(
    number: int, chance: float, jitter: float, kind: ErrorClass
) -> None:
    definition = step("a", {"retry": {"jitter": jitter}})
    middle = back_off(definition, number, kind, None, lambda: MIDDLE)
    found = back_off(definition, number, kind, None, lambda: chance)
    assert middle * (1 - jitter) - 1e-9 <= found <= middle * (1 + jitter) + 1e-9
    assert found >= 0
    if jitter and chance != MIDDLE:
        assert (found < middle) == (chance < MIDDLE)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("90s", 90.0),
        (" 2m\n", 120.0),
        ("45", 45.0),
        ("0s", 0.0),
        ("30d", 86_400.0),
        ("", None),
        ("soon", None),
        ("-5s", None),
    ],
)
def test_what_the_step_asks_for(asked: str, expected: float | None) -> None:
    event = ended(retry_after=asked)
    assert wait_asked(event) == expected
    if expected is not None:
        definition = step("a", {"retry": {"max_delay": "1s"}})
        assert back_off(definition, 1, LIMITED, wait_asked(event), lambda: 0.99) == expected


def test_a_step_that_asked_for_nothing_waits_as_usual() -> None:
    assert wait_asked(ended()) is None


@pytest.mark.parametrize(
    ("outputs", "due"),
    [
        ({}, 102.0),
        ({"error_class": "RETRYABLE_RATE_LIMIT"}, 120.0),
        ({"error_class": "RETRYABLE_RATE_LIMIT", "retry_after": "7s"}, 107.0),
    ],
)
def test_the_back_off_begins_when_the_failure_is_known(outputs: dict[str, Any], due: float) -> None:
    definition = workflow({"a": {"on_failure": "retry", "retry": {"delay": "2s"}}})
    simulator = Simulator(definition, {"a": ["hang"]})
    simulator.deliver(RunStarted())
    simulator.now = 100
    simulator.deliver(replace(ended(**outputs), token=simulator.launched[0].token))
    (timer,) = [effect for effect in simulator.effects if isinstance(effect, StartRetryTimer)]
    assert timer == StartRetryTimer(step="a", retries=1, due=EPOCH + timedelta(seconds=due))
    waiting = simulator.run.steps["a"]
    assert (waiting.not_before, waiting.retries) == (timer.due, 1)
    assert waiting.reason, "a step that waits to be tried again says why"
