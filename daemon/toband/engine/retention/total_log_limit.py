"""The limit of all logs together: while they exceed it, the output of steps is dropped."""

from __future__ import annotations

import asyncio

import structlog

from toban.definition import format_size
from toband.engine.retention.run_sizes import RunSizes
from toband.ports import Archive, Conditions, HealthStatus, Store

log = structlog.get_logger()


class TotalLogLimit:
    def __init__(
        self,
        limit: int | None,
        *,
        store: Store,
        archive: Archive,
        sizes: RunSizes,
        conditions: Conditions | None,
    ) -> None:
        """`limit` in bytes; None: no limit."""
        self._limit = limit
        self._store = store
        self._archive = archive
        self._sizes = sizes
        self._conditions = conditions
        self._log_bytes: dict[str, int] = {}
        self._checking = asyncio.Lock()
        self.full: bool | None = None
        """None until the first check."""

    def use(self, limit: int | None) -> None:
        """Replaces the limit, for the next check."""
        self._limit = limit

    async def check(self) -> None:
        """Makes shims drop output while all logs together exceed the limit. Raises StoreError, OSError."""
        async with self._checking:
            limit = self._limit
            if limit is not None:
                await self._set(await self._add_up(), limit)
            elif self.full is not False:
                # Also at the start: an earlier daemon with a limit may have left it on.
                await self._set(0, 0)

    async def _add_up(self) -> int:
        active = await self._store.active_run_ids()
        total = (await self._store.stored_size()).log_bytes
        ended: dict[str, int] = {}
        async for run in self._sizes.unmeasured():
            known = self._log_bytes.get(run.id)
            ended[run.id] = await self._archive.log_bytes([run.id]) if known is None else known
        self._log_bytes = ended
        return total + sum(ended.values()) + await self._archive.log_bytes(active)

    async def _set(self, total: int, limit: int) -> None:
        # Hysteresis, so that it does not switch with every line.
        full = total > limit if not self.full else total > limit * 0.9
        if full != self.full:
            await self._archive.hold_output(full)
            if full:
                log.error("logs reached limits.total_logs", action="logs_full", bytes=total)
            elif self.full:
                log.info("logs are below limits.total_logs again", action="logs_have_room", bytes=total)
            self.full = full
        if self._conditions is not None:
            if full:
                detail = (
                    f"the output of steps is dropped: all logs together exceed "
                    f"limits.total_logs = {format_size(limit)}; `toban system gc` may free some"
                )
                self._conditions.trouble("logs", HealthStatus.DEGRADED, detail)
            else:
                self._conditions.well("logs")
