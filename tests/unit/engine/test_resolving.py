"""Words in definitions keep what they meant when they were stored, and take nothing from elsewhere."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from doubles.clock import Clock
from doubles.sandbox import InlineSandbox
from toban.definition import DefinitionKind, parse
from toban.definition.timing.schedule_spec import Schedule
from toband.domain.schedule_model import ScheduleEntry
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.definitions.resolver import Resolver

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


class Store:
    def __init__(self) -> None:
        self.entries: list[ScheduleEntry] = []

    async def get_workflow(self, name: str) -> None:
        return None

    async def list_schedules(self, *, workflow: str, after: str, limit: int, active_only: bool) -> list[ScheduleEntry]:
        return [entry for entry in self.entries if entry.workflow == workflow and entry.id > after]


class Scene:
    def __init__(self) -> None:
        self.clock, self.store = Clock(NOW), Store()
        self.resolver = Resolver(cast(Any, self.store), self.clock, "UTC", DefinitionParser(InlineSandbox()))

    async def schedule(self, text: str) -> ScheduleEntry:
        """The only schedule of a definition that is stored now."""
        (document,) = parse(f"name: w\ndescription: d\nschedule: {text}\nsteps: {{a: {{run: x}}}}").documents
        (entry,) = (await self.resolver.take(document, "")).schedules
        return entry


async def test_words_keep_their_meaning_when_they_are_stored_again() -> None:
    scene = Scene()
    first = await scene.schedule("{when: tomorrow at 9}")
    scene.store.entries.append(first)
    scene.clock.at = NOW + timedelta(days=3)
    again = await scene.schedule("{when: tomorrow at 9}")
    assert again.spec == first.spec
    assert again.next_due is None


async def test_words_in_another_zone_mean_another_time() -> None:
    scene = Scene()
    scene.store.entries.append(await scene.schedule("{when: tomorrow at 9, timezone: UTC}"))
    moved = await scene.schedule("{when: tomorrow at 9, timezone: Asia/Tokyo}")
    assert moved.next_due == datetime(2026, 3, 3, 0, tzinfo=UTC)


async def test_the_same_words_of_a_subject_mean_nothing_here() -> None:
    scene = Scene()
    passed = ScheduleEntry(
        id="x-bound",
        workflow="w",
        spec=Schedule(words="in 5 seconds", at=NOW - timedelta(hours=1)),
        zone="UTC",
        stored_at=NOW - timedelta(hours=1),
        next_due=None,
        subject="issue-42",
    )
    scene.store.entries.append(passed)
    fresh = await scene.schedule("{when: in 5 seconds}")
    assert fresh.next_due == NOW + timedelta(seconds=5)
    scene.store.entries.append(replace(passed, id="w/0", subject=""))
    assert (await scene.schedule("{when: in 5 seconds}")).next_due is None


async def test_what_will_never_be_due_is_stored_with_a_warning() -> None:
    text = "name: w\ndescription: d\nschedule: {at: 2020-01-01T00:00:00Z}\nsteps: {a: {run: x}}"
    scene = Scene()
    resolved = await scene.resolver.resolve(text, "", DefinitionKind.WORKFLOW)
    (warning,) = resolved.warnings
    assert warning.message == "2020-01-01 00:00+00:00 has passed: it will not be due"
    assert list(await scene.resolver.problems(text)) == [warning]
