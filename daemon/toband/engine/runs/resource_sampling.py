"""Resource sampling: measures CPU, memory and IO of running attempts, and stores a small series of each.

Best effort: samples that a crash of the daemon loses are not made up for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from toband.domain.attempt_model import Sample, Usage
from toband.ports import AttemptStore, Clock, Meter, MeterReading, StoreError

TICK = 1.0
SAMPLES_MOST = 60
"""A longer series drops every second sample, and grows at half the pace from then on."""
AT_ONCE = 50
"""With more running attempts than this, each is sampled less often."""
SAVE_EVERY = 60.0

log = structlog.get_logger()


@dataclass(slots=True)
class Series:
    """The samples of one attempt, and the time of the next one."""

    step: float = TICK
    due: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    peak_rss_bytes: int = 0
    peak_processes: int = 0
    cpu_time: float | None = None
    read_at: float = 0.0
    saved_at: float = 0.0
    changed: bool = False

    def usage(self) -> Usage:
        return Usage(
            samples=tuple(self.samples),
            peak_rss_bytes=self.peak_rss_bytes,
            peak_processes=self.peak_processes,
        )

    def resume(self, stored: Usage) -> None:
        """Continues the series of an earlier daemon."""
        self.samples = list(stored.samples)
        self.peak_rss_bytes = stored.peak_rss_bytes
        self.peak_processes = stored.peak_processes
        if len(self.samples) > 1:
            whole = (self.samples[-1].at - self.samples[0].at).total_seconds()
            self.step = max(TICK, whole / (len(self.samples) - 1))

    def add(self, reading: MeterReading, at: datetime, now: float) -> None:
        """`now` is monotonic time, `at` the time that clients see."""
        cpu = 0.0
        if self.cpu_time is not None and now > self.read_at:
            # The time of processes that were never reaped is no longer counted: the difference may be negative.
            cpu = max(0.0, reading.cpu_time - self.cpu_time) / (now - self.read_at)
        self.cpu_time, self.read_at = reading.cpu_time, now
        self.samples.append(
            Sample(
                at=at,
                cpu=cpu,
                rss_bytes=reading.rss_bytes,
                processes=reading.processes,
                read_bytes=reading.read_bytes,
                written_bytes=reading.written_bytes,
            )
        )
        self.peak_rss_bytes = max(self.peak_rss_bytes, reading.rss_bytes)
        self.peak_processes = max(self.peak_processes, reading.processes)
        if len(self.samples) > SAMPLES_MOST:
            del self.samples[1::2]
            self.step *= 2
        self.due = now + self.step
        self.changed = True


class ResourceSampler:
    def __init__(self, *, meter: Meter, store: AttemptStore, clock: Clock) -> None:
        self._meter = meter
        self._store = store
        self._clock = clock
        self._series: dict[str, Series] = {}
        self._seen: frozenset[str] = frozenset()

    async def of(self, attempt_ids: Collection[str]) -> Mapping[str, Usage]:
        """The usage of these attempts, by id; attempts that were never sampled are left out."""
        known = {one: self._series[one].usage() for one in attempt_ids if one in self._series}
        others = [one for one in attempt_ids if one not in known]
        return {**await self._store.usage_of(others), **known} if others else known

    async def run(self) -> None:
        """Runs until it is cancelled, then saves the rest."""
        try:
            while True:
                await asyncio.sleep(max(TICK, TICK * len(self._seen) / AT_ONCE))
                try:
                    await self._look()
                except (OSError, StoreError) as error:
                    # A daemon without free descriptors, for example, goes on without samples.
                    log.warning("cannot measure processes", action="usage_failed", error=str(error))
        finally:
            await self._save(self._series)

    async def _look(self) -> None:
        live = frozenset(self._meter.live())
        now = asyncio.get_running_loop().time()
        # Only attempts that ran a tick ago: most end before they are worth a sample.
        due = [one for one in live & self._seen if self._due(one, now)]
        self._seen = live
        readings = await self._meter.read(due) if due else {}
        for attempt_id, reading in readings.items():
            series = self._series.get(attempt_id) or await self._resumed(attempt_id)
            self._series[attempt_id] = series
            series.add(reading, self._clock.now(), asyncio.get_running_loop().time())
        ended = {one: series for one, series in self._series.items() if one not in live}
        late = {
            one: series for one, series in self._series.items() if one in live and now - series.saved_at > SAVE_EVERY
        }
        if await self._save(ended | late):
            for one in ended:
                del self._series[one]

    def _due(self, attempt_id: str, now: float) -> bool:
        series = self._series.get(attempt_id)
        return series is None or now >= series.due

    async def _resumed(self, attempt_id: str) -> Series:
        series = Series()
        try:
            stored = await self._store.usage_of([attempt_id])
        except StoreError:
            return series
        if attempt_id in stored:
            series.resume(stored[attempt_id])
        return series

    async def _save(self, found: Mapping[str, Series]) -> bool:
        """Whether all changes are stored. If the database fails, the next tick tries again."""
        changed = {one: series for one, series in found.items() if series.changed}
        if not changed:
            return True
        now = asyncio.get_running_loop().time()
        try:
            await self._store.save_usage({one: s.usage() for one, s in changed.items()})
        except StoreError as error:
            log.warning("cannot store resource samples", action="usage_failed", error=str(error))
            return False
        for series in changed.values():
            series.changed, series.saved_at = False, now
        return True
