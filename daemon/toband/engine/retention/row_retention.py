"""Row retention: how long idempotency keys, lines of the fire ledger, ended schedules and events stay stored."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from toband.ports import Clock, Store, StoreError

REQUESTS_KEPT = timedelta(days=7)
FIRES_KEPT = timedelta(days=90)
FIRES_MOST = 1000
"""Lines of the fire ledger per schedule."""
EVENTS_KEPT = timedelta(days=30)
EVENTS_MOST = 100_000
PASSES = 3600.0
"""Seconds between two passes."""

log = structlog.get_logger()


class RowRetention:
    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        """Removes old rows periodically, until it is cancelled."""
        while True:
            now = self._clock.now()
            try:
                await self._store.forget_requests(now - REQUESTS_KEPT)
                await self._store.forget_fires(now - FIRES_KEPT, FIRES_MOST)
                await self._store.forget_schedules(now - FIRES_KEPT)
                await self._store.forget_events(now - EVENTS_KEPT, EVENTS_MOST)
            except StoreError as error:
                log.error("cannot remove old rows", action="housekeeping", error=str(error))
            await asyncio.sleep(PASSES)
