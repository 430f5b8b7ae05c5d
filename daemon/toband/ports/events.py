"""What the store keeps of events that were emitted, and of the workflows that listen to them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from toband.domain.emitted_events import Emitted, Listener, WatchedPath
from toband.ports.records import EventResolution, Request, Resolved


class EventStore(Protocol):
    """The part of a store that knows events.

    What definitions listen to is stored and removed with them, see WorkflowText. A definition that is stored, changed,
    removed, enabled or disabled makes a DATA_CHANGED event in the same transaction, if any workflow listens to that
    type: `{"entity": "workflow" | "job", "action": "created" | "updated" | "deleted" | "enabled" | "disabled", "data":
    {"name", "version", "owner"}}`, from the daemon; with the run and the step of its `cause`, and one deeper than that
    run, if a step did it. Who listens is looked up before the change: the first workflow that
    does is not told that it was stored. Users of a job that get a new version with it are told of too.
    """

    async def add_events(
        self, events: Sequence[Emitted], *, request: Request | None = None
    ) -> Sequence[tuple[Emitted, bool]]:
        """Stores events; answers each with its sequence, and whether it is new.

        They get their sequence in order, in one transaction. One whose type has an event with the same dedupe key,
        which is not empty, is not stored: that event is the answer, with its runs. A repeated request, which is for one
        event only, answers what the first one did: the event as it is now, and whether it was new then. Raises
        RequestReusedError; ValueError for a request that is for more than one.
        """
        ...

    async def get_event(self, event_id: str) -> Emitted | None:
        """With its runs, those of the highest priority first, then by name."""
        ...

    async def list_events(
        self,
        *,
        types: Sequence[str] = (),
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[Emitted]:
        """Newest first, those with a sequence below `before`, with their runs."""
        ...

    async def events_after(
        self, sequence: int, *, up_to: int, types: Sequence[str] = (), limit: int = 100
    ) -> Sequence[Emitted]:
        """Oldest first, those with a sequence above it and not above `up_to`, with their runs."""
        ...

    async def pending_events(self, *, after: int = 0, limit: int = 100) -> Sequence[Emitted]:
        """Those that are PENDING, oldest first, with a sequence above `after`."""
        ...

    async def last_event(self) -> int:
        """The highest sequence; 0 if there was never an event."""
        ...

    async def listened_types(self) -> frozenset[str]:
        """The types that some workflow or job listens to, whether it is enabled or not."""
        ...

    async def listeners(self, event_type: str) -> Sequence[Listener]:
        """All triggers for that type, by workflow and position."""
        ...

    async def watched_paths(self) -> Sequence[WatchedPath]:
        """What enabled workflows watch, by workflow and in the order of their definitions."""
        ...

    async def resolve_event(self, resolution: EventResolution) -> Resolved | None:
        """Saves what was decided about a PENDING event; None, and nothing is saved, if it is not PENDING any more.

        One transaction, which many share: the event, what became of each workflow, and the runs. It may stay PENDING,
        if that is what was decided. A workflow that the event started before gets no second run: it is among
        those of the event, and not among the runs of the answer. Raises RunGoneError as `create_run` does.
        """
        ...

    async def forget_events(self, before: datetime, keep: int) -> int:
        """Removes events that are not PENDING and were emitted before then, and all but the newest `keep`; how many.

        In several transactions, so that nobody has to wait long. The last event stays: sequences go on from it. So does
        one that a request was answered with, as long as that is remembered: repeated, it is answered with it again.
        """
        ...
