"""Runs take turns: by priority first, and no run waits for all that another one has queued."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.fair_queue import FairQueue

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def attempt(run: str, ordinal: int) -> Attempt:
    return Attempt(
        id=f"{run}{ordinal}",
        run_id=run,
        step=f"s{ordinal}",
        number=1,
        ordinal=ordinal,
        token=f"{run}{ordinal}",
        state=AttemptState.STARTING,
        created_at=NOW,
    )


def push(queue: FairQueue[str], run: str, *ordinals: int, priority: int = 0) -> None:
    for ordinal in ordinals:
        queue.push(attempt(run, ordinal), f"{run}{ordinal}", priority=priority)


def popped(queue: FairQueue[str], count: int = 100) -> list[str]:
    return [item for _ in range(count) if (item := queue.pop()) is not None]


def test_attempts_of_one_run_are_served_in_their_order() -> None:
    queue: FairQueue[str] = FairQueue()
    push(queue, "a", 1, 2, 3)
    assert queue.first() == "a1"
    assert popped(queue) == ["a1", "a2", "a3"]
    assert queue.pop() is None
    assert queue.first() is None


def test_runs_with_one_attempt_each_are_served_by_age() -> None:
    queue: FairQueue[str] = FairQueue()
    for run in "cab":
        push(queue, run, 1)
    assert popped(queue) == ["a1", "b1", "c1"]


def test_a_run_does_not_wait_for_all_that_an_older_one_has_queued() -> None:
    queue: FairQueue[str] = FairQueue()
    push(queue, "a", *range(1000))
    assert len(popped(queue, 10)) == 10
    push(queue, "b", 1, 2)
    assert popped(queue, 4) == ["b1", "a10", "b2", "a11"]


def test_a_run_that_comes_again_and_again_does_not_pass_the_others_by() -> None:
    queue: FairQueue[str] = FairQueue()
    push(queue, "b", *range(10))
    served = []
    for number in range(10):
        push(queue, "a", number)
        served += popped(queue, 1)
    assert [item[0] for item in served] == ["a", "b"] * 5


def test_a_higher_priority_is_served_first() -> None:
    queue: FairQueue[str] = FairQueue()
    push(queue, "a", 1, 2)
    push(queue, "b", 1, 2, priority=5)
    push(queue, "c", 1, priority=-5)
    assert popped(queue) == ["b1", "b2", "a1", "a2", "c1"]


def test_one_that_is_removed_is_not_served() -> None:
    queue: FairQueue[str] = FairQueue()
    push(queue, "a", 1, 2)
    assert "a1" in queue
    assert queue.remove("a1")
    assert not queue.remove("a1")
    assert (len(queue), "a1" in queue) == (1, False)
    assert queue.first() == "a2"
    push(queue, "a", 1)
    assert popped(queue) == ["a2", "a1"]
    push(queue, "a", 3)
    queue.clear()
    assert (len(queue), queue.pop()) == (0, None)


def test_runs_that_are_gone_are_forgotten() -> None:
    queue: FairQueue[str] = FairQueue()
    push(queue, "z", *range(2000))
    for number in range(1000):
        push(queue, f"a{number}", 1)
        popped(queue, 2)
    assert len(queue) < 1100
    assert len(queue._shares) < 2400
    popped(queue, len(queue) - 1)
    assert len(queue._shares) < 100


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())))
def test_everything_is_served_once(moves: list[tuple[str, bool]]) -> None:
    queue: FairQueue[str] = FairQueue()
    queued, served = [], []
    for number, (run, serve) in enumerate(moves):
        push(queue, run, number)
        queued.append(f"{run}{number}")
        if serve:
            served += popped(queue, 1)
    served += popped(queue)
    assert sorted(served) == sorted(queued)
    assert (queue._entries, queue._shares, queue._heap) == ({}, {}, [])
