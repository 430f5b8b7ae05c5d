"""What the daemon itself has to say as events: about runs as they change, and about anything else that happens to it.

Only what somebody listens to is worth a row. While it is not known who does, everything is.
"""

from __future__ import annotations

import asyncio
from typing import Any

from toban.definition import RUN_FAILED, RUN_SUCCEEDED, STEP_FAILED
from toband.domain.emitted_events import Emitted, EventSource, announced
from toband.domain.run_model import Run
from toband.domain.transition import Ids
from toband.ports import Clock

_OF_RUNS = frozenset({RUN_SUCCEEDED, RUN_FAILED, STEP_FAILED})


class SystemEvents:
    """Belongs to the event loop. `fresh` is set when events may have been stored that nobody has resolved."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids
        self._listened: frozenset[str] | None = None
        self.fresh = asyncio.Event()

    def know(self, listened: frozenset[str] | None) -> None:
        """The types that somebody listens to; None: not known any more."""
        self._listened = listened

    @property
    def knows(self) -> bool:
        return self._listened is not None

    def listens(self, event_type: str) -> bool:
        return self._listened is None or event_type in self._listened

    def of_run(self, before: Run, after: Run) -> tuple[Emitted, ...]:
        """What a transition of a run announces, to be stored with it."""
        if self._listened is not None and not self._listened & _OF_RUNS:
            return ()
        return tuple(
            self.event(event_type, payload, run=after, step=step)
            for event_type, step, payload in announced(before, after)
            if self.listens(event_type)
        )

    def event(self, event_type: str, payload: Any, *, run: Run | None = None, step: str = "") -> Emitted:
        """One of the daemon's own; `run` is the one that it is about, and comes before it in its chain."""
        return Emitted(
            id=self._ids.new_id(),
            type=event_type,
            payload=payload,
            at=self._clock.now(),
            source=EventSource.DAEMON,
            source_run=run.id if run is not None else "",
            source_step=step,
            depth=run.depth + 1 if run is not None else 0,
        )
