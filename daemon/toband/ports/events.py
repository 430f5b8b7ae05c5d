"""Emitted events and the triggers of workflows, as the engine uses them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from toband.domain.emitted_events import Burst, Emitted, Listener, WatchedPath
from toband.domain.not_started import NotStarted
from toband.domain.run_model import Run
from toband.ports.records import EventResolution, Request, Resolved


class EventStore(Protocol):
    """Emitted events.

    Storing, changing, removing, enabling or disabling a definition adds a DEFINITION_CHANGED event in the same
    transaction if a workflow listens to that type: `{"entity": "workflow" | "job", "action": "created" | "updated" |
    "deleted" | "enabled" | "disabled", "data": {"name", "version", "owner"}}`, with the daemon as its source. If a step
    caused the change, the event names that run and step, and is one deeper than the run. Listeners are read before the
    change, so the first workflow that listens gets no event about itself. Workflows that get a new version because of a
    job they use have events too.
    """

    async def add_events(
        self, events: Sequence[Emitted], *, request: Request | None = None
    ) -> Sequence[tuple[Emitted, bool]]:
        """Stores events in one transaction; returns each with its sequence, and whether it is new.

        An event whose type and dedupe key, which is not empty, are those of a stored event is not stored: that event
        is returned, with its runs. A repeated request, which is for one event only, returns the same event, as it is
        now, and the same flag. Raises RequestReusedError; ValueError for a request with several events.
        """
        ...

    async def get_event(self, event_id: str) -> Emitted | None:
        """With its runs, by descending priority, then by name."""
        ...

    async def list_events(
        self,
        *,
        types: Sequence[str] = (),
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[Emitted]:
        """Newest first, with a sequence below `before`, with their runs."""
        ...

    async def events_after(
        self, sequence: int, *, up_to: int, types: Sequence[str] = (), limit: int = 100
    ) -> Sequence[Emitted]:
        """Oldest first, with a sequence above `sequence` and not above `up_to`, with their runs."""
        ...

    async def pending_events(self, *, after: int = 0, limit: int = 100) -> Sequence[Emitted]:
        """PENDING events, oldest first, with a sequence above `after`."""
        ...

    async def last_event(self) -> int:
        """The highest sequence; 0 if there was never an event."""
        ...

    async def resolve_event(self, resolution: EventResolution) -> Resolved | None:
        """Saves the decision on a PENDING event; saves nothing and returns None if it is not PENDING any more.

        One transaction, which may share its commit: the event, the outcome of each workflow, and the runs. The decision
        may be that it stays PENDING. A workflow that the event started before gets no second run: the result has it
        among the event's runs and not among the new runs. Raises RunGoneError as `create_run` does.
        """
        ...

    async def due_bursts(self, now: datetime, *, limit: int = 100) -> Sequence[Burst]:
        """Bursts whose run is due by then, in that order."""
        ...

    async def next_burst(self) -> datetime | None:
        """When the run of the next burst is due; None if there is none."""
        ...

    async def end_burst(
        self, burst: Burst, *, run: Run | None, max_active: int | None = None, reason: NotStarted | None = None
    ) -> Run | None:
        """Ends a burst with its run, or with the reason why there is none; returns the created run.

        One transaction: it removes the burst, decides the row of its last event, and creates the run; nothing if a
        further event has come. The row becomes SKIPPED if the run cannot be created, as in `resolve_event`.
        """
        ...

    async def forget_events(self, before: datetime, keep: int) -> int:
        """Removes events emitted before then, and all but the newest `keep`; returns their number.

        PENDING events stay, the last event stays because sequences are counted from it, and so do events that a
        remembered request was answered with. Runs several transactions, so that other writers do not wait long.
        """
        ...


class TriggerStore(Protocol):
    """Events that workflows listen to and paths that they watch; stored and removed with their definitions."""

    async def listened_types(self) -> frozenset[str]:
        """Types that a workflow or job listens to, enabled or not."""
        ...

    async def listeners(self, event_type: str) -> Sequence[Listener]:
        """All triggers for that type, by workflow and position."""
        ...

    async def watched_paths(self) -> Sequence[WatchedPath]:
        """Paths of enabled workflows, by workflow and in the order of their definitions."""
        ...
