"""What live attempts use over time: samples them, keeps a small series of each, and stores it.

Nobody waits for any of this: a sample that is lost with the daemon is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from toband.domain.run_model import Sample, Usage
from toband.ports import AttemptStore, Clock, Meter, MeterReading, StoreError

TICK = 1.0
SAMPLES_MOST = 60
"""A series that grows beyond this loses every second sample, and grows at half the pace from then on."""
AT_ONCE = 50
"""With more live attempts than this, they are looked at less often."""
SAVE_EVERY = 60.0

log = structlog.get_logger()


@dataclass(slots=True)
class Series:
    """The samples of one attempt, and when the next one is due."""

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
        """Goes on where an earlier daemon stopped."""
        self.samples = list(stored.samples)
        self.peak_rss_bytes = stored.peak_rss_bytes
        self.peak_processes = stored.peak_processes
        if len(self.samples) > 1:
            whole = (self.samples[-1].at - self.samples[0].at).total_seconds()
            self.step = max(TICK, whole / (len(self.samples) - 1))

    def add(self, reading: MeterReading, at: datetime, now: float) -> None:
        """`now` is monotonic, `at` is what is shown."""
        cpu = 0.0
        if self.cpu_time is not None and now > self.read_at:
            # Time of processes that ended unwaited for is not counted any more: never below nothing.
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
        """What is known of these attempts, by id; nothing of those that were never looked at."""
        known = {one: self._series[one].usage() for one in attempt_ids if one in self._series}
        others = [one for one in attempt_ids if one not in known]
        return {**await self._store.usage_of(others), **known} if others else known

    async def run(self) -> None:
        """Until it is cancelled; then what was not saved yet is."""
        try:
            while True:
                await asyncio.sleep(max(TICK, TICK * len(self._seen) / AT_ONCE))
                try:
                    await self._look()
                except (OSError, StoreError) as error:
                    # What steps use is not worth the daemon: without descriptors nobody can be looked at.
                    log.warning("cannot look at processes", action="usage_failed", error=str(error))
        finally:
            await self._save(self._series)

    async def _look(self) -> None:
        live = frozenset(self._meter.live())
        now = asyncio.get_running_loop().time()
        # Only what was there a tick ago: most attempts are over before they are worth a look.
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
        """True when what changed is stored. A database that fails now is asked again at the next tick."""
        changed = {one: series for one, series in found.items() if series.changed}
        if not changed:
            return True
        now = asyncio.get_running_loop().time()
        try:
            await self._store.save_usage({one: s.usage() for one, s in changed.items()})
        except StoreError as error:
            log.warning("cannot keep resource samples", action="usage_failed", error=str(error))
            return False
        for series in changed.values():
            series.changed, series.saved_at = False, now
        return True
