"""Whose turn it is: the runs of one workflow that are under way, and those that wait for one of them to end.

Runs that events started also share places over all workflows, so that a flood of events does not take the machine.
A run that waits is PENDING in the database; this is only the order, and is worked out anew after a restart.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from toband.domain.run_model import Run

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
        self._held = False

    def begun(self, run: Run) -> None:
        """It was under way before the restart."""
        self._line(run.workflow).begun[run.id] = None
        if run.by_event:
            self._sharing.add(run.id)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Of those that enter meanwhile the first in order goes first, not the first that enters."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            for line in self._lines.values():
                self._go_on(line)

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

    def waits(self, run: Run) -> bool:
        line = self._lines.get(run.workflow)
        return line is not None and run.id in line.waiting

    def lacks_place(self, run: Run) -> bool:
        """Whether it waits, and runs of other workflows are the reason."""
        line = self._lines.get(run.workflow)
        if line is None or run.id not in self._waiting_for_place or self._has_place():
            return False
        first = self._first(line)
        return first is not None and first is line.sharing and _may_begin(line, first[0])

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

    def _has_place(self) -> bool:
        return len(self._sharing) < self._places

    def _go_on(self, line: _Line) -> None:
        """Something about this line has changed, or a shared place was left."""
        if self._held:
            return
        while True:
            # Before any place is given: who waits behind them may be the next that only lacks one.
            self._start_others(line)
            taken = len(self._sharing)
            self._give_places()
            if len(self._sharing) == taken:
                return

    def _start_others(self, line: _Line) -> None:
        """Those whose turn it is and that need no shared place."""
        while True:
            heap = self._first(line)
            if heap is line.sharing and not self._has_place():
                # One that has no shared place does not hold up those that need none.
                heap = line.queue
            if not heap or heap is line.sharing or not _may_begin(line, heap[0]):
                return
            self._start(line, heap)

    def _give_places(self) -> None:
        """To the one of the highest priority, then the oldest, of all that only lack a place."""
        while self._has_place():
            lines = [self._lines[name] for name in set(self._waiting_for_place.values())]
            ready = [line for line in lines if self._first(line) is line.sharing and _may_begin(line, line.sharing[0])]
            if not ready:
                return
            # Numbers are counted by workflow: between two of them the ids tell who is older.
            best = min(ready, key=lambda line: (line.sharing[0][0], line.sharing[0][2]))
            self._start(best, best.sharing)

    def _start(self, line: _Line, heap: list[_Waiting]) -> None:
        run_id = heapq.heappop(heap)[2]
        line.waiting.discard(run_id)
        line.begun[run_id] = None
        if heap is line.sharing:
            del self._waiting_for_place[run_id]
            self._sharing.add(run_id)
        self._begin(run_id)

    def _first(self, line: _Line) -> list[_Waiting] | None:
        """The heap whose first is the line's next."""
        for heap in (line.queue, line.sharing):
            while heap and heap[0][2] not in line.waiting:
                heapq.heappop(heap)
        if line.queue and line.sharing:
            return min(line.queue, line.sharing, key=lambda heap: heap[0])
        return line.queue or line.sharing or None


def _may_begin(line: _Line, waiting: _Waiting) -> bool:
    limit = waiting[3]
    return limit is None or len(line.begun) < limit
