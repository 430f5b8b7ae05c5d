"""Run queue: the order in which runs of a workflow begin, and which of them wait for another to end.

Runs that events started also share slots over all workflows, so that a flood of events does not overload the machine.
Runs whose workflow has locks start when they get all of them. A run has its turn, its slot and its locks at once, and
holds none of them while it waits for another.
A waiting run is PENDING in the database; the order exists in memory only and is rebuilt after a restart.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from toband.domain import run_texts
from toband.domain.deadlocks import QueuedRun, QueueState
from toband.domain.lock_rules import LockRequest, LockUser
from toband.domain.overlap import OverlapRule, is_full, replacements, rule_for
from toband.domain.run_events import CancelRequested, RunStarted
from toband.domain.run_model import Run, RunState, Trigger
from toband.engine.execution.run_actor import RunActor
from toband.engine.execution.run_locks import RunLocks

_Entry = tuple[bool, int, int, str, int | None]
"""Whether it belongs to a backfill (these come last), priority (highest first), number (oldest first), id, and how many
runs may be active when it begins.

Ids do not show which run is older: after a restart with a clock that was set back, new ids sort before old ones.
"""


_Needs = tuple[bool, tuple[str, ...]]
"""Whether a run needs a shared slot, and the locks that it needs."""


@dataclass(slots=True)
class _Line:
    """The runs of one workflow."""

    begun: dict[str, RunActor] = field(default_factory=dict)
    """In the order in which they began."""
    waiting: dict[str, RunActor] = field(default_factory=dict)
    queues: dict[_Needs, list[_Entry]] = field(default_factory=dict)
    """Heaps of the waiting runs, by what they need besides their turn. Those with the same needs keep their order."""
    asking: set[str] = field(default_factory=set)
    """Runs that lack nothing but locks, and wait for those: at most the first of each heap."""


class RunQueue:
    """Belongs to the event loop. Until `restore` is called, runs that enter only wait."""

    def __init__(self, *, event_slots: int, locks: RunLocks) -> None:
        """`event_slots` is how many runs that events started may be active at once."""
        self._event_slots = event_slots
        self._locks = locks
        self._lines: dict[str, _Line] = {}
        self._sharing: set[str] = set()
        self._waiting_for_slot: dict[str, str] = {}
        """Workflows by those of their runs that wait and need a shared slot."""
        self._requests: dict[str, LockRequest] = {}
        """Of the waiting runs that need locks."""
        self._slot_and_locks: set[str] = set()
        """Runs that would get a shared slot, and wait for locks."""
        self._early: list[RunActor] | None = []
        self._held = False
        self._holding = False
        self._due: deque[_Line] = deque()
        locks.table.listen(self._locks_freed)

    def use(self, *, event_slots: int) -> None:
        """Replaces the number of slots. With fewer, active runs continue, and none starts until it is met."""
        self._event_slots = event_slots
        if self._early is None:
            for line in list(self._lines.values()):
                self._go_on(line)

    def restore(self, actors: Sequence[RunActor]) -> None:
        """Takes the runs that had not ended at the restart, then those that entered meanwhile."""
        for actor in actors:
            if actor.run.state is RunState.RUNNING:
                self._line(actor.run.workflow).begun[actor.run.id] = actor
                if actor.run.by_event:
                    self._sharing.add(actor.run.id)
        early, self._early = self._early or [], None
        with self._together():
            for actor in (*actors, *early):
                # A run that was created a moment ago may be cancelled by now.
                if actor.run.state is RunState.PENDING:
                    self.enter(actor)

    def hold(self) -> None:
        """Begins no run until `release`. Those that have begun are not affected."""
        self._holding = True

    def release(self) -> None:
        self._holding = False
        for line in list(self._lines.values()):
            self._go_on(line)

    def enter(self, actor: RunActor) -> None:
        """Starts the run as soon as the overlap rule of its workflow allows it, and its locks are free."""
        if self._early is not None:
            # The runs that wait already are not known yet.
            self._early.append(actor)
            return
        run = actor.run
        rule = rule_for(actor.plan.workflow, run)
        line = self._line(run.workflow)
        self._replace(line, actor, rule)
        conflict = self._locks.conflict_of_run(actor)
        if conflict is not None:
            # The definition of its workflow changed after its parent's step was checked.
            actor.post(CancelRequested(reason=run_texts.lock_conflict(conflict)))
        request = self._locks.of_run(actor) if conflict is None else None
        if rule.limit is None and not run.by_event and request is None and not self._holding:
            self._start(line, actor)
            return
        needs = (run.by_event, request.locks if request is not None else ())
        entry = (run.trigger is Trigger.BACKFILL, -run.priority, run.number, run.id, rule.limit)
        heapq.heappush(line.queues.setdefault(needs, []), entry)
        line.waiting[run.id] = actor
        if request is not None:
            self._requests[run.id] = request
        if run.by_event:
            self._waiting_for_slot[run.id] = run.workflow
        self._go_on(line)

    def leave(self, run: Run) -> None:
        """The run has ended, or was cancelled before it began."""
        line = self._lines.get(run.workflow)
        if line is None:
            return
        line.begun.pop(run.id, None)
        line.waiting.pop(run.id, None)
        self._asks_no_more(line, run.id)
        self._waiting_for_slot.pop(run.id, None)
        self._requests.pop(run.id, None)
        self._sharing.discard(run.id)
        user = LockUser(run.id)
        self._locks.table.withdraw(user)
        self._locks.table.release(user)
        self._go_on(line)
        if not line.begun and not line.waiting:
            self._lines.pop(run.workflow, None)

    def lacks_slot(self, run: Run) -> bool:
        """Whether the run waits, and only because runs of events in other workflows have all shared slots."""
        line = self._lines.get(run.workflow)
        if line is None or run.id not in self._waiting_for_slot or self._has_slot():
            return False
        first = next(iter(_in_order(line)), None)
        return first is not None and first[0] and _may_begin(line, line.queues[first][0])

    def waiting(self, workflow: str) -> int:
        """Without runs of a backfill, which let the others go first."""
        line = self._lines.get(workflow)
        if line is None:
            return 0
        return sum(actor.run.trigger is not Trigger.BACKFILL for actor in line.waiting.values())

    def begun(self, workflow: str) -> int:
        line = self._lines.get(workflow)
        return len(line.begun) if line is not None else 0

    def count(self, workflow: str) -> int:
        """Runs of the workflow that have begun or wait, as `waiting` counts them."""
        return self.begun(workflow) + self.waiting(workflow)

    def states(self) -> list[QueueState]:
        """The active runs of all workflows. Waiting runs of events are left out: no run waits for them."""
        return [self._state(line) for line in self._lines.values()]

    def _state(self, line: _Line) -> QueueState:
        entries = sorted(
            entry
            for (by_event, _), heap in line.queues.items()
            for entry in heap
            if not by_event and entry[3] in line.waiting
        )
        waiting = [
            QueuedRun(run_id=run_id, limit=limit, request=self._requests.get(run_id)) for *_, run_id, limit in entries
        ]
        return QueueState(begun=tuple(line.begun), waiting=waiting)

    def children_wait(self) -> bool:
        """Whether child runs wait for their turn or for locks."""
        return any(actor.run.parent_run for line in self._lines.values() for actor in line.waiting.values())

    def event_runs(self) -> tuple[int, int]:
        """Runs that events started: how many have begun, and how many wait."""
        return len(self._sharing), len(self._waiting_for_slot)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Of the runs that enter meanwhile, the first in order begins first, not the first to enter."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            for line in self._lines.values():
                self._go_on(line)

    def _line(self, workflow: str) -> _Line:
        return self._lines.setdefault(workflow, _Line())

    def _has_slot(self) -> bool:
        return len(self._sharing) < self._event_slots

    def _replace(self, line: _Line, actor: RunActor, rule: OverlapRule) -> None:
        waiting, begun = ([each.run for each in group.values()] for group in (line.waiting, line.begun))
        for cancelled, newer in replacements(rule, actor.run, waiting, begun):
            found = line.waiting.get(cancelled) or line.begun.get(cancelled) or actor
            found.post(CancelRequested(reason=f"replaced by run {newer.name}"))

    def _locks_freed(self, ready: Collection[LockUser]) -> None:
        found = {user.run_id for user in ready if not user.step}
        for line in [line for line in self._lines.values() if not line.asking.isdisjoint(found)]:
            self._go_on(line)

    def _go_on(self, line: _Line) -> None:
        """Starts the runs that may begin after a change of this line, a freed shared slot or freed locks."""
        if self._held or self._holding:
            return
        self._due.append(line)
        if len(self._due) > 1:
            return  # a run that asks for locks no more may let another begin
        while self._due:
            self._start_all(self._due[0])
            self._due.popleft()

    def _start_all(self, line: _Line) -> None:
        while True:
            # First the runs that need no shared slot: behind them may be the next that lacks only that.
            while (needs := self._next(line)) is not None and not needs[0]:
                self._start_first(line, needs)
            taken = len(self._sharing)
            self._give_slots()
            if len(self._sharing) == taken:
                return

    def _give_slots(self) -> None:
        """Gives shared slots to the runs that lack only that: highest priority first, then the oldest."""
        while self._has_slot() or self._slot_and_locks:
            # Without a slot, runs of events do not ask for locks either.
            lines = [self._lines[name] for name in set(self._waiting_for_slot.values())]
            ready = [(line, needs) for line in lines if (needs := self._next(line)) is not None and needs[0]]
            heads = [(line.queues[needs][0], line, needs) for line, needs in ready]
            # The request of one line may have taken precedence over that of a line before it.
            heads = [head for head in heads if not head[2][1] or self._locks.table.ready(LockUser(head[0][3]))]
            if not heads:
                return
            # Numbers are counted per workflow: between workflows the ids show which run is older.
            _, best, needs = min(heads, key=lambda head: (head[0][1], head[0][3]))
            self._start_first(best, needs)

    def _next(self, line: _Line) -> _Needs | None:
        """What the next run that may begin now needs; it is the first of that heap.

        A run that lacks a shared slot, or locks, does not delay those that need other ones or none: a child run may be
        the one that a lock waits for. A run asks for locks only while it lacks nothing else.
        """
        found, asking = None, set()
        for needs in _in_order(line):
            entry = line.queues[needs][0]
            if needs[0] and not self._has_slot():
                continue
            if not _may_begin(line, entry):
                break
            if needs[1] and not self._gets_locks(line, entry[3]):
                asking.add(entry[3])
                continue
            found = needs
            break
        keep = {*asking, line.queues[found][0][3]} if found is not None else asking
        for run_id in line.asking - keep:
            self._asks_no_more(line, run_id)
            self._locks.table.withdraw(LockUser(run_id))
        return found

    def _gets_locks(self, line: _Line, run_id: str) -> bool:
        if run_id in line.asking:
            return self._locks.table.ready(LockUser(run_id))
        line.asking.add(run_id)
        if run_id in self._waiting_for_slot:
            self._slot_and_locks.add(run_id)
        return self._locks.table.ask(self._requests[run_id])

    def _asks_no_more(self, line: _Line, run_id: str) -> None:
        line.asking.discard(run_id)
        self._slot_and_locks.discard(run_id)

    def _start_first(self, line: _Line, needs: _Needs) -> None:
        run_id = heapq.heappop(line.queues[needs])[3]
        if needs[0]:
            del self._waiting_for_slot[run_id]
            self._sharing.add(run_id)
        if needs[1]:
            del self._requests[run_id]
            self._asks_no_more(line, run_id)
            self._locks.table.take(LockUser(run_id))
        self._start(line, line.waiting.pop(run_id))

    def _start(self, line: _Line, actor: RunActor) -> None:
        line.begun[actor.run.id] = actor
        actor.post(RunStarted())


def _in_order(line: _Line) -> list[_Needs]:
    """The heaps with waiting runs, by their first run."""
    for needs, heap in list(line.queues.items()):
        while heap and heap[0][3] not in line.waiting:
            heapq.heappop(heap)
        if not heap:
            del line.queues[needs]
    return sorted(line.queues, key=lambda needs: line.queues[needs][0])


def _may_begin(line: _Line, entry: _Entry) -> bool:
    return not is_full(entry[4], len(line.begun))
