"""Event chains: what followed from an event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toband.domain.emitted_events import Emitted
from toband.domain.run_model import Run
from toband.engine.errors import EventNotFoundError
from toband.ports import Store

MOST = 500
"""Events and runs of a chain, together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventChain:
    """`runs` with the events that started them. `truncated`: more followed."""

    events: Sequence[Emitted]
    runs: Sequence[tuple[str, Run]]
    truncated: bool


class EventChains:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, event_id: str) -> EventChain:
        """By levels: the runs of some events, then the events of these runs. Raises EventNotFoundError."""
        first = await self._store.get_event(event_id)
        if first is None:
            raise EventNotFoundError(event_id)
        events, runs = {first.id: first}, dict[str, tuple[str, Run]]()
        level: Sequence[Emitted] = [first]
        truncated = False
        while level and not truncated:
            started = {each.run_id: event.id for event in level for each in event.runs if each.run_id}
            room = MOST - len(events) - len(runs)
            ids = [run_id for run_id in started if run_id not in runs]
            truncated = len(ids) > room
            found = await self._store.headers(ids[:room])
            runs |= {run.id: (started[run.id], run) for run in found}
            room -= len(found)
            emitted = await self._store.events_of_runs([run.id for run in found], limit=room + 1) if found else []
            truncated = truncated or len(emitted) > room
            level = [event for event in emitted[:room] if event.id not in events]
            events |= {event.id: event for event in level}
        ordered = sorted(events.values(), key=lambda event: event.sequence)
        return EventChain(events=ordered, runs=list(runs.values()), truncated=truncated)
