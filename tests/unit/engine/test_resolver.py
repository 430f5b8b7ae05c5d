"""Times in words keep their meaning when a definition is stored again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from doubles.clock import Clock
from doubles.sandbox import InlineSandbox
from toban.definition.timing.schedule_spec import Schedule
from toband.domain.schedule_model import ScheduleEntry
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.definitions.resolver import ResolvedDefinition, Resolver
from toband.ports import WorkflowText
from toband.store import SqlStore

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


class Scene:
    def __init__(self, store: SqlStore) -> None:
        self.clock, self.store = Clock(NOW), store
        self.resolver = Resolver(store, self.clock, "UTC", DefinitionParser(InlineSandbox()))

    async def resolved(self, schedule: str) -> WorkflowText:
        """The workflow `w`, with that schedule only."""
        source = f"name: w\ndescription: d\nschedule: {schedule}\nsteps: {{a: {{run: x}}}}"
        text = (await self.definition(source)).text
        assert text is not None
        return text

    async def definition(self, source: str) -> ResolvedDefinition:
        (definition,) = await self.resolver.resolve([await self.resolver.parse(source, "")])
        return definition

    async def schedule(self, text: str) -> ScheduleEntry:
        (entry,) = (await self.resolved(text)).schedules
        return entry

    async def store_with(self, schedule: str) -> ScheduleEntry:
        text = await self.resolved(schedule)
        await self.store.create_workflow(text, at=self.clock.now())
        return text.schedules[0]


@pytest.fixture
def scene(store: SqlStore) -> Scene:
    return Scene(store)


async def test_words_keep_their_meaning_when_they_are_stored_again(scene: Scene) -> None:
    first = await scene.store_with("{when: tomorrow at 9}")
    scene.clock.at = NOW + timedelta(days=3)
    again = await scene.schedule("{when: tomorrow at 9}")
    assert again.spec == first.spec
    assert again.next_due is None


async def test_words_in_another_zone_mean_another_time(scene: Scene) -> None:
    await scene.store_with("{when: tomorrow at 9, timezone: UTC}")
    moved = await scene.schedule("{when: tomorrow at 9, timezone: Asia/Tokyo}")
    assert moved.next_due == datetime(2026, 3, 3, 0, tzinfo=UTC)


async def test_the_same_words_of_a_subject_mean_nothing_here(scene: Scene) -> None:
    passed = ScheduleEntry(
        id="x-bound",
        workflow="w",
        spec=Schedule(words="in 5 seconds", at=NOW - timedelta(hours=1)),
        zone="UTC",
        stored_at=NOW - timedelta(hours=1),
        next_due=None,
        subject="issue-42",
    )
    await scene.store.create_schedule(passed)
    assert (await scene.schedule("{when: in 5 seconds}")).next_due == NOW + timedelta(seconds=5)
    scene.clock.advance(-3600)
    await scene.store_with("{when: in 5 seconds}")
    scene.clock.advance(3600)
    assert (await scene.schedule("{when: in 5 seconds}")).next_due is None


async def test_what_will_never_be_due_is_stored_with_a_warning(scene: Scene) -> None:
    text = "name: w\ndescription: d\nschedule: {at: 2020-01-01T00:00:00Z}\nsteps: {a: {run: x}}"
    (warning,) = (await scene.definition(text)).problems
    assert warning.message == "2020-01-01 00:00+00:00 is in the past: the schedule will never run"
