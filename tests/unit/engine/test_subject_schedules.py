"""Schedules that are bound to a subject: read, checked, stored, and said back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from doubles.clock import Clock
from doubles.ids import numbered_ids
from doubles.store import define
from toban.definition import ParamError
from toban.definition.timing.schedule_spec import Schedule
from toband.domain.misfire import Circumstances, decide
from toband.domain.schedule_model import ScheduleEntry
from toband.engine.errors import (
    ScheduleNotFoundError,
    TimeNotUnderstoodError,
    UnclearActionError,
    WorkflowNotFoundError,
)
from toband.engine.health.admission import Always
from toband.engine.schedules.subject_schedules import SubjectSchedules
from toband.ports import Request
from toband.store import SqlStore

NOW = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)  # a Monday
REPORT = "name: report\ndescription: x\nparams: {day: {required: true}}\nsteps: {a: {run: x}}\n"


class Scene:
    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.changes = 0
        self.subjects = SubjectSchedules(
            store=store,
            clock=Clock(NOW),
            ids=numbered_ids("s-"),
            admission=Always(),
            zone="Asia/Tokyo",
            changed=self._changed,
        )

    def _changed(self) -> None:
        self.changes += 1

    async def create(self, rule: Schedule, **rest: Any) -> tuple[ScheduleEntry, bool]:
        given: Mapping[str, Any] = {
            "subject": "issue-42",
            "zone": "",
            "action": "reminder",
            "workflow": "",
            "dedupe_key": "",
            "caller": "me",
            "request": None,
        }
        return await self.subjects.create(rule=rule, **{**given, **rest})

    async def stored(self) -> Sequence[ScheduleEntry]:
        return await self.store.list_schedules(of_subjects=True, active_only=False)


@pytest.fixture
async def scene(store: SqlStore) -> Scene:
    await define(store, REPORT)
    return Scene(store)


async def test_words_become_a_time_in_the_zone_and_are_kept(scene: Scene) -> None:
    entry, is_new = await scene.create(Schedule(words="3日後の朝9時にリマインド"))
    assert is_new
    assert entry.next_due == datetime(2026, 3, 5, 0, tzinfo=UTC)
    assert (entry.zone, entry.subject, entry.caller) == ("Asia/Tokyo", "issue-42", "me")
    assert scene.subjects.request_text(entry) == "3日後の朝9時にリマインド"
    assert scene.subjects.understood(entry) == "2026-03-05 (木) 09:00 Asia/Tokyo"
    assert scene.changes == 1


async def test_a_rule_says_when_without_words(scene: Scene) -> None:
    at = NOW + timedelta(hours=1)
    cron, _ = await scene.create(Schedule(cron="0 9 * * *"))
    every, _ = await scene.create(Schedule(every=7200.0))
    once, _ = await scene.create(Schedule(at=at), zone="UTC")
    assert cron.next_due == datetime(2026, 3, 3, 0, tzinfo=UTC)
    assert every.next_due == NOW + timedelta(hours=2)
    assert once.next_due == at
    shown = [scene.subjects.request_text(entry) for entry in (cron, every, once)]
    assert shown == ["0 9 * * *", "every 2h", "2026-03-02T13:00:30+00:00"]
    assert scene.subjects.understood(cron) == "every day at 09:00 Asia/Tokyo"


async def test_however_late_it_is_due_once(scene: Scene) -> None:
    daily = Schedule(words="毎日午後3時に進捗確認", max_occurrences=7)
    entry, _ = await scene.create(daily, action="check_progress")
    assert entry.next_due is not None
    decision = decide(entry, Circumstances(now=entry.next_due + timedelta(days=3, hours=1)))
    (start,) = decision.starts
    assert len(start.missed) == 3
    assert (decision.fires, decision.entry.occurrences) == ((), 4)


async def test_a_repeat_answers_the_one_that_is_there(scene: Scene) -> None:
    first, _ = await scene.create(Schedule(words="every day at 3pm"), dedupe_key="daily-check")
    again, is_new = await scene.create(Schedule(words="every day at 4pm"), dedupe_key="daily-check")
    assert (again, is_new, scene.changes) == (first, False, 1)
    _, is_new = await scene.create(Schedule(words="every day at 4pm"), dedupe_key="daily-check", subject="issue-43")
    assert is_new


async def test_a_repeated_request_is_answered_whatever_became_of_it(scene: Scene) -> None:
    request = Request(caller="me", rpc="CreateSchedule", id="r", digest="")
    entry, _ = await scene.create(Schedule(words="in 1 second"), request=request)
    over = await scene.subjects.cancel(entry.id)
    again = await scene.create(Schedule(words="yesterday"), request=request, workflow="gone")
    assert again == (over, True)


@pytest.mark.parametrize("subject", ["課題\u300042", "\N{FAMILY}\u200d\N{MAN}", "a b"])
async def test_a_subject_may_be_any_text_of_one_line(scene: Scene, subject: str) -> None:
    entry, _ = await scene.create(Schedule(words="tomorrow at 9am"), subject=subject)
    assert entry.subject == subject


@pytest.mark.parametrize(
    "rule",
    [
        Schedule(words="when the cows come home"),
        Schedule(words="yesterday at 9am"),
        Schedule(cron="99 * * * *"),
        Schedule(cron="@reboot"),
        Schedule(at=NOW - timedelta(seconds=1)),
        Schedule(cron="0 0 30 2 *"),
    ],
    ids=repr,
)
async def test_a_time_that_cannot_be_read_or_never_comes_is_refused(scene: Scene, rule: Schedule) -> None:
    with pytest.raises(TimeNotUnderstoodError):
        await scene.create(rule)
    assert await scene.stored() == []


async def test_a_time_that_has_passed_is_told_with_the_present_one(scene: Scene) -> None:
    late = Schedule(at=NOW - timedelta(seconds=1))
    with pytest.raises(TimeNotUnderstoodError) as refused:
        await scene.create(late, zone="Asia/Tokyo")
    assert str(refused.value) == (
        "cannot schedule '2026-03-02T21:00:29+09:00': that has passed: it is 2026-03-02 21:00:30+09:00 Asia/Tokyo"
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"subject": ""}, "it is empty"),
        ({"subject": "x" * 257}, "at most 256"),
        ({"subject": "a\0b"}, "control character"),
        ({"dedupe_key": "a\nb"}, "control character"),
        ({"zone": "Asia/Tokio"}, "did you mean"),
    ],
)
async def test_other_fields_are_checked(scene: Scene, wrong: Mapping[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        await scene.create(Schedule(words="tomorrow at 9am"), **wrong)
    assert await scene.stored() == []


async def test_a_workflow_has_to_be_there_and_to_take_its_parameters(scene: Scene) -> None:
    words = Schedule(words="tomorrow at 9am", params={"day": "monday"})
    entry, _ = await scene.create(words, action="", workflow="report")
    assert (entry.action, entry.workflow, entry.spec.params) == (
        "workflow",
        "report",
        {"day": "monday"},
    )
    with pytest.raises(WorkflowNotFoundError):
        await scene.create(words, workflow="nothing")
    with pytest.raises(ParamError):
        await scene.create(replace(words, params={}), workflow="report")


async def test_what_words_mean_is_said_back(scene: Scene) -> None:
    subjects = scene.subjects
    read = subjects.interpret("平日の15時にリマインド", "")
    assert (read.zone, read.recurring, read.action) == ("Asia/Tokyo", True, "reminder")
    assert "15:00" in read.understood
    assert read.due[0] == datetime(2026, 3, 3, 6, tzinfo=UTC)
    assert len(read.due) == 5
    once = subjects.interpret("in 30 minutes", "UTC")
    assert (once.due, once.recurring, once.action) == ([NOW + timedelta(minutes=30)], False, "")
    with pytest.raises(TimeNotUnderstoodError, match="examples: "):
        subjects.interpret("soonish", "")


async def test_a_crontab_expression_is_read_in_words(scene: Scene) -> None:
    read = scene.subjects.interpret("0 3 * * *", "")
    assert (read.understood, read.recurring, read.zone) == ("every day at 03:00 Asia/Tokyo", True, "Asia/Tokyo")
    assert [each.astimezone(UTC).hour for each in read.due] == [18] * 5
    assert scene.subjects.interpret("@reboot", "UTC").due == []
    assert scene.subjects.interpret("@hourly", "UTC").due[0].minute == 0
    for wrong in ("0 25 * * *", "0 3 * *", "* * * *"):
        with pytest.raises(TimeNotUnderstoodError, match=r"crontab|hour|fields|expected"):
            scene.subjects.interpret(wrong, "")


@pytest.mark.parametrize("words", ["毎月31日", "毎日午後3時に進捗確認", "in 90 minutes", "every 2 hours"])
async def test_what_is_stored_is_understood_as_it_was_told_before(scene: Scene, words: str) -> None:
    told = scene.subjects.interpret(words, "").understood
    entry, _ = await scene.create(Schedule(words=words), action="check_progress")
    assert scene.subjects.understood(entry) == told
    # Whatever time it is when somebody asks again.
    later = replace(entry, next_due=None, occurrences=3)
    assert scene.subjects.understood(later) == told


async def test_words_that_another_release_reads_otherwise_are_told_by_their_rule(scene: Scene) -> None:
    entry, _ = await scene.create(Schedule(words="every day at 3pm"))
    for words in ("every day at 4pm", "whenever"):
        moved = replace(entry, spec=replace(entry.spec, words=words))
        assert scene.subjects.understood(moved) == "every day at 15:00 Asia/Tokyo"


async def test_how_often_it_is_due_at_most_is_not_when(scene: Scene) -> None:
    once = Schedule(at=NOW + timedelta(hours=1), max_occurrences=3)
    entry, _ = await scene.create(once, zone="Etc/UTC")
    assert scene.subjects.understood(entry) == "once at 2026-03-02 13:00:30+00:00 Etc/UTC"
    often, _ = await scene.create(Schedule(cron="0 9 * * *", max_occurrences=3))
    assert scene.subjects.understood(often) == "every day at 09:00 Asia/Tokyo"


async def test_a_row_that_cannot_be_told_in_its_zone_is_told_all_the_same(scene: Scene) -> None:
    entry, _ = await scene.create(Schedule(at=NOW + timedelta(hours=1)))
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    bad = [
        replace(entry, spec=replace(entry.spec, at=last), next_due=last),
        replace(entry, zone="No/Where"),
        replace(entry, spec=Schedule(cron="99 * * * *")),
        replace(entry, spec=Schedule(cron="0 9 * * *"), zone="No/Where"),
        replace(entry, spec=Schedule(words="tomorrow", at=last), zone="No/Where"),
    ]
    for each in bad:
        assert scene.subjects.understood(each)
        assert scene.subjects.request_text(each)
        assert scene.subjects.upcoming(each)[0] == each.next_due
    assert scene.subjects.request_text(bad[0]) == "9999-12-31T23:59:59+00:00"


async def test_the_next_due_times_of_a_schedule(scene: Scene) -> None:
    entry, _ = await scene.create(Schedule(every=7200.0))
    assert scene.subjects.upcoming(entry) == [NOW + timedelta(hours=2 * n) for n in range(1, 6)]
    few = replace(entry, spec=replace(entry.spec, max_occurrences=5), occurrences=3)
    assert scene.subjects.upcoming(few) == [NOW + timedelta(hours=2), NOW + timedelta(hours=4)]
    once, _ = await scene.create(Schedule(words="in 30 minutes"))
    assert scene.subjects.upcoming(once) == [NOW + timedelta(minutes=30)]
    for over in (replace(entry, next_due=None), replace(entry, cancelled_at=NOW)):
        assert scene.subjects.upcoming(over) == []


async def test_words_that_name_another_action_are_refused(scene: Scene) -> None:
    with pytest.raises(UnclearActionError, match=r'"自動クローズ", .* auto_close, not reminder'):
        await scene.create(Schedule(words="3日後に自動クローズ"), action="reminder")
    with pytest.raises(UnclearActionError, match="check_progress"):
        await scene.create(
            Schedule(words="check progress tomorrow at 9am", params={"day": "x"}),
            action="workflow",
            workflow="report",
        )
    assert await scene.stored() == []


@pytest.mark.parametrize(
    ("words", "given", "workflow", "action"),
    [
        ("3日後の朝9時にリマインドしてください", "", "", "reminder"),
        ("remind me in 3 days", "", "", "reminder"),
        ("毎日午後3時に進捗確認", "", "", "check_progress"),
        ("毎日午後3時に進捗確認", "check_progress", "", "check_progress"),
        ("3日後に自動クローズ", "", "report", "auto_close"),
        # These go with any action.
        ("3日後に通知", "escalate", "", "escalate"),
        ("明日9時に確認", "", "report", "workflow"),
        ("明日9時に実行", "", "report", "workflow"),
        ("明日9時に実行", "reminder", "report", "reminder"),
    ],
)
async def test_words_may_name_the_action(scene: Scene, words: str, given: str, workflow: str, action: str) -> None:
    rule = Schedule(words=words, params={"day": "monday"} if workflow else {})
    entry, _ = await scene.create(rule, action=given, workflow=workflow)
    assert entry.action == action


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("explode", 'unknown action "explode": expected one of reminder'),
        ("", "it is missing: expected one of reminder"),
        ("workflow", "needs a workflow"),
    ],
)
async def test_an_action_is_needed(scene: Scene, action: str, said: str) -> None:
    with pytest.raises(UnclearActionError, match=said):
        await scene.create(Schedule(words="tomorrow at 9am"), action=action)
    with pytest.raises(UnclearActionError):
        await scene.create(Schedule(words="明日9時に実行"), action=action)
    assert await scene.stored() == []


async def test_cancelling(scene: Scene) -> None:
    entry, _ = await scene.create(Schedule(words="tomorrow at 9am"))
    assert await scene.subjects.get(entry.id) == entry
    assert (await scene.subjects.cancel(entry.id)).cancelled_at == NOW
    await scene.create(Schedule(words="tomorrow at 9am"))
    assert await scene.subjects.cancel_subject("issue-42") == 1
    for call in (scene.subjects.get, scene.subjects.cancel):
        with pytest.raises(ScheduleNotFoundError):
            await call("nothing")
    with pytest.raises(ValueError, match="it is empty"):
        await scene.subjects.cancel_subject(" ")
