"""The order in which runs of a workflow begin, and which of them wait or replace others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from hypothesis import example, given
from hypothesis import strategies as st

from doubles.locks import run_locks
from toban.definition import JobType, Overlap, Step, Workflow
from toband.domain.lock_rules import LockUser
from toband.domain.plan import Plan
from toband.domain.run_events import CancelRequested, RunStarted
from toband.domain.run_model import Run, RunState, Trigger
from toband.engine.runs.run_queue import RunQueue

NOW = datetime(2026, 1, 1, tzinfo=UTC)


STEP = Step(id="s", name="s", job_type=JobType.SHELL, target="x", kwargs={}, env={})
QUEUES: dict[bool, Overlap] = {True: Overlap.QUEUE, False: Overlap.ALLOW}


class Actor:
    def __init__(self, run: Run, overlap: Overlap, limit: int = 1) -> None:
        self.run = run
        self.plan = Plan(
            Workflow(
                name=run.workflow,
                title="",
                labels={},
                params={},
                env={},
                steps={"s": STEP},
                overlap=overlap,
                event_overlap=overlap,
                max_active_runs=limit,
            )
        )
        self.posted: list[object] = []
        self.begin: Callable[[str], None] = lambda _: None

    def post(self, event: object) -> None:
        self.posted.append(event)
        if event == RunStarted():
            self.begin(self.run.id)


class Board:
    def __init__(self, slots: int = 10, *before: Run) -> None:
        self.begun: list[str] = []
        self.locks = run_locks()
        self.queue = RunQueue(event_slots=slots, locks=self.locks)
        self.queue.restore(cast(Any, [Actor(run, Overlap.QUEUE) for run in before]))

    def actor(
        self,
        name: str,
        *,
        limit: int | None = 1,
        priority: int = 0,
        of: str = "w",
        event: bool = False,
        backfill: bool = False,
    ) -> Any:
        run = Run(id=name, workflow=of, version=1, number=int(name), created_at=NOW, priority=priority)
        if event:
            run = replace(run, trigger=Trigger.EVENT, event={"id": "e"})
        if backfill:
            run = replace(run, trigger=Trigger.BACKFILL)
        actor = Actor(run, QUEUES[limit is not None], limit or 1)
        actor.begin = self.begun.append
        return actor

    def enter(self, name: str, **rest: Any) -> Run:
        actor = self.actor(name, **rest)
        self.queue.enter(actor)
        return actor.run  # type: ignore[no-any-return]

    def waits(self, run: Run) -> bool:
        return run.id not in self.begun


def test_the_first_begins_at_once_and_the_next_when_it_is_over() -> None:
    board = Board()
    first, second = board.enter("1"), board.enter("2")
    assert board.begun == ["1"]
    assert board.waits(second)
    assert not board.waits(first)
    board.queue.leave(first)
    assert board.begun == ["1", "2"]
    assert not board.waits(second)


def test_the_higher_priority_goes_first_then_the_older() -> None:
    board = Board()
    first = board.enter("1")
    board.enter("4")
    board.enter("2")
    urgent = board.enter("3", priority=5)
    assert board.queue.waiting("w") == 3
    board.queue.leave(first)
    board.queue.leave(urgent)
    assert board.begun == ["1", "3", "2"]


def test_runs_of_a_backfill_take_the_slots_that_others_leave() -> None:
    board = Board()
    first = board.enter("1", backfill=True, priority=9)
    board.enter("2", backfill=True, priority=9)
    other = board.enter("3")
    board.enter("4", backfill=True, priority=9)
    assert (board.queue.waiting("w"), board.queue.count("w")) == (1, 2)
    board.queue.leave(first)
    assert board.begun == ["1", "3"]
    # Those of a workflow without a limit too: one at a time here, while its other runs begin at once.
    free = board.enter("5", of="free", limit=None, backfill=True)
    board.enter("6", of="free", limit=None, backfill=True)
    assert board.begun == ["1", "3", "5"]
    board.enter("7", of="free", limit=None)
    assert board.begun == ["1", "3", "5", "7"]
    board.queue.leave(free)
    board.queue.leave(other)
    assert board.begun == ["1", "3", "5", "7", "2"]


def test_one_that_was_cancelled_while_it_waited_is_passed_over() -> None:
    board = Board()
    first, second = board.enter("1"), board.enter("2")
    board.enter("3")
    board.queue.leave(second)
    board.queue.leave(first)
    assert board.begun == ["1", "3"]


def test_as_many_as_may_are_under_way() -> None:
    board = Board()
    runs = [board.enter(str(number), limit=2) for number in range(4)]
    assert board.begun == ["0", "1"]
    assert board.queue.begun("w") == 2
    board.queue.leave(runs[1])
    assert board.begun == ["0", "1", "2"]


def test_without_a_limit_nobody_waits() -> None:
    board = Board()
    board.enter("1")
    board.enter("2", limit=None)
    assert board.begun == ["1", "2"]


def test_a_run_that_was_under_way_before_a_restart_has_its_slot() -> None:
    old = Run(id="0", workflow="w", version=1, created_at=NOW, state=RunState.RUNNING)
    board = Board(10, old)
    board.enter("1")
    assert board.begun == []
    board.queue.leave(old)
    assert board.begun == ["1"]


def test_workflows_do_not_wait_for_each_other_and_leave_nothing_behind() -> None:
    board = Board()
    runs = [board.enter("1"), board.enter("2", of="other")]
    assert board.begun == ["1", "2"]
    for run in runs:
        board.queue.leave(run)
        board.queue.leave(run)
    assert board.queue.begun("w") == board.queue.waiting("other") == 0


def test_runs_of_events_share_slots_over_all_workflows() -> None:
    board = Board(slots=2)
    first = board.enter("1", of="a", event=True)
    board.enter("2", of="b", event=True)
    third = board.enter("3", of="c", event=True)
    urgent = board.enter("4", of="d", event=True, priority=50)
    assert board.begun == ["1", "2"]
    assert board.queue.event_runs() == (2, 2)
    assert board.waits(third)
    board.queue.leave(first)
    assert board.begun == ["1", "2", "4"]
    board.queue.leave(urgent)
    assert board.begun == ["1", "2", "4", "3"]
    assert board.queue.event_runs() == (2, 0)


def test_others_do_not_wait_for_a_slot_of_events() -> None:
    board = Board(slots=1)
    board.enter("1", of="a", event=True)
    board.enter("2", of="b", event=True)
    board.enter("3", of="b")
    board.enter("4", of="c", limit=None)
    assert board.begun == ["1", "3", "4"]


def test_a_run_of_an_event_without_a_limit_of_its_own_needs_a_slot_all_the_same() -> None:
    board = Board(slots=1)
    first = board.enter("1", limit=None, event=True)
    board.enter("2", limit=None, event=True)
    assert board.begun == ["1"]
    board.queue.leave(first)
    assert board.begun == ["1", "2"]


def test_a_slot_goes_to_a_workflow_that_can_use_it() -> None:
    board = Board(slots=2)
    by_hand = board.enter("1", of="a")
    held = board.enter("2", of="a", event=True, priority=9)
    one = board.enter("3", of="b", event=True)
    board.enter("4", of="c", event=True)
    board.enter("5", of="d", event=True)
    assert board.begun == ["1", "3", "4"]
    board.queue.leave(one)
    # The most urgent one waits for a run of its own workflow.
    assert board.begun == ["1", "3", "4", "5"]
    board.queue.leave(by_hand)
    assert board.waits(held)


def test_who_was_under_way_before_a_restart_has_a_slot() -> None:
    run = Run(id="0", workflow="a", version=1, created_at=NOW, state=RunState.RUNNING, trigger=Trigger.EVENT, event={})
    board = Board(1, run)
    board.enter("1", of="b", event=True)
    assert board.begun == []
    board.queue.leave(run)
    assert board.begun == ["1"]


def test_a_flood_of_one_workflow_does_not_keep_out_the_urgent_ones_of_others() -> None:
    board = Board(slots=1)
    first = board.enter("1", of="flood", event=True, priority=-50)
    for number in range(2, 6):
        board.enter(str(number), of="flood", event=True, priority=-50)
    board.enter("6", of="urgent", event=True, priority=100)
    board.queue.leave(first)
    assert board.begun == ["1", "6"]


def test_a_slot_is_given_when_those_that_need_none_have_begun() -> None:
    board = Board(slots=1)
    first = board.enter("1", of="a", event=True)
    board.enter("2", of="a")
    board.enter("3", of="a", event=True, limit=2)
    board.enter("4", of="b", event=True)
    board.queue.leave(first)
    # The older of the two that only lack a slot, as soon as the one before it has begun.
    assert board.begun == ["1", "2", "3"]


def test_several_free_slots_are_given_one_by_one() -> None:
    board = Board(slots=2)
    gone = [board.enter(name, of=name, event=True) for name in ("1", "2")]
    for name, priority in (("3", 5), ("4", 5), ("5", 9), ("6", 9)):
        board.enter(name, of=f"w{priority}", limit=None, event=True, priority=priority)
    for run in gone:
        board.queue.leave(run)
    assert board.begun == ["1", "2", "5", "6"]


def test_those_that_enter_together_go_by_their_order() -> None:
    board = Board(slots=1)
    board.queue = RunQueue(event_slots=1, locks=run_locks())
    board.queue.restore(
        [
            board.actor("1", of="a", event=True),
            board.actor("2", of="b", event=True, priority=7),
            board.actor("3", of="c"),
            board.actor("4", of="c", priority=3),
        ]
    )
    assert set(board.begun) == {"2", "4"}


def actor(run_id: str, state: RunState, overlap: Overlap) -> Any:
    run = Run(id=run_id, workflow="w", version=1, number=int(run_id), created_at=NOW, state=state)
    return Actor(run, overlap)


def test_runs_that_enter_before_a_restart_is_over_wait_behind_those_of_before() -> None:
    queue = RunQueue(event_slots=1, locks=run_locks())
    begun, queued, early = (
        actor("1", RunState.RUNNING, Overlap.QUEUE),
        actor("2", RunState.PENDING, Overlap.QUEUE),
        actor("3", RunState.PENDING, Overlap.QUEUE),
    )
    queue.enter(early)
    assert early.posted == []
    queue.restore([begun, queued])
    assert (queued.posted, early.posted) == ([], [])
    assert queue.waiting("w") == 2
    queue.leave(begun.run)
    assert queued.posted == [RunStarted()]


def test_a_run_that_is_cancelled_before_the_restart_is_over_never_begins() -> None:
    queue = RunQueue(event_slots=1, locks=run_locks())
    gone = actor("1", RunState.PENDING, Overlap.QUEUE)
    queue.enter(gone)
    gone.run = replace(gone.run, state=RunState.CANCELLED)
    queue.restore([])
    assert gone.posted == []
    assert queue.waiting("w") == queue.begun("w") == 0


def test_of_runs_that_replace_each_other_the_newest_stays() -> None:
    queue = RunQueue(event_slots=1, locks=run_locks())
    begun, queued, early = (
        actor("1", RunState.RUNNING, Overlap.REPLACE),
        actor("2", RunState.PENDING, Overlap.REPLACE),
        actor("3", RunState.PENDING, Overlap.REPLACE),
    )
    queue.enter(early)
    queue.restore([begun, queued])
    cancelled = CancelRequested(reason="replaced by run w#3")
    assert cancelled in queued.posted
    assert cancelled in begun.posted
    assert early.posted == []


def test_an_older_run_does_not_replace_a_newer_one() -> None:
    queue = RunQueue(event_slots=1, locks=run_locks())
    newer, older = actor("2", RunState.RUNNING, Overlap.REPLACE), actor("1", RunState.PENDING, Overlap.REPLACE)
    queue.restore([newer, older])
    assert newer.posted == []
    assert older.posted == [CancelRequested(reason="replaced by run w#2")]


def test_who_only_lacks_a_slot_can_be_told_from_who_waits_for_its_own_workflow() -> None:
    board = Board(slots=1)
    board.enter("1", of="a", event=True)
    own = board.enter("2", of="a", event=True)
    other = board.enter("3", of="b", event=True)
    assert [board.queue.lacks_slot(run) for run in (own, other)] == [False, True]


Move = tuple[str, bool, int | None, int] | int


def order(run: Run) -> tuple[int, str]:
    return -run.priority, run.id


ENTERS = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from([True, True, False]),
    st.sampled_from([1, 2, None]),
    st.sampled_from([-5, 0, 5]),
)
LEAVES = st.integers(min_value=0, max_value=5)


@given(
    st.lists(ENTERS | LEAVES | ENTERS, min_size=6, max_size=40),
    st.integers(min_value=1, max_value=3),
)
# Behind one that needs no slot, and begins first, waits the next for the slot that is left.
@example([("a", True, 1, 0), ("a", False, 1, 0), ("a", True, 2, 0), ("b", True, 1, 0), 0], 1)
# The first lacks a slot and holds up nobody; the next waits for its own workflow, and holds up the last.
@example([("a", True, 1, 0), ("a", True, 2, 0), ("a", False, 1, 0), ("a", False, 2, 0)], 1)
def test_nobody_is_forgotten_no_limit_is_exceeded_and_the_order_is_kept(moves: list[Move], slots: int) -> None:
    board = Board(slots)
    there: dict[str, tuple[Run, int | None]] = {}
    for number, move in enumerate(moves):
        already = len(board.begun)
        if isinstance(move, int):
            if there:
                run, _ = there.pop(sorted(there)[move % len(there)])
                board.queue.leave(run)
        else:
            of, event, limit, priority = move
            run = board.enter(f"{number:03}", of=of, event=event, limit=limit, priority=priority)
            there[run.id] = (run, limit)
        begun = set(board.begun)
        assert len(begun) == len(board.begun)
        active = [run for run, _ in there.values() if run.id in begun]
        waiting = [run for run, _ in there.values() if run.id not in begun]
        sharing = sum(run.by_event for run in active)
        assert sharing <= slots

        def held_up(run: Run, active: list[Run] = active) -> bool:
            limit = there[run.id][1]
            beside = sum(other.workflow == run.workflow for other in active)
            return limit is not None and beside >= limit

        firsts = {
            workflow: min((run for run in waiting if run.workflow == workflow), key=order)
            for workflow in {run.workflow for run in waiting}
        }
        # Whoever waits has a reason: its own workflow, or the slots, or one before it that waits for the former.
        for run in waiting:
            full = run.by_event and sharing == slots
            before = [firsts[run.workflow]]
            if before[0].by_event and sharing == slots and not run.by_event:
                # One that lacks a slot is passed by those that need none, in their order.
                others = [other for other in waiting if other.workflow == run.workflow]
                before.append(min((other for other in others if not other.by_event), key=order))
            assert held_up(run) or any(map(held_up, before)) or full
        # Nobody got a slot before one that had only needed one.
        for run_id in board.begun[already:]:
            given = there[run_id][0] if run_id in there else None
            for first in firsts.values():
                if given is not None and given.by_event and first.by_event and not held_up(first):
                    assert order(given) < order(first)
    for run, _ in list(there.values()):
        board.queue.leave(run)
    assert board.queue.event_runs() == (0, 0)


def locked(board: Board, name: str, *locks: str, **rest: Any) -> Run:
    actor = board.actor(name, **rest)
    actor.plan = Plan(replace(actor.plan.workflow, locks=locks))
    board.queue.enter(actor)
    return actor.run  # type: ignore[no-any-return]


def test_runs_of_several_workflows_share_a_lock_by_priority_then_age() -> None:
    board = Board()
    first = locked(board, "1", "db", of="a")
    second = locked(board, "2", "db", of="b")
    urgent = locked(board, "3", "db", of="c", priority=5)
    other = locked(board, "4", "gpu", of="d")
    assert board.begun == ["1", "4"]
    assert board.locks.table.waits_for(LockUser(second.id))
    board.queue.leave(first)
    assert board.begun == ["1", "4", "3"]
    board.queue.leave(second)
    board.queue.leave(urgent)
    last = locked(board, "5", "db", "gpu", of="b")
    assert board.waits(last)
    board.queue.leave(other)
    assert not board.waits(last)


def test_a_run_that_waits_for_a_lock_takes_no_turn_and_none_that_waits_for_its_turn_asks_for_locks() -> None:
    board = Board()
    holder = locked(board, "1", "db", of="holder")
    waiting = locked(board, "2", "db")
    passing = board.enter("3")
    assert board.begun == ["1", "3"], "it passes a run that waits for a lock"
    assert not board.locks.table.waits_for(LockUser(waiting.id)), "the line is full: it reserves no lock"
    board.queue.leave(holder)
    assert board.waits(waiting)
    late = locked(board, "4", "db", of="late")
    assert not board.waits(late), "a lock that is free is not kept for a run that waits for its turn"
    board.queue.leave(passing)
    assert board.waits(waiting)
    board.queue.leave(late)
    assert not board.waits(waiting)


def test_a_run_of_an_event_has_its_slot_and_its_locks_at_once() -> None:
    board = Board(slots=1)
    holder = locked(board, "1", "db", of="holder")
    locked(board, "2", "db", of="a", event=True)
    other = board.enter("3", of="b", event=True)
    assert board.begun == ["1", "3"], "a run that waits for a lock takes no slot"
    board.queue.leave(holder)
    direct = locked(board, "4", "db", of="c")
    assert not board.waits(direct), "without a slot the run of the event does not keep the lock"
    board.queue.leave(other)
    assert board.begun == ["1", "3", "4"]
    board.queue.leave(direct)
    assert board.begun == ["1", "3", "4", "2"]


LOCKED = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from([True, False]),
    st.sampled_from([1, 2, None]),
    st.sampled_from([0, 5]),
    st.sets(st.sampled_from("xyz")),
)


# Two lines ask in one round, and the request of the second takes precedence.
@example(
    [("b", True, None, 5, {"x"}), ("b", True, 1, 5, {"y", "x"}), ("a", False, 1, 5, {"y"}), ("c", True, 2, 0, {"x"})], 3
)
@given(st.lists(LOCKED | LEAVES, min_size=6, max_size=40), st.integers(min_value=1, max_value=3))
def test_with_locks_too_nobody_is_forgotten(moves: list[Any], slots: int) -> None:
    board = Board(slots)
    there: dict[str, Run] = {}
    for number, move in enumerate(moves):
        if isinstance(move, int):
            if there:
                board.queue.leave(there.pop(sorted(there)[move % len(there)]))
        else:
            of, event, limit, priority, locks = move
            run = locked(board, f"{number:03}", *locks, of=of, event=event, limit=limit, priority=priority)
            there[run.id] = run
        table = board.locks.table
        active = [run for run in there.values() if run.id in board.begun]
        for name in table.names():
            assert len(table.view(name).holders) <= 1
            assert all(user.run_id in board.begun for user in table.view(name).holders)
        assert sum(run.by_event for run in active) <= slots
    # When all that have begun end one after the other, those that wait get their turn.
    while left := sorted(name for name in there if name in board.begun):
        board.queue.leave(there.pop(left[0]))
    assert not there
    assert not board.locks.table.names()
