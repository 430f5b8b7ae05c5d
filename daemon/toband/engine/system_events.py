"""System events: the events that the daemon itself emits, about changes of runs and about itself.

An event without a listener is not stored. As long as the listeners are unknown, all events are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from toban.definition import RUN_FAILED, RUN_SUCCEEDED, STEP_FAILED
from toband.domain.emitted_events import Emitted, EventSource, announced
from toband.domain.plan import Plan
from toband.domain.run_model import Run
from toband.domain.transition import Ids
from toband.ports import Clock

_OF_RUNS = frozenset({RUN_SUCCEEDED, RUN_FAILED, STEP_FAILED})


class SystemEvents:
    """Belongs to the event loop. `fresh` is set when new events may have to be resolved."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids
        self._listened: frozenset[str] | None = None
        self.awaited: Callable[[str], bool] = lambda _: False
        """Whether a step waits for events of that type."""
        self.fresh = asyncio.Event()

    def know(self, listened: frozenset[str] | None) -> None:
        """Sets the event types that have listeners; None: unknown."""
        self._listened = listened

    @property
    def knows(self) -> bool:
        return self._listened is not None

    def listens(self, event_type: str) -> bool:
        return self._listened is None or event_type in self._listened or self.awaited(event_type)

    def of_run(self, plan: Plan, before: Run, after: Run) -> tuple[Emitted, ...]:
        """The events of a run's transition, to be stored with it."""
        if not any(map(self.listens, _OF_RUNS)):
            return ()
        return tuple(
            self.event(event_type, payload, run=after, step=step)
            for event_type, step, payload in announced(plan, before, after)
            if self.listens(event_type)
        )

    def event(self, event_type: str, payload: Any, *, run: Run | None = None, step: str = "") -> Emitted:
        """An event of the daemon; `run` is its subject and precedes it in the chain of events."""
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
