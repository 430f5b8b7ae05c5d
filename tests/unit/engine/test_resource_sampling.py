"""The series of samples that is kept of an attempt: small, whole, and never ahead of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import cast

import pytest

from contract.builders import launched, save, stored_run, with_workflow
from doubles.clock import Clock
from doubles.store import FaultyStore
from helpers.wait import wait_for
from toband.engine.runs import resource_sampling
from toband.engine.runs.resource_sampling import SAMPLES_MOST, ResourceSampler, Series
from toband.ports import MeterReading, Store, StoreError
from toband.store import SqlStore

START = datetime(2026, 1, 1, tzinfo=UTC)


def reading(cpu: float = 0.0, rss: int = 1, processes: int = 1) -> MeterReading:
    return MeterReading(cpu, rss, processes, None, None)


def filled(count: int) -> Series:
    series = Series()
    now, sampled = 0.0, 0
    while sampled < count:
        if now >= series.due:
            series.add(reading(cpu=now / 2, rss=sampled), START + timedelta(seconds=now), now)
            sampled += 1
        now += 1.0
    return series


def test_cpu_is_cores_over_the_time_between() -> None:
    series = Series()
    series.add(reading(cpu=5.0), START, 10.0)
    series.add(reading(cpu=8.0), START, 12.0)
    series.add(reading(cpu=7.0), START, 13.0)
    assert [sample.cpu for sample in series.samples] == [0.0, 1.5, 0.0]


@pytest.mark.parametrize("count", [1, SAMPLES_MOST, SAMPLES_MOST + 1, 3 * SAMPLES_MOST, 500])
def test_a_long_life_makes_a_series_that_is_no_longer(count: int) -> None:
    series = filled(count)
    assert len(series.samples) <= SAMPLES_MOST
    assert len(series.samples) >= min(count, SAMPLES_MOST // 2)
    assert series.samples[0].at == START
    times = [sample.at for sample in series.samples]
    assert times == sorted(times)
    gaps = {(b - a).total_seconds() for a, b in pairwise(times)}
    # Thinned evenly: but for the newest, all are as far apart as the pace of the series.
    assert all(gap <= series.step for gap in gaps)


def test_the_peak_is_of_all_that_was_seen() -> None:
    series = Series()
    for number in range(200):
        high = number == 101
        series.add(reading(rss=1000 if high else 1, processes=7 if high else 1), START, number)
    made = series.usage()
    assert (made.peak_rss_bytes, made.peak_processes) == (1000, 7)


def test_a_series_goes_on_at_its_pace_after_a_restart() -> None:
    before = filled(200)
    after = Series()
    after.resume(before.usage())
    assert after.usage() == before.usage()
    assert after.step == pytest.approx(before.step, rel=0.1)


class Meter:
    def __init__(self) -> None:
        self.there: dict[str, MeterReading] = {}

    def live(self) -> Collection[str]:
        return list(self.there)

    async def read(self, attempt_ids: Collection[str]) -> Mapping[str, MeterReading]:
        return {one: self.there[one] for one in attempt_ids if one in self.there}


async def test_what_ended_is_stored_and_forgotten(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_sampling, "TICK", 0.001)
    await with_workflow(store)
    run = await stored_run(store)
    attempt = (await save(store, run, launched(run, "s0"))).steps["s0"].attempt
    assert attempt is not None
    meter, faulty = Meter(), FaultyStore(store)
    usages = ResourceSampler(meter=meter, store=cast(Store, faulty), clock=Clock(START))
    task = asyncio.create_task(usages.run())
    meter.there[attempt.id] = reading(rss=50)
    await wait_for(lambda: attempt.id in usages._series, "it is not looked at")
    faulty.fail("save_usage", StoreError("the disk is full"))
    meter.there[attempt.id] = reading(rss=70)
    await wait_for(lambda: usages._series[attempt.id].peak_rss_bytes == 70, "it is not looked at again")
    meter.there.clear()
    await wait_for(lambda: faulty.calls["save_usage"], "nothing is stored")
    assert (await usages.of([attempt.id]))[attempt.id].peak_rss_bytes == 70, "kept while the store fails"
    faulty.repair()
    await wait_for(lambda: not usages._series, "it is not forgotten")
    stored = await store.usage_of([attempt.id])
    assert stored[attempt.id].peak_rss_bytes == 70
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await usages.of([attempt.id, "never"])) == stored


async def test_what_is_over_before_the_second_look_is_not_read(store: SqlStore) -> None:
    meter = Meter()
    usages = ResourceSampler(meter=meter, store=store, clock=Clock(START))
    meter.there["short"] = reading()
    await usages._look()
    meter.there.clear()
    await usages._look()
    assert await usages.of(["short"]) == {}
