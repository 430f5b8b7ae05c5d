"""Whose turn it is: the runs of one workflow that are under way, and those that wait for one of them to end.

A run that waits is PENDING in the database; this is only the order, and is worked out anew after a restart.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from toband.domain.model import Run

WAITING_MOST = 100
"""Runs of one workflow that may wait."""


@dataclass(slots=True)
class _Line:
    begun: dict[str, None] = field(default_factory=dict)
    """In the order in which they began."""
    queue: list[tuple[int, str, int | None]] = field(default_factory=list)
    """Priority (the highest first), id (the oldest first), how many may be under way for it to begin."""
    waiting: set[str] = field(default_factory=set)


class Lines:
    """Belongs to the event loop. `begin` starts the run of an id; it must not enter or leave a line itself."""

    def __init__(self, begin: Callable[[str], None]) -> None:
        self._begin = begin
        self._lines: dict[str, _Line] = {}

    def begun(self, run: Run) -> None:
        """It was under way before the restart."""
        self._line(run.workflow).begun[run.id] = None

    def enter(self, run: Run, limit: int | None) -> None:
        """The run begins as soon as fewer than `limit` are under way and it is its turn; None: at once."""
        line = self._line(run.workflow)
        if limit is None:
            line.begun[run.id] = None
            self._begin(run.id)
            return
        heapq.heappush(line.queue, (-run.priority, run.id, limit))
        line.waiting.add(run.id)
        self._go_on(line)

    def leave(self, run: Run) -> None:
        """The run has ended, or was cancelled before it began."""
        line = self._lines.get(run.workflow)
        if line is None:
            return
        line.begun.pop(run.id, None)
        line.waiting.discard(run.id)
        self._go_on(line)
        if not line.begun and not line.waiting:
            del self._lines[run.workflow]

    def waits(self, run: Run) -> bool:
        line = self._lines.get(run.workflow)
        return line is not None and run.id in line.waiting

    def waiting(self, workflow: str) -> list[str]:
        """Those that wait, the oldest first."""
        line = self._lines.get(workflow)
        return sorted(line.waiting) if line is not None else []

    def under_way(self, workflow: str) -> list[str]:
        """Those that have begun, in that order."""
        line = self._lines.get(workflow)
        return list(line.begun) if line is not None else []

    def _line(self, workflow: str) -> _Line:
        return self._lines.setdefault(workflow, _Line())

    def _go_on(self, line: _Line) -> None:
        while line.queue:
            _, run_id, limit = line.queue[0]
            if run_id in line.waiting:
                if limit is not None and len(line.begun) >= limit:
                    return
                line.waiting.discard(run_id)
                line.begun[run_id] = None
                self._begin(run_id)
            heapq.heappop(line.queue)
