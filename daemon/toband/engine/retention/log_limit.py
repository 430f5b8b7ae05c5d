"""The limit of all logs together: while they exceed it, the output of steps is dropped."""

from __future__ import annotations

import asyncio

import structlog

from toban.definition import format_size
from toband.engine.retention.run_sizes import RunSizes
from toband.ports import Archive, Conditions, HealthStatus, Store

log = structlog.get_logger()


class LogLimit:
    def __init__(
        self,
        limit: int,
        *,
        store: Store,
        archive: Archive,
        sizes: RunSizes,
        conditions: Conditions | None,
    ) -> None:
        self._limit = limit
        self._store = store
        self._archive = archive
        self._sizes = sizes
        self._conditions = conditions
        self._log_bytes: dict[str, int] = {}
        self._checking = asyncio.Lock()
        self.full: bool | None = None
        """None until the first check."""

    async def check(self) -> None:
        """Makes shims drop output while all logs together exceed the limit. Raises StoreError, OSError."""
        async with self._checking:
            await self._set(await self._add_up())

    async def _add_up(self) -> int:
        active = await self._store.active_run_ids()
        total = (await self._store.stored_size()).log_bytes
        ended: dict[str, int] = {}
        async for run in self._sizes.unmeasured():
            known = self._log_bytes.get(run.id)
            ended[run.id] = await self._archive.log_bytes([run.id]) if known is None else known
        self._log_bytes = ended
        return total + sum(ended.values()) + await self._archive.log_bytes(active)

    async def _set(self, total: int) -> None:
        # Hysteresis, so that it does not switch with every line.
        full = total > self._limit if not self.full else total > self._limit * 0.9
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
                    f"limits.total_logs = {format_size(self._limit)}; `toban system gc` may free some"
                )
                self._conditions.trouble("logs", HealthStatus.DEGRADED, detail)
            else:
                self._conditions.well("logs")
