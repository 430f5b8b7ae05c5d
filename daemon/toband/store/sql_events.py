"""Events and those who listen to them, as the port has them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from toband.domain.emitted_events import Emitted, Listener, WatchedPath
from toband.ports import EventResolution, Request, Resolved
from toband.store.rows import event_triggers, watched_paths
from toband.store.rows import events as emitted
from toband.store.sql.open_database import OpenDatabase


class SqlEvents(OpenDatabase):
    """`toband.ports.EventStore`."""

    async def add_events(
        self, events: Sequence[Emitted], *, request: Request | None = None
    ) -> Sequence[tuple[Emitted, bool]]:
        return await self._write.do(emitted.add(self._sql, events, request))

    async def get_event(self, event_id: str) -> Emitted | None:
        return await self._read(emitted.read, event_id)

    async def list_events(
        self,
        *,
        types: Sequence[str] = (),
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[Emitted]:
        return await self._read(emitted.read_all, types, before, limit)

    async def events_after(
        self, sequence: int, *, up_to: int, types: Sequence[str] = (), limit: int = 100
    ) -> Sequence[Emitted]:
        return await self._read(emitted.read_after, sequence, up_to, types, limit)

    async def pending_events(self, *, after: int = 0, limit: int = 100) -> Sequence[Emitted]:
        return await self._read(emitted.read_pending, after, limit)

    async def last_event(self) -> int:
        return await self._read(emitted.read_last)

    async def listened_types(self) -> frozenset[str]:
        return await self._read(event_triggers.read_types)

    async def listeners(self, event_type: str) -> Sequence[Listener]:
        return await self._read(event_triggers.read_listeners, event_type)

    async def watched_paths(self) -> Sequence[WatchedPath]:
        return await self._read(watched_paths.read)

    async def resolve_event(self, resolution: EventResolution) -> Resolved | None:
        return await self._write.do(emitted.resolve(self._sql, resolution))

    async def forget_events(self, before: datetime, keep: int) -> int:
        gone = 0
        while ids := await self._read(emitted.read_old, before):
            removed = await self._write.do(emitted.remove(ids))
            gone += removed
            if not removed:
                break  # all of them came to be needed meanwhile
        first_kept = await self._read(emitted.read_first_kept, keep)
        after = 0
        while found := await self._read(emitted.read_surplus, after, first_kept):
            gone += await self._write.do(emitted.remove([event_id for event_id, _ in found]))
            after = found[-1][1]
        return gone
