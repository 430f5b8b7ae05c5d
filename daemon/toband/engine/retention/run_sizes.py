"""Sizes of ended runs on disk: logs are compressed after a while, and then the size of the run is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import structlog

from toband.engine.retention.retention_policy import Collected, RetentionRules
from toband.ports import Archive, Clock, EndedRun, RunSize, Store, StoreFullError

PAGE = 500

_Measured = dict[str, tuple[EndedRun, RunSize]]

log = structlog.get_logger()


class RunSizes:
    def __init__(self, *, store: Store, archive: Archive, clock: Clock, rules: RetentionRules) -> None:
        self._store = store
        self._archive = archive
        self._clock = clock
        self._compress_after = rules.compress_after
        # Ended runs whose final size is not stored yet.
        self._fresh: _Measured = {}
        # All ended runs with a smaller id are measured.
        self._measured_to = ""

    def use(self, rules: RetentionRules) -> None:
        """Replaces the rules."""
        self._compress_after = rules.compress_after

    def look_at_all(self) -> None:
        """Makes the next search for unmeasured runs start with the oldest."""
        self._measured_to = ""

    async def unmeasured(self) -> AsyncIterator[EndedRun]:
        """Oldest first."""
        start = self._measured_to
        while True:
            page = await self._store.unmeasured_runs(start=start, limit=PAGE)
            for run in page:
                yield run
            if len(page) < PAGE:
                return
            start = page[-1].id + "0"

    # -- known sizes

    def of(self, run: EndedRun) -> int:
        """The size in bytes; 0 if not measured yet."""
        if run.size is not None:
            return run.size.bytes
        fresh = self._fresh.get(run.id)
        return fresh[1].bytes if fresh is not None else 0

    def fresh_bytes(self) -> int:
        return sum(size.bytes for _, size in self._fresh.values())

    def fresh_by_workflow(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for run, size in self._fresh.values():
            found[run.workflow] += size.bytes
        return found

    def known(self, run: EndedRun) -> bool:
        return run.size is not None or run.id in self._fresh

    async def weigh(self, run: EndedRun) -> None:
        """Measures the run for now; it may still grow or shrink."""
        if run.id not in self._fresh:
            self._fresh[run.id] = (run, await self._archive.measure(run.id))

    def forget(self, run_id: str) -> None:
        """The run was removed."""
        self._fresh.pop(run_id, None)

    # -- final sizes

    def due(self, run: EndedRun) -> bool:
        """Whether the run ended long enough ago to be compressed and measured."""
        after = self._compress_after
        return after is None or run.finished_at <= self._clock.now() - timedelta(seconds=after)

    async def settle(self, done: Collected) -> None:
        """Compresses and measures runs that are due, and stores their sizes."""
        measured: _Measured = {}
        waiting: list[str] = []
        # Read first: a run that ends from now on is one of these, or has a larger id.
        newest = [run.id for run in await self._store.list_runs(limit=1)]
        active = await self._store.active_run_ids()
        async for run in self.unmeasured():
            size = await self._settle_run(run, done) if self.due(run) else None
            if size is None:
                waiting.append(run.id)
                await self.weigh(run)
                continue
            measured[run.id] = (run, size)
            if len(measured) >= PAGE:
                waiting += await self._keep(measured)
        waiting += await self._keep(measured)
        self._fresh = {key: self._fresh[key] for key in waiting if key in self._fresh}
        self._measured_to = min([*newest, *active, *waiting], default="")

    async def _settle_run(self, run: EndedRun, done: Collected) -> RunSize | None:
        try:
            if self._compress_after is not None:
                done.compressed_logs += await self._compress(run.id)
            done.strays += await self._archive.tidy(run.id)
        except OSError as error:
            log.warning(
                "cannot compress the logs of a run, trying again later",
                action="compress_failed",
                run=run.id,
                error=str(error),
            )
            return None
        return await self._archive.measure(run.id)

    async def _compress(self, run_id: str) -> int:
        count = ordinal = 0
        while await self._archive.compressible(run_id):
            attempts = await self._store.run_attempts(run_id, from_ordinal=ordinal, limit=PAGE)
            count += await self._archive.compress(attempts)
            if len(attempts) < PAGE:
                break
            ordinal = attempts[-1].ordinal + 1
        return count

    async def _keep(self, measured: _Measured) -> Sequence[str]:
        """Stores the sizes. Returns runs whose size could not be stored on a full disk; they count from memory."""
        left = []
        if measured:
            try:
                await self._store.save_sizes({key: size for key, (_, size) in measured.items()})
            except StoreFullError:
                self._fresh |= measured
                left = list(measured)
            else:
                for run_id in measured:
                    self._fresh.pop(run_id, None)
            measured.clear()
        return left
