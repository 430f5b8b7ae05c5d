"""Due schedules fire; a schedule that cannot be decided blocks no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, cast

import pytest

from contract.builders import new_run, text
from contract.scheduled import with_schedules
from doubles.alarm import Alarm
from doubles.clock import Clock
from doubles.ids import numbered_ids
from doubles.store import FaultyStore
from helpers.wait import wait_for
from toban.definition import Overlap
from toban.definition.timing.schedule_spec import Misfire, Schedule
from toband.domain.misfire import LINES_AT_ONCE
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.overlap import OverlapRule
from toband.domain.run_model import Run
from toband.domain.schedule_model import Fire, FireOutcome, ScheduleEntry
from toband.engine.drain import DrainMode
from toband.engine.health.admission import Always
from toband.engine.health.health_conditions import Health
from toband.engine.schedules.active_blackouts import ActiveBlackouts
from toband.engine.schedules.catch_up import CATCH_UP_AT_ONCE
from toband.engine.schedules.scheduler import AT_ONCE, CLOCK, CONDITION, RunScheduler
from toband.engine.system_events import SystemEvents
from toband.ports import Firing, Store, StoredWorkflow, StoreError, WorkflowText
from toband.store import SqlStore

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


QUEUED = OverlapRule(Overlap.QUEUE, 1, None)


@dataclass(frozen=True)
class Made:
    """A run that is not stored yet."""

    run: Run
    overlap: OverlapRule = QUEUED


class Runs:
    def __init__(self) -> None:
        self.on_end: Callable[[str], None] = lambda _: None
        self.loaded = asyncio.Event()
        self.loaded.set()
        self.begun: list[Run] = []
        self.active = 0
        self.ahead: list[int] = []
        self.takes: Callable[[], None] = lambda: None

    def count(self, workflow: str) -> int:
        return self.active

    async def scheduled(
        self, stored: StoredWorkflow, *_: object, at: datetime, ahead: int, missed: Sequence[datetime], **__: object
    ) -> Made:
        self.ahead.append(ahead)
        self.takes()
        return Made(new_run(stored.name, scheduled_at=at, missed=tuple(missed)))

    def begin(self, new: Made, run: Run) -> None:
        self.begun.append(run)

    def end(self, workflow: str) -> None:
        self.active = 0
        self.on_end(workflow)


class Boot:
    def __init__(self) -> None:
        self.at = NOW - timedelta(minutes=5)
        self.done = False

    def finish(self) -> None:
        self.done = True


def entry(name: str, **changes: object) -> ScheduleEntry:
    made = ScheduleEntry(
        id=f"{name}/0",
        workflow=name,
        spec=Schedule(cron="0 * * * *"),
        zone="UTC",
        stored_at=NOW - timedelta(days=1),
        next_due=NOW,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


class Scene:
    """A scheduler. Without `works` its workflows are disabled: nothing starts, every due time has its line."""

    def __init__(self, store: SqlStore) -> None:
        self.clock, self.runs, self.alarm = Clock(NOW), Runs(), Alarm()
        self.store, self.health = FaultyStore(store), Health(self.clock)
        self.boot, self.definitions_read = Boot(), asyncio.Event()
        self._entries: list[ScheduleEntry] = []
        self._definition: dict[str, object] | None = None
        self.scheduling = RunScheduler(
            store=cast(Store, self.store),
            active=cast(Any, self.runs),
            queue=cast(Any, self.runs),
            intake=cast(Any, self.runs),
            clock=self.clock,
            alarm=self.alarm,
            admission=Always(),
            conditions=self.health,
            blackouts=ActiveBlackouts((), "UTC"),
            boot=self.boot,
            definitions_read=self.definitions_read,
            draining=DrainMode(),
            announcing=SystemEvents(self.clock, numbered_ids()),
        )

    def __call__(self, *entries: ScheduleEntry) -> Scene:
        """With these schedules, and with the workflows that they start."""
        self._entries += entries
        return self

    def works(self, **parsed: object) -> Scene:
        """Its workflows are enabled, with such a definition."""
        self._definition = parsed
        return self

    def _text(self, workflow: str, schedules: Iterable[ScheduleEntry]) -> WorkflowText:
        enabled = self._definition is not None
        return text(workflow, enabled=enabled, parsed=self._definition or {}, schedules=tuple(schedules))

    async def __aenter__(self) -> Scene:
        of_workflows = sorted((each for each in self._entries if each.workflow), key=lambda each: each.workflow)
        texts = [self._text(*each) for each in groupby(of_workflows, lambda each: each.workflow)]
        await asyncio.gather(*(self.store.create_workflow(each, at=NOW) for each in texts))
        for each in self._entries:
            if each.subject:
                await self.store.create_schedule(each)
        self._task = asyncio.get_running_loop().create_task(self.scheduling.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def change(self, entry: ScheduleEntry) -> None:
        """The workflow has this schedule now."""
        await self.store.update_workflow(self._text(entry.workflow, [entry]), at=NOW)
        self.scheduling.changed()

    @property
    def fired(self) -> list[Firing]:
        return self.store.given["fire"]

    async def lines(self, schedule_id: str) -> Sequence[Fire]:
        return cast(Sequence[Fire], await self.store.fires(schedule_id=schedule_id))

    async def looked(self, times: int = 1) -> None:
        await wait_for(lambda: len(self.alarm.at) >= times, "nobody set the alarm")

    async def later(self, seconds: float) -> None:
        """Advances the clock and lets the scheduler run."""
        self.clock.advance(seconds)
        before = len(self.alarm.at)
        self.alarm.ring()
        await self.looked(before + 1)


@pytest.fixture
async def scene(store: SqlStore) -> Scene:
    return Scene(store)


async def test_what_is_due_has_its_line_and_the_alarm_is_set_for_the_next(scene: Scene) -> None:
    async with scene(entry("w"), entry("later", next_due=NOW + timedelta(seconds=7))):
        await scene.looked()
        (firing,) = scene.fired
        assert [fire.outcome for fire in firing.fires] == [FireOutcome.SKIPPED]
        assert firing.fires[0].reason == NotStarted(NotStartedReason.DISABLED)
        assert firing.after.next_due == NOW + timedelta(hours=1)
        assert scene.alarm.at == [NOW + timedelta(seconds=7)]


async def test_the_clock_is_looked_at_now_and_then_whatever_is_due_when(scene: Scene) -> None:
    async with scene(entry("w", next_due=NOW + timedelta(days=9))):
        await scene.looked()
        assert scene.alarm.at == [NOW + timedelta(seconds=30)]


async def test_one_that_cannot_be_decided_keeps_no_other_from_being_due(scene: Scene) -> None:
    async with scene(entry("lost", zone="Nowhere/Gone"), entry("w")):
        await scene.looked()
        assert [firing.before.workflow for firing in scene.fired] == ["w"]
        (condition,) = scene.health.conditions
        assert condition.name == CONDITION
        assert "lost/0" in condition.detail
        # It is due all the time, and is not looked at all the time.
        assert scene.alarm.at == [NOW + timedelta(seconds=30)]
        scene.alarm.ring()
        await scene.looked(2)
        assert len(scene.fired) == 1
        # Mended, it is due like any other, and nobody is in trouble.
        await scene.change(entry("lost", next_due=NOW - timedelta(minutes=1)))
        await scene.looked(3)
        assert [firing.before.workflow for firing in scene.fired] == ["w", "lost"]
        assert list(scene.health.conditions) == []


async def test_a_database_that_fails_is_asked_again(scene: Scene) -> None:
    scene(entry("w"))
    scene.store.fail("due_schedules", StoreError("not now"), times=2)
    async with scene:
        await scene.looked()
        assert len(scene.fired) == 1


async def test_a_change_sets_the_alarm_anew(scene: Scene) -> None:
    async with scene(entry("w", next_due=NOW + timedelta(seconds=9))):
        await scene.looked()
        await scene.change(entry("w", spec=Schedule(every=3.0), next_due=NOW + timedelta(seconds=3)))
        await scene.looked(2)
        assert scene.alarm.at[-1] == NOW + timedelta(seconds=3)


def of_subject(**changes: object) -> ScheduleEntry:
    spec = Schedule(cron="0 * * * *", words="every hour", misfire_grace=1e9)
    made = entry("w", id="s-1", workflow="", spec=spec, subject="issue-42", action="reminder")
    return replace(made, caller="me", **changes)  # type: ignore[arg-type]


async def test_one_of_a_subject_is_told_of_as_an_event(scene: Scene) -> None:
    async with scene(of_subject(occurrences=2)):
        await scene.looked()
        (firing,) = scene.fired
        ((line, event),) = firing.events
        assert (firing.runs, firing.fires) == ((), ())
        assert (line.outcome, line.event_id, line.run_id) == (FireOutcome.FIRED, event.id, "")
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


async def test_the_last_time_of_a_subject_has_no_next_one(scene: Scene) -> None:
    once = Schedule(at=NOW, misfire_grace=1e9)
    async with scene(of_subject(spec=once)):
        await scene.looked()
        ((_, event),) = scene.fired[0].events
        assert event.payload["metadata"] == {"occurrences": 1}
        assert event.payload["originalRequest"] == NOW.isoformat()


async def test_however_late_a_subject_hears_of_it_once_and_draining_is_not_in_the_way(scene: Scene) -> None:
    scene(of_subject(next_due=NOW - timedelta(days=3)))
    scene.scheduling.drain()
    async with scene:
        await scene.looked()
        (firing,) = scene.fired
        ((line, event),) = firing.events
        assert (line.outcome, line.due_at) == (FireOutcome.FIRED, NOW)
        assert event.payload["metadata"]["occurrences"] == 73
        assert {fire.outcome for fire in firing.fires} == {FireOutcome.CAUGHT_UP}
        assert len(firing.fires) == 72
        assert {fire.event_id for fire in firing.fires} == {event.id}


def at_boot(name: str) -> ScheduleEntry:
    return entry(name, spec=Schedule(cron="@reboot"), next_due=None)


async def test_what_is_due_at_boot_waits_for_the_files_and_comes_once(scene: Scene) -> None:
    async with scene(at_boot("w")):
        await scene.looked()
        assert (scene.fired, scene.boot.done) == ([], False)
        scene.definitions_read.set()
        scene.scheduling.changed()
        await scene.looked(2)
        (firing,) = scene.fired
        assert [line.due_at for line in firing.fires] == [scene.boot.at]
        assert scene.boot.done
        # What is stored later is for the next boot.
        await with_schedules(cast(Store, scene.store), at_boot("v"), workflow="v")
        scene.scheduling.changed()
        await scene.looked(3)
        assert len(scene.fired) == 1


async def test_a_boot_that_another_daemon_saw_to_is_over(scene: Scene) -> None:
    scene(at_boot("w"))
    scene.boot.done = True
    scene.definitions_read.set()
    async with scene:
        await scene.looked()
        assert scene.fired == []


MINUTE = timedelta(minutes=1)
ALL = Schedule(every=2.0, misfire=Misfire.RUN_ALL)


def was_due(name: str, ago: timedelta, **changes: object) -> ScheduleEntry:
    return entry(name, next_due=NOW - ago, stored_at=NOW - ago - timedelta(days=1), **changes)


async def test_an_outage_is_no_storm(scene: Scene) -> None:
    every = Schedule(every=600.0)
    missed = [was_due(f"w{n}", 9 * MINUTE, spec=every) for n in range(3 * CATCH_UP_AT_ONCE)]
    async with scene(*missed).works():
        await scene.looked()
        assert len(scene.runs.begun) == CATCH_UP_AT_ONCE
        await scene.later(0.5)
        assert len(scene.runs.begun) == CATCH_UP_AT_ONCE
        await scene.later(0.5)
        assert len(scene.runs.begun) == 2 * CATCH_UP_AT_ONCE
        await scene.later(1)
        assert len({run.workflow for run in scene.runs.begun}) == 3 * CATCH_UP_AT_ONCE


async def test_missed_times_of_one_schedule_take_turns_too(scene: Scene) -> None:
    async with scene(was_due("w", 20 * MINUTE, spec=ALL)).works(overlap="allow"):
        await scene.looked()
        assert len(scene.runs.begun) == CATCH_UP_AT_ONCE
        await scene.later(1)
        assert len(scene.runs.begun) == 2 * CATCH_UP_AT_ONCE
        times = [run.scheduled_at for run in scene.runs.begun]
        assert times == [NOW - 20 * MINUTE + timedelta(seconds=2 * n) for n in range(len(times))]


async def test_what_is_due_now_goes_before_what_was_missed(scene: Scene) -> None:
    every = Schedule(every=600.0)
    missed = [was_due(f"w{n}", 9 * MINUTE, spec=every) for n in range(2 * AT_ONCE)]
    often = Schedule(cron="* * * * * *", misfire=Misfire.SKIP)
    async with scene(*missed, was_due("now", 20 * MINUTE, spec=often)).works():
        await scene.looked()
        for _ in range(5):
            await scene.later(1)
        due = [run.scheduled_at for run in scene.runs.begun if run.workflow == "now"]
        assert due == [NOW + timedelta(seconds=n) for n in range(6)]
        assert len(scene.runs.begun) == 6 * CATCH_UP_AT_ONCE + 6


async def test_one_that_waits_to_catch_up_still_runs_when_it_is_due(scene: Scene) -> None:
    first = [was_due(f"a{n}", 9 * MINUTE, spec=Schedule(every=600.0)) for n in range(100)]
    late = was_due("w", 8 * MINUTE - timedelta(seconds=2), spec=Schedule(every=20.0))
    async with scene(*first, late).works():
        await scene.looked()
        await scene.later(2)
        (run,) = (run for run in scene.runs.begun if run.workflow == "w")
        assert run.scheduled_at == NOW + timedelta(seconds=2)
        assert len(run.missed) == 24


async def test_a_run_for_each_comes_after_the_one_before_has_ended(scene: Scene) -> None:
    spec = replace(ALL, every=60.0)
    scene(was_due("w", 4.5 * MINUTE, spec=spec)).works(overlap="skip")
    scene.runs.takes = lambda: setattr(scene.runs, "active", 1)
    async with scene:
        await scene.looked()
        for number in range(1, 5):
            assert len(scene.runs.begun) == number
            scene.runs.end("w")
            await scene.looked(number + 1)
        assert len(scene.runs.begun) == 5
        assert {line.outcome for line in await scene.lines("w/0")} == {FireOutcome.CAUGHT_UP}


async def test_a_full_page_that_cannot_be_decided_stops_nobody(scene: Scene) -> None:
    broken = [was_due(f"a{n}", MINUTE, zone="No/Where") for n in range(AT_ONCE + 5)]
    near = [entry(f"b{n}", zone="No/Where") for n in range(AT_ONCE + 5)]
    async with scene(*broken, *near, entry("w"), was_due("v", MINUTE)):
        await scene.looked()
        assert {firing.before.workflow for firing in scene.fired} == {"w", "v"}


async def test_runs_of_one_look_count_for_the_queue(scene: Scene) -> None:
    scene(entry("w"), entry("w", id="w/1", index=1), entry("w", id="w/2", index=2)).works()
    async with scene:
        await scene.looked()
        assert sorted(scene.runs.ahead) == [0, 1, 2]
        await scene.later(3600)
        assert sorted(scene.runs.ahead) == [0, 0, 1, 1, 2, 2]


async def test_what_was_missed_before_a_blackout_waits_for_its_end(scene: Scene) -> None:
    """The window is from 12:00 to 12:01."""
    async with scene(was_due("w", 30 * MINUTE)).works(blackout=["0 12 * * */1m"]):
        await scene.looked()
        assert await scene.lines("w/0") == []
        await scene.later(59)
        assert await scene.lines("w/0") == []
        await scene.later(1)
        assert [(line.due_at, line.outcome) for line in await scene.lines("w/0")] == [
            (NOW, FireOutcome.SKIPPED),
            (NOW - 30 * MINUTE, FireOutcome.CAUGHT_UP),
        ]


async def test_the_ledger_says_when_it_was_stored(scene: Scene) -> None:
    scene(entry("w")).works()

    def slowly() -> None:
        scene.clock.advance(2)

    scene.runs.takes = slowly
    async with scene:
        await scene.looked()
        (line,) = await scene.lines("w/0")
        assert (line.at - line.due_at).total_seconds() == 2


async def test_a_subject_hears_once_of_very_many_missed_times(scene: Scene) -> None:
    spec = Schedule(cron="* * * * *", misfire_grace=1e9)
    async with scene(of_subject(spec=spec, next_due=NOW - timedelta(days=8))):
        await scene.looked()
        (firing,) = scene.fired
        ((_, event),) = firing.events
        assert event.payload["metadata"] == {
            "occurrences": 8 * 1440 + 1,
            "nextRun": (NOW + MINUTE).isoformat(),
        }
        assert len(firing.fires) == LINES_AT_ONCE
        assert 1 + sum(1 + line.more for line in firing.fires) == 8 * 1440 + 1


async def test_a_clock_that_was_set_back_is_told_until_it_is_there_again(scene: Scene) -> None:
    scene(entry("w", next_due=NOW + timedelta(days=1)))
    scene.store.answers["decided_ahead"] = (3, NOW + timedelta(hours=2))
    async with scene:
        await scene.looked()
        (condition,) = scene.health.conditions
        assert condition.name == CLOCK
        assert "3 schedules were decided up to 2026-03-02T14:00:00" in condition.detail
        scene.store.answers["decided_ahead"] = (0, None)
        await scene.later(31)
        assert list(scene.health.conditions) == []


async def test_a_boot_that_was_decided_before_a_crash_does_not_count_twice(scene: Scene) -> None:
    async with scene(at_boot("w")):
        scene.definitions_read.set()
        scene.scheduling.changed()
        await scene.looked()
        assert (await scene.store.get_schedule("w/0")).occurrences == 1
        scene.boot.done = False
        scene.scheduling.changed()
        await wait_for(lambda: scene.boot.done, "it did not look again")
        assert (await scene.store.get_schedule("w/0")).occurrences == 1
