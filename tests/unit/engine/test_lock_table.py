"""The lock table: holders, those who wait, and what ended attempts keep held."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from toban.definition.model.lock_order import lock_conflict
from toband.domain.lock_rules import LockLeftover, LockRequest, LockUser
from toband.engine.execution.lock_table import LockTable

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def request(name: str, *locks: str, age: int = 0, priority: int = 0) -> LockRequest:
    rank = (-priority, NOW + timedelta(seconds=age), name, -1)
    return LockRequest(user=LockUser(name), locks=tuple(sorted(locks)), rank=rank)


def leftover(lock: str, user: str, attempt: str = "i") -> LockLeftover:
    return LockLeftover(
        lock=lock, user=LockUser(user), attempt_id=attempt, run_id=user, workflow="w", number=1, step="s", since=NOW
    )


def holders(table: LockTable, lock: str) -> list[str]:
    return [user.run_id for user in table.view(lock).holders]


def test_a_freed_lock_is_offered_to_the_next() -> None:
    table = LockTable({})
    told: list[Collection[LockUser]] = []
    table.listen(told.append)
    assert table.ask(request("x", "a"))
    table.take(LockUser("x"))
    assert not table.ask(request("y", "a"))
    assert [view.name for view in table.waits_for(LockUser("y"))] == ["a"]
    assert holders(table, "a") == ["x"]
    table.release(LockUser("x"))
    assert told == [{LockUser("y")}]
    assert table.ready(LockUser("y"))
    table.take(LockUser("y"))
    assert holders(table, "a") == ["y"]
    table.release(LockUser("y"))
    assert not table.names()


def test_one_that_needs_two_locks_is_not_starved_by_those_that_need_one() -> None:
    table = LockTable({})
    for name, lock in (("x", "a"), ("y", "b")):
        assert table.ask(request(name, lock))
        table.take(LockUser(name))
    assert not table.ask(request("both", "a", "b", age=1))
    assert not table.ask(request("late-a", "a", age=2))
    assert not table.ask(request("late-b", "b", age=3))
    table.release(LockUser("x"))
    assert not table.ready(LockUser("late-a")), "a is kept for the one that waits for b"
    assert [view.name for view in table.waits_for(LockUser("late-a"))] == ["a"]
    table.release(LockUser("y"))
    assert table.ready(LockUser("both"))
    assert not table.ready(LockUser("late-b"))


def test_a_withdrawn_request_makes_room() -> None:
    table = LockTable({})
    table.hold(LockUser("x"), ["b"])
    table.ask(request("both", "a", "b"))
    told: list[Collection[LockUser]] = []
    table.listen(told.append)
    table.ask(request("late", "a", age=1))
    table.withdraw(LockUser("both"))
    assert told == [{LockUser("late")}]


def test_what_an_attempt_left_keeps_the_lock_of_its_run() -> None:
    table = LockTable({"a": 1})
    table.hold(LockUser("x"), ["a"])
    left = [leftover("a", "x", "one"), leftover("a", "x", "two")]
    for each in left:
        table.keep(each)
    table.release(LockUser("x"))
    view = table.view("a")
    assert (view.holders, view.leftovers) == ([], left)
    assert not table.ask(request("y", "a"))
    table.give_up(left[0])
    assert not table.ready(LockUser("y"))
    table.give_up(left[1])
    table.give_up(left[1])
    assert table.ready(LockUser("y"))


def test_more_holders_than_fit_are_known_again_after_a_restart_with_a_smaller_size() -> None:
    table = LockTable({"a": 1})
    for name in ("x", "y"):
        table.hold(LockUser(name), ["a"])
    table.ask(request("z", "a"))
    table.release(LockUser("x"))
    assert not table.ready(LockUser("z"))
    table.release(LockUser("y"))
    assert table.ready(LockUser("z"))


@dataclass
class Work:
    """Takes groups of locks, each after the one before, and frees all at its end. Acts only when the test says so."""

    name: str
    groups: list[set[str]]
    priority: int
    taken: list[LockUser] = field(default_factory=list)
    waiting: LockUser | None = None

    @property
    def held(self) -> set[str]:
        return {lock for group in self.groups[: len(self.taken)] for lock in group}


GROUPS = st.lists(st.sets(st.sampled_from("abcdef"), min_size=1, max_size=3), min_size=1, max_size=3)
WORKS = st.lists(st.tuples(GROUPS, st.integers(-1, 1)), min_size=1, max_size=8)
SIZES = st.fixed_dictionaries({name: st.integers(1, 2) for name in "abcdef"})


@given(WORKS, SIZES, st.randoms(use_true_random=False))
def test_all_end_whatever_the_order_and_no_lock_has_too_many_holders(
    wanted: list[tuple[list[set[str]], int]], sizes: dict[str, int], random: object
) -> None:
    """No deadlock as long as all requests keep the order of locks, and no request is forgotten."""
    table = LockTable(sizes)
    works: dict[str, Work] = {}
    for number, (groups, priority) in enumerate(wanted):
        kept: list[set[str]] = []
        for group in groups:
            held = {lock for each in kept for lock in each}
            new = group - held
            if new and lock_conflict(held, new) is None:
                kept.append(new)
        works[f"w{number}"] = Work(f"w{number}", kept, priority)
    runnable = dict(works)

    def wake(ready: Collection[LockUser]) -> None:
        for user in ready:
            work = works[user.run_id]
            if work.waiting == user:
                runnable[work.name] = work

    table.listen(wake)
    ended = 0
    while runnable:
        name = random.choice(sorted(runnable))  # type: ignore[attr-defined]
        work = runnable.pop(name)
        if work.waiting is not None:
            if not table.ready(work.waiting):
                continue  # one of a higher priority came first; it will be told again
            table.take(work.waiting)
            work.taken.append(work.waiting)
            work.waiting = None
        for lock, size in sizes.items():
            assert len(table.view(lock).holders) <= size
        if len(work.taken) == len(work.groups):
            for user in work.taken:
                table.release(user)
            ended += 1
            continue
        user = LockUser(name, str(len(work.taken)))
        rank = (-work.priority, NOW, name, len(work.taken))
        locks = tuple(sorted(work.groups[len(work.taken)]))
        work.waiting = user
        if table.ask(LockRequest(user=user, locks=locks, rank=rank)):
            runnable[name] = work
    assert ended == len(works), {name: (work.held, work.waiting) for name, work in works.items()}
    assert not [name for name in table.names() if table.view(name).holders or table.view(name).waiting]
