"""Row retention: how long rows that do not belong to a run stay stored, and free space of the database is returned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog

from toband.engine.retention.clock_trust import ClockTrust
from toband.ports import Clock, Store, StoreError

PASSES = 3600.0
"""Seconds between two passes."""
PAGES_AT_ONCE = 256
"""Pages that are returned in one transaction: other writers wait for milliseconds."""
PACE = 0.2
"""Seconds between two of these transactions."""
_ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
_ANY_NUMBER = 2**31 - 1

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLimits:
    """Ages in seconds; None: no limit."""

    requests: float | None = None
    ledger: float | None = None
    """Lines of the fire ledger, and schedules of subjects that have ended."""
    ledger_entries: int | None = None
    """Lines per schedule."""
    events: float | None = None
    total_events: int | None = None
    tokens: float | None = None
    """Since they expired or were revoked."""
    versions: int | None = None
    """Versions of a definition; those of deleted ones, without runs, stay as long as ended tokens."""


class RowRetention:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        limits: RowLimits,
        forget_tokens: Callable[[datetime], Awaitable[None]],
        trust: ClockTrust | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._forget_tokens = forget_tokens
        self._trust = trust or ClockTrust(clock)

    def use(self, limits: RowLimits) -> None:
        """Replaces the limits, for the next pass."""
        self._limits = limits

    async def run(self) -> None:
        """Removes old rows periodically, until it is cancelled."""
        while True:
            try:
                await self.run_pass()
            except StoreError as error:
                log.error("cannot remove old rows", action="housekeeping", error=str(error))
            await asyncio.sleep(PASSES)

    async def run_pass(self) -> None:
        """Raises StoreError."""
        newest = [run.created_at for run in await self._store.list_runs(limit=1)]
        if self._trust.look(newest[0] if newest else None):
            await self.remove()
        await self._release_space()

    async def remove(self) -> None:
        """Raises StoreError."""
        limits, store = self._limits, self._store
        if limits.requests is not None:
            await store.forget_requests(self._before(limits.requests))
        if limits.ledger is not None or limits.ledger_entries is not None:
            await store.forget_fires(self._before(limits.ledger), limits.ledger_entries or _ANY_NUMBER)
        if limits.ledger is not None:
            await store.forget_schedules(self._before(limits.ledger))
        if limits.events is not None or limits.total_events is not None:
            await store.forget_events(self._before(limits.events), limits.total_events or _ANY_NUMBER)
        if limits.tokens is not None:
            await self._forget_tokens(self._before(limits.tokens))
        if limits.versions is not None:
            await store.forget_versions(self._before(limits.tokens), limits.versions)

    async def _release_space(self) -> None:
        """Raises StoreError."""
        while True:
            if not await self._store.release_space(PAGES_AT_ONCE):
                return
            await asyncio.sleep(PACE)

    def _before(self, age: float | None) -> datetime:
        return _ALWAYS if age is None else self._clock.now() - timedelta(seconds=age)
