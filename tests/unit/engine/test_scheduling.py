"""What is due is fired; what cannot be decided keeps nothing else from being so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from helpers.waiting import wait_for
from toban.definition.timing.model import Schedule
from toband.domain.schedules import FireOutcome, ScheduleEntry
from toband.engine.admission import Always
from toband.engine.health import Health
from toband.engine.scheduling import CONDITION, Scheduling
from toband.ports import Fired, Firing, StoreError

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


class Clock:
    def now(self) -> datetime:
        return NOW


class Alarm:
    def __init__(self) -> None:
        self.at: list[datetime | None] = []
        self.ring: Callable[[], None] = lambda: None

    def open(self, ring: Callable[[], None]) -> None:
        self.ring = ring

    def set(self, at: datetime | None) -> None:
        self.at.append(at)

    def close(self) -> None:
        return None


class Runs:
    async def wait_recovered(self) -> None:
        return None


class Stored:
    enabled = False
    definition = None


class Store:
    """Schedules in memory, of workflows that are disabled: nothing is started, everything has its line."""

    def __init__(self, *entries: ScheduleEntry) -> None:
        self.entries = {entry.id: entry for entry in entries}
        self.fired: list[Firing] = []
        self.fails = 0

    async def start_schedules(self, **_: object) -> Sequence[ScheduleEntry]:
        return []

    async def due_schedules(self, now: datetime, *, limit: int) -> Sequence[ScheduleEntry]:
        if self.fails:
            self.fails -= 1
            raise StoreError("not now")
        return [e for e in self.entries.values() if e.next_due is not None and e.next_due <= now]

    async def earliest_alarm(self) -> datetime | None:
        return min((e.next_due for e in self.entries.values() if e.next_due), default=None)

    async def get_workflow(self, name: str) -> Any:
        return Stored()

    async def fire(self, firing: Firing) -> Fired:
        self.fired.append(firing)
        self.entries[firing.after.id] = firing.after
        return Fired(runs=())


def entry(name: str, **changes: object) -> ScheduleEntry:
    made = ScheduleEntry(
        id=f"{name}/0", workflow=name, spec=Schedule(cron="0 * * * *"), zone="UTC",
        stored_at=NOW - timedelta(days=1), next_due=NOW,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


class Scene:
    def __init__(self, *entries: ScheduleEntry) -> None:
        self.store, self.alarm, self.health = Store(*entries), Alarm(), Health(Clock())
        self.scheduling = Scheduling(
            store=cast(Any, self.store), runs=cast(Any, Runs()), clock=Clock(), alarm=self.alarm,
            admission=Always(), conditions=self.health, zone="UTC", booted_at=NOW,
        )  # fmt: skip

    async def __aenter__(self) -> Scene:
        self._task = asyncio.get_running_loop().create_task(self.scheduling.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def looked(self, times: int = 1) -> None:
        await wait_for(lambda: len(self.alarm.at) >= times, "nobody set the alarm")


async def test_what_is_due_has_its_line_and_the_alarm_is_set_for_the_next() -> None:
    async with Scene(entry("w"), entry("later", next_due=NOW + timedelta(seconds=7))) as scene:
        await scene.looked()
        (firing,) = scene.store.fired
        assert [fire.outcome for fire in firing.fires] == [FireOutcome.SKIPPED]
        assert firing.fires[0].reason == "disabled"
        assert firing.after.next_due == NOW + timedelta(hours=1)
        assert scene.alarm.at == [NOW + timedelta(seconds=7)]


async def test_the_clock_is_looked_at_now_and_then_whatever_is_due_when() -> None:
    async with Scene(entry("w", next_due=NOW + timedelta(days=9))) as scene:
        await scene.looked()
        assert scene.alarm.at == [NOW + timedelta(seconds=30)]


async def test_one_that_cannot_be_decided_keeps_no_other_from_being_due() -> None:
    async with Scene(entry("lost", zone="Nowhere/Gone"), entry("w")) as scene:
        await scene.looked()
        assert [firing.before.workflow for firing in scene.store.fired] == ["w"]
        (condition,) = scene.health.conditions
        assert condition.name == CONDITION
        assert "lost/0" in condition.detail
        # It is due all the time, and is not looked at all the time.
        assert scene.alarm.at == [NOW + timedelta(seconds=1)]
        scene.alarm.ring()
        await scene.looked(2)
        assert len(scene.store.fired) == 1
        # Mended, it is due like any other, and nobody is in trouble.
        scene.store.entries["lost/0"] = entry("lost", next_due=NOW - timedelta(minutes=1))
        scene.scheduling.changed()
        await scene.looked(3)
        assert [firing.before.workflow for firing in scene.store.fired] == ["w", "lost"]
        assert list(scene.health.conditions) == []


async def test_a_database_that_fails_is_asked_again() -> None:
    scene = Scene(entry("w"))
    scene.store.fails = 2
    async with scene:
        await scene.looked()
        assert len(scene.store.fired) == 1


async def test_a_change_sets_the_alarm_anew() -> None:
    async with Scene(entry("w", next_due=NOW + timedelta(seconds=9))) as scene:
        await scene.looked()
        scene.store.entries["w/0"] = entry("w", next_due=NOW + timedelta(seconds=3))
        scene.scheduling.changed()
        await scene.looked(2)
        assert scene.alarm.at[-1] == NOW + timedelta(seconds=3)
