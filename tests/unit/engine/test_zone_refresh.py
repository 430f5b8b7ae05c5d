"""An update of the time zone database, on a running daemon and between two lives of it."""

from __future__ import annotations

import os
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path

import pytest

from doubles.clock import Clock
from doubles.store import define
from toban.definition.timing.zones import forget_zones
from toband.domain.schedule_model import Fire, FireOutcome, first_due
from toband.engine.schedules.zone_refresh import ZoneRefresh
from toband.ports import Firing
from toband.state_dir import NoticedZones
from toband.store import SqlStore

NOW = datetime(2026, 2, 1, 2, tzinfo=UTC)
AT_NINE = """
name: at-nine
description: x
schedule: [{cron: "0 9 * * *", timezone: Test/Zone}, {every: 6h, timezone: Test/Zone}]
steps: {a: {run: x}}
"""


class Zones:
    """A database of zones in a directory: one zone, with the rules of another."""

    def __init__(self, root: Path) -> None:
        self._file = root / "Test" / "Zone"
        self._file.parent.mkdir()
        self.update("Asia/Tokyo")

    def update(self, rules: str) -> None:
        new = self._file.with_suffix(".new")
        new.write_bytes(_data(rules))
        new.replace(self._file)


def _data(name: str) -> bytes:
    for directory in zoneinfo.TZPATH:
        if os.path.isfile(path := os.path.join(directory, name)):
            return Path(path).read_bytes()
    package, _, zone = name.rpartition("/")
    return resources.files(f"tzdata.zoneinfo.{package}").joinpath(zone).read_bytes()


@pytest.fixture
def zones(tmp_path: Path) -> Iterator[Zones]:
    place = tmp_path / "zoneinfo"
    place.mkdir()
    made = Zones(place)
    zoneinfo.reset_tzpath([str(place), *zoneinfo.TZPATH])
    forget_zones()
    yield made
    zoneinfo.reset_tzpath()
    forget_zones()


@pytest.fixture
def notes(tmp_path: Path) -> NoticedZones:
    return NoticedZones(str(tmp_path / "zones.json"))


def refresh(store: SqlStore, notes: NoticedZones, clock: Clock, moved: list[str]) -> ZoneRefresh:
    return ZoneRefresh(store=store, notes=notes, zone="UTC", clock=clock, changed=lambda: moved.append("moved"))


async def next_dues(store: SqlStore) -> list[datetime | None]:
    return [each.next_due for each in await store.list_schedules(workflow="at-nine")]


async def test_an_update_moves_the_due_times_that_are_to_come(
    store: SqlStore, zones: Zones, notes: NoticedZones
) -> None:
    await define(store, AT_NINE, NOW)
    clock, moved = Clock(NOW), list[str]()
    running = refresh(store, notes, clock, moved)
    await running.look()
    before = await next_dues(store)
    assert before[0] == datetime(2026, 2, 2, 0, tzinfo=UTC), "nine o'clock in Tokyo"
    await running.look()
    assert moved == []
    zones.update("Asia/Kathmandu")
    await running.look()
    after = await next_dues(store)
    assert after == [datetime(2026, 2, 1, 3, 15, tzinfo=UTC), before[1]], "nine o'clock in Kathmandu"
    assert moved == ["moved"]

    # The next daemon finds that nothing has changed; the one after the next update finds that.
    await refresh(store, notes, clock, moved).look()
    assert moved == ["moved"]
    zones.update("Asia/Tokyo")
    forget_zones()  # as in a new process
    await refresh(store, notes, clock, moved).look()
    assert (await next_dues(store))[0] == before[0]
    assert len(moved) == 2


async def test_a_due_time_that_has_come_or_was_decided_is_not_moved(
    store: SqlStore, zones: Zones, notes: NoticedZones
) -> None:
    await define(store, AT_NINE, NOW)
    clock, moved = Clock(NOW), list[str]()
    await refresh(store, notes, clock, moved).look()
    due = datetime(2026, 2, 2, 0, tzinfo=UTC)
    clock.at = due + timedelta(minutes=5)
    zones.update("Asia/Kathmandu")
    await refresh(store, notes, clock, moved).look()
    assert (await next_dues(store))[0] == due, "the scheduler decides it"

    entry = (await store.list_schedules(workflow="at-nine"))[0]
    line = Fire(schedule_id=entry.id, workflow="at-nine", due_at=due, outcome=FireOutcome.MISSED, at=due)
    await store.fire(Firing(before=entry, after=first_due(entry, due), fires=(line,)))
    # The clock was set back to before that.
    clock.at = NOW
    zones.update("Asia/Tokyo")
    await refresh(store, notes, clock, moved).look()
    assert (await next_dues(store))[0] == due + timedelta(days=1), "decided once"


async def test_unusable_notes_are_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "zones.json"
    for text in ("", "[]", '{"UTC": 5}', '{"UTC": ["x", "y"]}', "\0"):
        path.write_text(text)
        assert NoticedZones(str(path)).read() == {}
    NoticedZones(str(path)).keep({"UTC": (2026, "a")})
    assert NoticedZones(str(path)).read() == {"UTC": (2026, "a")}
    NoticedZones(str(tmp_path / "none" / "zones.json")).keep({})
