"""ScheduleService: its requests and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2

from doubles.clock import Clock
from doubles.ids import numbered_ids
from doubles.store import define
from toban.v1 import schedule_pb2 as pb
from toband.api.schedule_service import ScheduleService
from toband.domain.schedule_actions import ACTIONS, WORKFLOW
from toband.domain.schedule_model import ScheduleEntry
from toband.engine.health.admission import Always
from toband.engine.schedules.subject_schedules import SubjectSchedules
from toband.store import SqlStore

from .called import CONTEXT, Refusal, refused

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TEXT = """
name: nightly
description: for a test
params: {n: {type: integer, default: 1}}
schedule: 0 3 * * *
steps: {a: {run: "true"}}
"""


@pytest.fixture
async def service(store: SqlStore) -> ScheduleService:
    await define(store, TEXT)
    subjects = SubjectSchedules(
        store=store,
        clock=Clock(NOW),
        ids=numbered_ids("s"),
        admission=Always(),
        zone="Asia/Tokyo",
        changed=lambda: None,
    )
    return ScheduleService(subjects, store)


async def stored(store: SqlStore) -> Sequence[ScheduleEntry]:
    return await store.list_schedules(of_subjects=True, active_only=False)


def rule(**how: Any) -> pb.ScheduleRule:
    return pb.ScheduleRule(**how)


def span(seconds: float) -> duration_pb2.Duration:
    made = duration_pb2.Duration()
    made.FromTimedelta(timedelta(seconds=seconds))
    return made


def moment(at: datetime) -> timestamp_pb2.Timestamp:
    made = timestamp_pb2.Timestamp()
    made.FromDatetime(at)
    return made


def created(service: ScheduleService, **fields: Any) -> Any:
    known: dict[str, Any] = {
        "subject": "issue-42",
        "rule": rule(words="3日後の朝9時"),
        "action": pb.SCHEDULE_ACTION_REMINDER,
    }
    return service.CreateSchedule(pb.CreateScheduleRequest(**{**known, **fields}), CONTEXT)


async def test_words_are_understood_and_told_back(service: ScheduleService) -> None:
    answer = await created(service, dedupe_key="k", max_occurrences=7, request_id="r")
    made = answer.schedule
    assert answer.created
    assert (made.id, made.subject, made.request) == ("s1", "issue-42", "3日後の朝9時")
    assert made.understood
    assert made.timezone == "Asia/Tokyo"
    assert made.next_due.ToDatetime(tzinfo=UTC) == datetime(2026, 3, 4, 0, 0, tzinfo=UTC)
    assert (made.action, made.state) == (pb.SCHEDULE_ACTION_REMINDER, pb.SCHEDULE_STATE_ACTIVE)
    assert (made.occurrences, made.max_occurrences) == (0, 7)
    assert (made.dedupe_key, made.caller) == ("k", "uid:1000 (aiko)")
    assert made.created_at.ToDatetime(tzinfo=UTC) == NOW
    assert not made.HasField("cancelled_at")
    again = await created(service, rule=rule(words="明日の15時"), dedupe_key="k")
    assert (again.created, again.schedule.id) == (False, "s1")
    assert (await created(service, subject="issue-43", dedupe_key="k")).created


async def test_whoever_repeats_a_request_gets_the_first_answer(service: ScheduleService, store: SqlStore) -> None:
    asked = {"rule": rule(words="30分後"), "dedupe_key": "k", "request_id": "r"}
    first = await created(service, **asked)
    assert await created(service, **asked) == first
    assert first.created
    other = {**asked, "request_id": "r2"}
    assert [(await created(service, **other)).created for _ in range(2)] == [False, False]
    refusal = await refused(created(service, subject="issue-43", request_id="r"))
    assert refusal.reason == "REQUEST_ID_REUSED"
    assert len(await stored(store)) == 1


async def test_the_next_due_times_come_with_a_schedule(service: ScheduleService) -> None:
    daily = {"rule": rule(words="every day at 15:00"), "timezone": "UTC", "max_occurrences": 2}
    made = (await created(service, **daily)).schedule
    assert [at.ToJsonString() for at in made.due_times] == [
        "2026-03-01T15:00:00Z",
        "2026-03-02T15:00:00Z",
    ]
    assert made.due_times[0] == made.next_due
    found = await service.GetSchedule(pb.GetScheduleRequest(id=made.id), CONTEXT)
    assert found.schedule == made
    (listed,) = (await service.ListSchedules(pb.ListSchedulesRequest(), CONTEXT)).schedules
    assert listed.understood == made.understood
    assert not listed.due_times
    assert len((await created(service)).schedule.due_times) == 1
    assert len((await created(service, rule=rule(every=span(60)))).schedule.due_times) == 5
    cancelled = await service.CancelSchedule(pb.CancelScheduleRequest(id=made.id), CONTEXT)
    assert not cancelled.schedule.due_times


async def test_a_schedule_that_cannot_be_told_spoils_no_list(service: ScheduleService, store: SqlStore) -> None:
    await created(service, rule=rule(at=moment(datetime(9998, 12, 31, 23, 59, tzinfo=UTC))))
    (entry,) = await stored(store)
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    await store.create_schedule(replace(entry, id="s0", spec=replace(entry.spec, at=last), next_due=last))
    answer = await service.ListSchedules(pb.ListSchedulesRequest(), CONTEXT)
    assert [each.id for each in answer.schedules] == ["s0", "s1"]
    assert answer.schedules[0].request == "9999-12-31T23:59:59+00:00"


@pytest.mark.parametrize(
    ("given", "zone", "request_text", "due"),
    [
        (rule(cron="@daily"), "UTC", "0 0 * * *", datetime(2026, 3, 2, tzinfo=UTC)),
        (rule(cron="0 9 * * *"), "", "0 9 * * *", datetime(2026, 3, 2, tzinfo=UTC)),
        (rule(every=span(5400)), "", "every 1h30m", NOW + timedelta(seconds=5400)),
        (rule(every=span(1)), "", "every 1s", NOW + timedelta(seconds=1)),
        (
            rule(at=moment(datetime(2026, 4, 1, tzinfo=UTC))),
            "Europe/Berlin",
            "2026-04-01T02:00:00+02:00",
            datetime(2026, 4, 1, tzinfo=UTC),
        ),
    ],
)
async def test_rules(
    service: ScheduleService, given: pb.ScheduleRule, zone: str, request_text: str, due: datetime
) -> None:
    made = (await created(service, rule=given, timezone=zone)).schedule
    assert made.request == request_text
    assert made.next_due.ToDatetime(tzinfo=UTC) == due
    assert made.timezone == (zone or "Asia/Tokyo")


async def test_a_workflow_is_an_action_of_its_own(service: ScheduleService) -> None:
    params = struct_pb2.Struct()
    params.update({"n": 3})
    answer = await created(service, action=pb.SCHEDULE_ACTION_UNSPECIFIED, workflow="nightly", params=params)
    assert answer.schedule.action == pb.SCHEDULE_ACTION_WORKFLOW
    assert (answer.schedule.workflow, answer.schedule.params["n"]) == ("nightly", 3)
    both = await created(service, workflow="nightly")
    assert both.schedule.action == pb.SCHEDULE_ACTION_REMINDER


async def test_words_say_what_to_do(service: ScheduleService) -> None:
    unset = pb.SCHEDULE_ACTION_UNSPECIFIED
    made = await created(service, rule=rule(words="3日後に自動クローズ"), action=unset)
    assert made.schedule.action == pb.SCHEDULE_ACTION_AUTO_CLOSE
    refusal = await refused(created(service, rule=rule(words="3日後に自動クローズ")))
    assert invalid(refusal) == ["INVALID_ARGUMENT", "action"]
    assert "auto_close" in refusal.text
    assert "reminder" in refusal.text


def test_every_action_has_its_name_in_the_api() -> None:
    named = {
        name.removeprefix("SCHEDULE_ACTION_").lower()
        for name in pb.ScheduleAction.keys()  # noqa: SIM118
        if name != "SCHEDULE_ACTION_UNSPECIFIED"
    }
    assert named == {*ACTIONS, WORKFLOW}


def invalid(refusal: Refusal) -> list[str]:
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    return [refusal.reason, *refusal.fields]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"rule": rule(words="when it suits you")}, "rule"),
        ({"rule": rule(words="")}, "rule.words"),
        ({"rule": rule(words="\0")}, "rule"),
        ({"rule": rule(words="x" * 100_000)}, "rule"),
        ({"rule": rule(cron="61 * * * *")}, "rule.cron"),
        ({"rule": rule(cron="")}, "rule.cron"),
        ({"rule": rule(cron="@reboot")}, "rule.cron"),
        ({"rule": rule(cron="0 0 30 2 *")}, "rule.cron"),
        ({"rule": rule(at=moment(NOW))}, "rule"),
    ],
)
async def test_times_that_cannot_be_understood(
    service: ScheduleService, store: SqlStore, fields: dict[str, Any], field: str
) -> None:
    assert invalid(await refused(created(service, **fields))) == ["TIME_NOT_UNDERSTOOD", field]
    assert await stored(store) == []


async def test_a_refusal_has_examples(service: ScheduleService) -> None:
    refusal = await refused(created(service, rule=rule(words="いつか")))
    assert "3日後の朝9時" in refusal.text


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"subject": ""}, "subject"),
        ({"subject": " "}, "subject"),
        ({"subject": "a\0"}, "subject"),
        ({"subject": "a\n"}, "subject"),
        ({"subject": "x" * 257}, "subject"),
        ({"dedupe_key": "\t"}, "dedupe_key"),
        ({"dedupe_key": "x" * 257}, "dedupe_key"),
        ({"rule": None}, "rule"),
        ({"rule": rule()}, "rule"),
        ({"rule": rule(every=span(0.5))}, "rule.every"),
        ({"rule": rule(every=span(-60))}, "rule.every"),
        ({"rule": rule(every=duration_pb2.Duration(seconds=1 << 60))}, "rule.every"),
        ({"rule": rule(at=timestamp_pb2.Timestamp(seconds=1 << 60))}, "rule.at"),
        ({"rule": rule(at=moment(datetime(9999, 1, 1, tzinfo=UTC)))}, "rule.at"),
        ({"rule": rule(at=moment(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)))}, "rule.at"),
        ({"rule": rule(at=moment(datetime(1969, 12, 31, tzinfo=UTC)))}, "rule.at"),
        ({"timezone": "Asia/Tokio"}, "timezone"),
        ({"timezone": "Moon"}, "timezone"),
        ({"action": 0}, "action"),
        ({"action": 0, "rule": rule(cron="0 9 * * *")}, "action"),
        ({"action": 99, "workflow": "nightly"}, "action"),
        ({"action": pb.SCHEDULE_ACTION_WORKFLOW}, "workflow"),
        ({"max_occurrences": -1}, "max_occurrences"),
        ({"params": {"n": 1}}, "params"),
        ({"request_id": "x" * 129}, "request_id"),
    ],
)
async def test_fields_that_cannot_be(
    service: ScheduleService, store: SqlStore, fields: dict[str, Any], field: str
) -> None:
    assert invalid(await refused(created(service, **fields))) == ["INVALID_ARGUMENT", field]
    assert await stored(store) == []


async def test_a_workflow_must_be_there_and_take_the_parameters(service: ScheduleService) -> None:
    for name in ("absent", "a\0b"):
        refusal = await refused(created(service, workflow=name))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "WORKFLOW_NOT_FOUND")
    refusal = await refused(created(service, workflow="nightly", params={"m": 1}))
    assert invalid(refusal) == ["INVALID_PARAMS", "params.m"]


async def test_one_schedule_and_its_end(service: ScheduleService, store: SqlStore) -> None:
    made = (await created(service)).schedule
    found = await service.GetSchedule(pb.GetScheduleRequest(id=made.id), CONTEXT)
    assert found.schedule == made
    answer = await service.CancelSchedule(pb.CancelScheduleRequest(id=made.id), CONTEXT)
    assert answer.schedule.state == pb.SCHEDULE_STATE_CANCELLED
    assert await service.CancelSchedule(pb.CancelScheduleRequest(id=made.id), CONTEXT) == answer
    assert answer.schedule.cancelled_at.ToDatetime(tzinfo=UTC) == NOW
    assert not answer.schedule.HasField("next_due")
    (entry,) = await stored(store)
    await store.create_schedule(replace(entry, id="s0", cancelled_at=None, next_due=None))
    ended = await service.GetSchedule(pb.GetScheduleRequest(id="s0"), CONTEXT)
    assert ended.schedule.state == pb.SCHEDULE_STATE_ENDED


@pytest.mark.parametrize("schedule_id", ["", "none", "nightly/0", "a\0b", "x" * 100_000])
async def test_a_schedule_that_is_not_there(service: ScheduleService, schedule_id: str) -> None:
    calls = [
        service.GetSchedule(pb.GetScheduleRequest(id=schedule_id), CONTEXT),
        service.CancelSchedule(pb.CancelScheduleRequest(id=schedule_id), CONTEXT),
    ]
    for call in calls:
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SCHEDULE_NOT_FOUND")


async def test_pages_of_a_subject(service: ScheduleService) -> None:
    for _ in range(5):
        await created(service)
    other = (await created(service, subject="b", workflow="nightly")).schedule.id
    token, found = "", []
    while True:
        answer = await service.ListSchedules(
            pb.ListSchedulesRequest(subject="issue-42", page_size=2, page_token=token), CONTEXT
        )
        found.append([each.id for each in answer.schedules])
        token = answer.next_page_token
        if not token:
            break
    assert found == [["s1", "s2"], ["s3", "s4"], ["s5"]]
    # Its own schedule is a part of its definition.
    of_workflow = pb.ListSchedulesRequest(workflow="nightly")
    answer = await service.ListSchedules(of_workflow, CONTEXT)
    assert [each.id for each in answer.schedules] == [other]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"page_size": -1}, "page_size"),
        ({"page_token": "?"}, "page_token"),
        ({"page_token": "AA"}, "page_token"),
        ({"subject": "a\0"}, "subject"),
        ({"workflow": "a\0"}, "workflow"),
    ],
)
async def test_lists_that_cannot_be(service: ScheduleService, fields: dict[str, Any], field: str) -> None:
    call = service.ListSchedules(pb.ListSchedulesRequest(**fields), CONTEXT)
    assert invalid(await refused(call)) == ["INVALID_ARGUMENT", field]


async def test_a_subject_that_is_closed(service: ScheduleService) -> None:
    await created(service)
    await created(service)
    await created(service, subject="b")
    request = pb.CancelBySubjectRequest(subject="issue-42")
    assert (await service.CancelBySubject(request, CONTEXT)).cancelled == 2
    assert (await service.CancelBySubject(request, CONTEXT)).cancelled == 0
    active = await service.ListSchedules(pb.ListSchedulesRequest(), CONTEXT)
    assert [each.subject for each in active.schedules] == ["b"]
    kept = await service.ListSchedules(pb.ListSchedulesRequest(include_ended=True), CONTEXT)
    assert len(kept.schedules) == 3
    empty = service.CancelBySubject(pb.CancelBySubjectRequest(), CONTEXT)
    assert invalid(await refused(empty)) == ["INVALID_ARGUMENT", "subject"]


async def test_what_words_mean(service: ScheduleService) -> None:
    asked = pb.InterpretTimeRequest(words="every weekday at 15:00", timezone="UTC")
    answer = await service.InterpretTime(asked, CONTEXT)
    assert answer.understood
    assert (answer.recurring, answer.timezone) == (True, "UTC")
    assert [at.ToDatetime().isoformat() for at in answer.due_times[:2]] == [
        "2026-03-02T15:00:00",
        "2026-03-03T15:00:00",
    ]
    assert len(answer.due_times) == 5
    once = await service.InterpretTime(pb.InterpretTimeRequest(words="明日の15時"), CONTEXT)
    assert (once.recurring, once.timezone, len(once.due_times)) == (False, "Asia/Tokyo", 1)
    assert once.action == pb.SCHEDULE_ACTION_UNSPECIFIED
    reminds = pb.InterpretTimeRequest(words="明日の15時にリマインド")
    answer = await service.InterpretTime(reminds, CONTEXT)
    assert answer.action == pb.SCHEDULE_ACTION_REMINDER
    stored = await created(service, rule=rule(words="明日の15時にリマインド"))
    assert answer.understood == stored.schedule.understood


@pytest.mark.parametrize(
    ("words", "zone", "expected"),
    [
        ("blue", "", ["TIME_NOT_UNDERSTOOD", "words"]),
        ("", "", ["TIME_NOT_UNDERSTOOD", "words"]),
        ("tomorrow at 9am", "Mars/Base", ["INVALID_ARGUMENT", "timezone"]),
    ],
)
async def test_words_that_mean_nothing(service: ScheduleService, words: str, zone: str, expected: list[str]) -> None:
    call = service.InterpretTime(pb.InterpretTimeRequest(words=words, timezone=zone), CONTEXT)
    assert invalid(await refused(call)) == expected
