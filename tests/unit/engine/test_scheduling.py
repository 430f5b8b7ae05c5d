"""What is due is fired; what cannot be decided keeps nothing else from being so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, cast

from helpers.waiting import wait_for
from toban.definition.timing.model import Schedule
from toband.domain.schedules import FireOutcome, ScheduleEntry
from toband.domain.transition import Ids
from toband.engine.admission import Always
from toband.engine.announcing import Announcing
from toband.engine.blackouts import Blackouts
from toband.engine.draining import Draining
from toband.engine.health import Health
from toband.engine.scheduling import CONDITION, Scheduling
from toband.ports import Fired, Firing, StoreError

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


class Clock:
    def now(self) -> datetime:
        return NOW


def ids() -> Ids:
    numbers = count(1)
    return Ids(
        new_id=lambda: f"id-{next(numbers)}",
        new_token=lambda: "t",
        boot_id="b",
        random=lambda: 0.5,
    )


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


class Boot:
    def __init__(self) -> None:
        self.at = NOW - timedelta(minutes=5)
        self.done = False

    def finish(self) -> None:
        self.done = True


class Store:
    """Schedules in memory, of workflows that are disabled: nothing is started, everything has its line."""

    def __init__(self, *entries: ScheduleEntry) -> None:
        self.entries = {entry.id: entry for entry in entries}
        self.fired: list[Firing] = []
        self.fails = 0

    async def start_schedules(self, **_: object) -> Sequence[ScheduleEntry]:
        return [entry for entry in self.entries.values() if entry.spec.cron == "@reboot"]

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
        self.boot, self.definitions_read = Boot(), asyncio.Event()
        self.scheduling = Scheduling(
            store=cast(Any, self.store), runs=cast(Any, Runs()), clock=Clock(), alarm=self.alarm,
            admission=Always(), conditions=self.health, blackouts=Blackouts((), "UTC"), boot=self.boot,
            definitions_read=self.definitions_read,
            draining=Draining(), announcing=Announcing(Clock(), ids()),
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


def of_subject(**changes: object) -> ScheduleEntry:
    spec = Schedule(cron="0 * * * *", words="every hour", misfire_grace=1e9)
    made = entry("w", id="s-1", workflow="", spec=spec, subject="issue-42", action="reminder")
    return replace(made, caller="me", **changes)  # type: ignore[arg-type]


async def test_one_of_a_subject_is_told_of_as_an_event() -> None:
    async with Scene(of_subject(occurrences=2)) as scene:
        await scene.looked()
        (firing,) = scene.store.fired
        ((line, event),) = firing.events
        assert (firing.runs, firing.fires) == ((), ())
        assert (line.outcome, line.reason, line.run_id) == (
            FireOutcome.FIRED,
            f"event {event.id}",
            "",
        )
        assert (event.type, event.source, event.caller) == ("SCHEDULE_TRIGGERED", "daemon", "me")
        assert event.payload == {
            "issueId": "issue-42",
            "scheduleId": "s-1",
            "action": "reminder",
            "originalRequest": "every hour",
            "metadata": {
                "occurrences": 3,
                "nextRun": (NOW + timedelta(hours=1)).isoformat(),
            },
        }
        assert (event.schedule, event.scheduled_at, event.workflow) == ("s-1", NOW, "")


async def test_the_last_time_of_a_subject_has_no_next_one() -> None:
    once = Schedule(at=NOW, misfire_grace=1e9)
    async with Scene(of_subject(spec=once)) as scene:
        await scene.looked()
        ((_, event),) = scene.store.fired[0].events
        assert event.payload["metadata"] == {"occurrences": 1}
        assert event.payload["originalRequest"] == NOW.isoformat()


async def test_however_late_a_subject_hears_of_it_once_and_draining_is_not_in_the_way() -> None:
    scene = Scene(of_subject(next_due=NOW - timedelta(days=3)))
    scene.scheduling.drain()
    async with scene:
        await scene.looked()
        (firing,) = scene.store.fired
        ((line, event),) = firing.events
        assert (line.outcome, line.due_at) == (FireOutcome.FIRED, NOW)
        assert event.payload["metadata"]["occurrences"] == 73
        assert {fire.outcome for fire in firing.fires} == {FireOutcome.CAUGHT_UP}
        assert len(firing.fires) == 72
        assert {fire.reason for fire in firing.fires} == {f"event {event.id}"}


def at_boot(name: str) -> ScheduleEntry:
    return entry(name, spec=Schedule(cron="@reboot"), next_due=None)


async def test_what_is_due_at_boot_waits_for_the_files_and_comes_once() -> None:
    async with Scene(at_boot("w")) as scene:
        await scene.looked()
        assert (scene.store.fired, scene.boot.done) == ([], False)
        scene.definitions_read.set()
        scene.scheduling.changed()
        await scene.looked(2)
        (firing,) = scene.store.fired
        assert [line.due_at for line in firing.fires] == [scene.boot.at]
        assert scene.boot.done
        # What is stored later is for the next boot.
        scene.store.entries["v/0"] = at_boot("v")
        scene.scheduling.changed()
        await scene.looked(3)
        assert len(scene.store.fired) == 1


async def test_a_boot_that_another_daemon_saw_to_is_over() -> None:
    scene = Scene(at_boot("w"))
    scene.boot.done = True
    scene.definitions_read.set()
    async with scene:
        await scene.looked()
        assert scene.store.fired == []
