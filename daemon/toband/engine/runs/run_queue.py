"""Run queue: the order in which runs of a workflow begin, and which of them wait for another to end.

Runs that events started also share slots over all workflows, so that a flood of events does not overload the machine.
A waiting run is PENDING in the database; the order exists in memory only and is rebuilt after a restart.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from toband.domain.overlap import OverlapRule, is_full, replacements, rule_for
from toband.domain.run_events import CancelRequested, RunStarted
from toband.domain.run_model import Run, RunState, Trigger
from toband.engine.execution.run_actor import RunActor

_Entry = tuple[bool, int, int, str, int | None]
"""Whether it belongs to a backfill (these come last), priority (highest first), number (oldest first), id, and how many
runs may be active when it begins.

Ids do not show which run is older: after a restart with a clock that was set back, new ids sort before old ones.
"""


@dataclass(slots=True)
class _Line:
    """The runs of one workflow."""

    begun: dict[str, RunActor] = field(default_factory=dict)
    """In the order in which they began."""
    waiting: dict[str, RunActor] = field(default_factory=dict)
    queue: list[_Entry] = field(default_factory=list)
    sharing: list[_Entry] = field(default_factory=list)
    """Like `queue`, for runs that need a shared slot."""


class RunQueue:
    """Belongs to the event loop. Until `restore` is called, runs that enter only wait."""

    def __init__(self, *, event_slots: int) -> None:
        """`event_slots` is how many runs that events started may be active at once."""
        self._event_slots = event_slots
        self._lines: dict[str, _Line] = {}
        self._sharing: set[str] = set()
        self._waiting_for_slot: dict[str, str] = {}
        """Workflows by those of their runs that wait and need a shared slot."""
        self._early: list[RunActor] | None = []
        self._held = False

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

    def enter(self, actor: RunActor) -> None:
        """Starts the run as soon as the overlap rule of its workflow allows it."""
        if self._early is not None:
            # The runs that wait already are not known yet.
            self._early.append(actor)
            return
        run = actor.run
        rule = rule_for(actor.plan.workflow, run)
        line = self._line(run.workflow)
        self._replace(line, actor, rule)
        if rule.limit is None and not run.by_event:
            self._start(line, actor)
            return
        entry = (run.trigger is Trigger.BACKFILL, -run.priority, run.number, run.id, rule.limit)
        heapq.heappush(line.sharing if run.by_event else line.queue, entry)
        line.waiting[run.id] = actor
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
        self._waiting_for_slot.pop(run.id, None)
        self._sharing.discard(run.id)
        self._go_on(line)
        if not line.begun and not line.waiting:
            del self._lines[run.workflow]

    def lacks_slot(self, run: Run) -> bool:
        """Whether the run waits, and only because runs of events in other workflows have all shared slots."""
        line = self._lines.get(run.workflow)
        if line is None or run.id not in self._waiting_for_slot or self._has_slot():
            return False
        first = self._first(line)
        return first is not None and first is line.sharing and _may_begin(line, first[0])

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
            found.post(CancelRequested(reason=f"replaced by run {newer}"))

    def _go_on(self, line: _Line) -> None:
        """Starts the runs that may begin after a change of this line or a freed shared slot."""
        if self._held:
            return
        while True:
            # First the runs that need no shared slot: behind them may be the next that lacks only that.
            self._start_others(line)
            taken = len(self._sharing)
            self._give_slots()
            if len(self._sharing) == taken:
                return

    def _start_others(self, line: _Line) -> None:
        """Starts the runs whose turn it is and that need no shared slot."""
        while True:
            heap = self._first(line)
            if heap is line.sharing and not self._has_slot():
                # A run without a shared slot does not delay those that need none.
                heap = line.queue
            if not heap or heap is line.sharing or not _may_begin(line, heap[0]):
                return
            self._start_first(line, heap)

    def _give_slots(self) -> None:
        """Gives shared slots to the runs that lack only that: highest priority first, then the oldest."""
        while self._has_slot():
            lines = [self._lines[name] for name in set(self._waiting_for_slot.values())]
            ready = [line for line in lines if self._first(line) is line.sharing and _may_begin(line, line.sharing[0])]
            if not ready:
                return
            # Numbers are counted per workflow: between workflows the ids show which run is older.
            best = min(ready, key=lambda line: (line.sharing[0][1], line.sharing[0][3]))
            self._start_first(best, best.sharing)

    def _start_first(self, line: _Line, heap: list[_Entry]) -> None:
        run_id = heapq.heappop(heap)[3]
        if heap is line.sharing:
            del self._waiting_for_slot[run_id]
            self._sharing.add(run_id)
        self._start(line, line.waiting.pop(run_id))

    def _start(self, line: _Line, actor: RunActor) -> None:
        line.begun[actor.run.id] = actor
        actor.post(RunStarted())

    def _first(self, line: _Line) -> list[_Entry] | None:
        """The heap that has the next run of the line."""
        for heap in (line.queue, line.sharing):
            while heap and heap[0][3] not in line.waiting:
                heapq.heappop(heap)
        if line.queue and line.sharing:
            return min(line.queue, line.sharing, key=lambda heap: heap[0])
        return line.queue or line.sharing or None


def _may_begin(line: _Line, entry: _Entry) -> bool:
    return not is_full(entry[4], len(line.begun))
