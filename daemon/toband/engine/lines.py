"""Whose turn it is: the runs of one workflow that are under way, and those that wait for one of them to end.

Runs that events started also share places over all workflows, so that a flood of events does not take the machine.
A run that waits is PENDING in the database; this is only the order, and is worked out anew after a restart.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from toband.domain.model import Run

WAITING_MOST = 100
"""Runs of one workflow that may wait, other than for events."""

_Waiting = tuple[int, int, str, int | None]
"""Priority (the highest first), number (the oldest first), id, how many may be under way for it to begin.

Ids do not tell who is older: after a restart with a clock that was set back new ones sort before old ones.
"""


@dataclass(slots=True)
class _Line:
    begun: dict[str, None] = field(default_factory=dict)
    """In the order in which they began."""
    queue: list[_Waiting] = field(default_factory=list)
    sharing: list[_Waiting] = field(default_factory=list)
    """Likewise, of those that need one of the shared places."""
    waiting: set[str] = field(default_factory=set)


class Lines:
    """Belongs to the event loop. `begin` starts the run of an id; it must not enter or leave a line itself."""

    def __init__(self, begin: Callable[[str], None], *, places: int) -> None:
        """`places` is how many runs that events started may be under way at once."""
        self._begin = begin
        self._places = places
        self._lines: dict[str, _Line] = {}
        self._sharing: set[str] = set()
        self._waiting_for_place: dict[str, str] = {}
        """Workflows by the runs of theirs that wait and need a shared place."""

    def begun(self, run: Run) -> None:
        """It was under way before the restart."""
        self._line(run.workflow).begun[run.id] = None
        if run.by_event:
            self._sharing.add(run.id)

    def enter(self, run: Run, limit: int | None) -> None:
        """The run begins as soon as fewer than `limit` are under way and it is its turn; None: any number may be."""
        line = self._line(run.workflow)
        if limit is None and not run.by_event:
            line.begun[run.id] = None
            self._begin(run.id)
            return
        entry = (-run.priority, run.number, run.id, limit)
        heapq.heappush(line.sharing if run.by_event else line.queue, entry)
        line.waiting.add(run.id)
        if run.by_event:
            self._waiting_for_place[run.id] = run.workflow
        self._go_on(line)

    def leave(self, run: Run) -> None:
        """The run has ended, or was cancelled before it began."""
        line = self._lines.get(run.workflow)
        if line is None:
            return
        line.begun.pop(run.id, None)
        line.waiting.discard(run.id)
        self._waiting_for_place.pop(run.id, None)
        self._sharing.discard(run.id)
        self._go_on(line)
        if not line.begun and not line.waiting:
            del self._lines[run.workflow]
        if run.by_event:
            self._give_places()

    def waits(self, run: Run) -> bool:
        line = self._lines.get(run.workflow)
        return line is not None and run.id in line.waiting

    def waiting(self, workflow: str) -> list[str]:
        """Those that wait, by id."""
        line = self._lines.get(workflow)
        return sorted(line.waiting) if line is not None else []

    def under_way(self, workflow: str) -> list[str]:
        """Those that have begun, in that order."""
        line = self._lines.get(workflow)
        return list(line.begun) if line is not None else []

    def by_events(self) -> tuple[int, int]:
        """Runs that events started: how many are under way, and how many wait."""
        return len(self._sharing), len(self._waiting_for_place)

    def _line(self, workflow: str) -> _Line:
        return self._lines.setdefault(workflow, _Line())

    def _go_on(self, line: _Line) -> None:
        while (heap := self._next(line)) is not None:
            _, _, run_id, limit = heap[0]
            if limit is not None and len(line.begun) >= limit:
                return
            heapq.heappop(heap)
            line.waiting.discard(run_id)
            line.begun[run_id] = None
            if heap is line.sharing:
                del self._waiting_for_place[run_id]
                self._sharing.add(run_id)
            self._begin(run_id)

    def _next(self, line: _Line) -> list[_Waiting] | None:
        """The heap whose first is next. One that has no shared place does not hold up those that need none."""
        for heap in (line.queue, line.sharing):
            while heap and heap[0][2] not in line.waiting:
                heapq.heappop(heap)
        shared = line.sharing if line.sharing and len(self._sharing) < self._places else None
        if shared and line.queue:
            return min(line.queue, shared, key=lambda heap: heap[0])
        return shared or line.queue or None

    def _give_places(self) -> None:
        """Shared places are free: of all workflows' first ones the one of the highest priority, then the oldest."""
        blocked: set[str] = set()
        while len(self._sharing) < self._places:
            names = set(self._waiting_for_place.values()) - blocked
            lines = [(self._lines[name], name) for name in names]
            heads = [(line.sharing[0], name) for line, name in lines if self._next(line)]
            if not heads:
                return
            _, name = min(heads, key=lambda head: (head[0][0], head[0][2]))
            before = len(self._sharing)
            self._go_on(self._lines[name])
            if len(self._sharing) == before:
                blocked.add(name)  # as many of its own are under way as may be
