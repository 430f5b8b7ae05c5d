"""Which requests for locks are granted together, and which ended attempts keep locks held."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toband.domain.attempt_model import Attempt, AttemptState, Orphans, TreeCause, TreeEnding
from toband.domain.lock_rules import LockRequest, LockUser, grantable, keeps_locks, left_processes
from toband.domain.run_model import Phase, StepRun, StepState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def request(number: int, locks: str, priority: int = 0) -> LockRequest:
    name = f"r{number}"
    rank = (-priority, NOW + timedelta(seconds=number), name, -1)
    return LockRequest(user=LockUser(name), locks=tuple(sorted(locks)), rank=rank)


def granted(free: dict[str, int], *requests: LockRequest) -> list[str]:
    return [each.user.run_id for each in grantable(sorted(requests, key=lambda each: each.rank), free)]


def test_the_older_goes_first_and_the_higher_priority_before_it() -> None:
    assert granted({"a": 1}, request(2, "a"), request(1, "a")) == ["r1"]
    assert granted({"a": 1}, request(1, "a"), request(2, "a", priority=1)) == ["r2"]
    assert granted({"a": 2}, request(1, "a"), request(2, "a"), request(3, "a")) == ["r1", "r2"]


def test_a_request_takes_all_or_nothing() -> None:
    assert granted({"a": 1, "b": 0}, request(1, "ab")) == []
    assert granted({"a": 1, "b": 1}, request(1, "ab")) == ["r1"]


def test_a_lock_is_kept_for_an_older_request_that_still_needs_a_later_one() -> None:
    assert granted({"a": 1, "b": 0}, request(1, "ab"), request(2, "a")) == []


def test_a_lock_is_not_kept_for_a_request_that_waits_for_an_earlier_one() -> None:
    """Who holds a may wait for b only: keeping b for a request that waits for a would be a deadlock."""
    assert granted({"a": 0, "b": 1}, request(1, "ab"), request(2, "b")) == ["r2"]


def test_those_who_need_other_locks_are_not_delayed() -> None:
    assert granted({"a": 0, "b": 1}, request(1, "a"), request(2, "b")) == ["r2"]


REQUESTS = st.lists(st.tuples(st.sets(st.sampled_from("abcd"), min_size=1), st.integers(-1, 1)), max_size=12)
FREE = st.fixed_dictionaries({name: st.integers(0, 3) for name in "abcd"})


@given(REQUESTS, FREE)
def test_no_more_are_granted_than_there_are_and_the_first_never_waits_for_later_ones(
    wanted: list[tuple[set[str], int]], free: dict[str, int]
) -> None:
    requests = [request(number, "".join(locks), priority) for number, (locks, priority) in enumerate(wanted)]
    found = granted(free, *requests)
    by_name = {each.user.run_id: each for each in requests}
    for lock in free:
        assert sum(lock in by_name[name].locks for name in found) <= free[lock]
    for each in requests:
        # A request is granted whenever all its locks would be left over by everyone before it.
        before = [other for other in requests if other.rank < each.rank]
        if all(free[lock] > sum(lock in other.locks for other in before) for lock in each.locks):
            assert each.user.run_id in found


def step(**fields: object) -> StepRun:
    return replace(StepRun(id="s", index=0), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "keeps"),
    [
        (step(state=StepState.RUNNING), True),
        (step(state=StepState.RUNNING, phase=Phase.COLLECT), True),
        (step(state=StepState.RUNNING, phase=Phase.APPROVAL), False),
        (step(state=StepState.RUNNING, phase=Phase.GROUP), False),
        (step(state=StepState.CHECKING, phase=Phase.CHECK), True),
        (step(state=StepState.READY, phase=Phase.CHECK), True),
        (step(state=StepState.READY, phase=Phase.NEXT), True),
        (step(state=StepState.READY, phase=Phase.CHECK, retrying=True), False),
        (step(state=StepState.READY, phase=Phase.NEXT, not_before=NOW), False),
        (step(state=StepState.READY, retrying=True), False),
        (step(state=StepState.READY), False),
        (step(state=StepState.PENDING), False),
        *[(step(state=state), False) for state in StepState if state.terminal],
    ],
)
def test_a_step_keeps_its_locks_until_it_ends_or_waits_for_a_retry(found: StepRun, keeps: bool) -> None:
    assert keeps_locks(found) is keeps


def ended(ending: TreeEnding | None, **fields: object) -> Attempt:
    attempt = Attempt(
        id="i", run_id="r", step="s", number=1, ordinal=0, token="t", state=AttemptState.COMPLETED, created_at=NOW
    )
    return replace(attempt, ending=ending, **fields)  # type: ignore[arg-type]


PROVED = TreeEnding(cause=TreeCause.EXITED, proved_empty=True)


@pytest.mark.parametrize(
    ("attempt", "left"),
    [
        (ended(PROVED, exit_code=0), False),
        (ended(replace(PROVED, proved_empty=False), exit_code=0), True),
        (ended(replace(PROVED, proved_empty=False, cause=TreeCause.TIMEOUT), signal=9), True),
        (ended(replace(PROVED, proved_empty=False, survivors=1), exit_code=0), True),
        (ended(TreeEnding(cause=TreeCause.EXITED)), False),
        (ended(None), False),
        (ended(TreeEnding(cause=TreeCause.LOST, orphans=Orphans.NONE)), False),
        (ended(TreeEnding(cause=TreeCause.LOST, orphans=Orphans.ENDED)), False),
        (ended(TreeEnding(cause=TreeCause.LOST, orphans=Orphans.LEFT)), True),
        (ended(TreeEnding(cause=TreeCause.LOST, orphans=Orphans.UNKNOWN)), True),
        (ended(TreeEnding(cause=TreeCause.LOST, orphans=Orphans.UNKNOWN), state=AttemptState.RUNNING), False),
    ],
)
def test_an_ended_attempt_may_have_left_processes_unless_that_was_disproved(attempt: Attempt, left: bool) -> None:
    assert left_processes(attempt) is left
