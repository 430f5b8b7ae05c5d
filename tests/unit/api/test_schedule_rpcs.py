"""Messages about schedules and the ledger of due times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from contract.scheduled import with_schedules
from toban.definition import parse
from toban.definition.timing.schedule_spec import ClockChange, Schedule
from toban.v1 import workflow_pb2 as pb
from toband.api import pages
from toband.api.request_errors import InvalidFieldError
from toband.api.schedule_rpcs import ScheduleRpcs
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.schedule_model import Fire, FireOutcome, ScheduleEntry
from toband.engine.errors import WorkflowNotFoundError
from toband.engine.schedules.backfill import MOST, Backfill, BackfilledTime, BackfillRequest
from toband.engine.schedules.due_times import Upcoming
from toband.engine.schedules.schedule_queries import Explanation, ScheduleQueries
from toband.ports import Firing, Request, StoredWorkflow, WorkflowVersion
from toband.store import SqlStore

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
WORKFLOW = StoredWorkflow(
    name="nightly",
    title="",
    description="",
    labels={},
    enabled=True,
    version=1,
    owner="api",
    created_at=NOW,
    updated_at=NOW,
    etag="e",
)


class FakeBackfill:
    def __init__(self) -> None:
        self.asked: list[tuple[BackfillRequest, bool]] = []

    async def preview(self, wanted: BackfillRequest, *, caller: str) -> list[BackfilledTime]:
        self.asked.append((wanted, True))
        return []

    async def start(self, wanted: BackfillRequest, *, caller: str, request: Request | None) -> list[BackfilledTime]:
        self.asked.append((wanted, False))
        return []


class FakeOutlook:
    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.upcoming: list[Upcoming] = []
        self.explanation = Explanation(sentences=(), fires=(), before=None, after=None)

    async def preview(self, name: str, count: int, start: datetime | None) -> Sequence[Upcoming]:
        self.asked.append((name, count, start))
        return self.upcoming[:count]

    async def explain(self, name: str, at: datetime | None) -> Explanation:
        self.asked.append((name, at))
        return self.explanation


@pytest.fixture
def scheduling() -> FakeOutlook:
    return FakeOutlook()


@pytest.fixture
def backfill() -> FakeBackfill:
    return FakeBackfill()


@pytest.fixture
def answers(store: SqlStore, scheduling: FakeOutlook, backfill: FakeBackfill) -> ScheduleRpcs:
    return ScheduleRpcs(cast(ScheduleQueries, scheduling), cast(Backfill, backfill), store)


def line(minutes: int, index: int = 0, **more: Any) -> Fire:
    return Fire(
        schedule_id=f"nightly/{index}",
        workflow="nightly",
        due_at=NOW + timedelta(minutes=minutes),
        outcome=FireOutcome.FIRED,
        at=NOW,
        **more,
    )


def entry(index: int, spec: Schedule, **more: Any) -> ScheduleEntry:
    return ScheduleEntry(
        id=f"nightly/{index}",
        workflow="nightly",
        index=index,
        spec=spec,
        zone="Asia/Tokyo",
        stored_at=NOW,
        next_due=NOW + timedelta(hours=index + 1),
        **more,
    )


async def schedule(store: SqlStore, *entries: ScheduleEntry) -> None:
    """Stores the workflow `nightly`, with these schedules."""
    await with_schedules(store, *entries, workflow="nightly")


async def write(store: SqlStore, *lines: Fire) -> None:
    """Stores the workflow `nightly`, with three schedules and these lines in the ledger."""
    await schedule(store, *(entry(index, Schedule(every=60.0)) for index in range(3)))
    for each in await store.list_schedules(workflow="nightly"):
        of_it = tuple(line for line in lines if line.schedule_id == each.id)
        assert await store.fire(Firing(before=each, after=each, fires=of_it)) is not None


def time(text: str) -> Any:
    made = pb.DueTime()
    made.due_at.FromJsonString(text)
    return made.due_at


# -- due times


async def test_due_times_on_the_clocks_of_their_zone(answers: ScheduleRpcs, scheduling: FakeOutlook) -> None:
    due = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    first = Upcoming(
        due=due,
        at=due + timedelta(seconds=1.5),
        zone="Europe/Berlin",
        index=2,
        change=ClockChange.SHIFTED,
        blackout="",
    )
    again = replace(first, change=ClockChange.REPEATED, blackout="blackout until 04:00")
    scheduling.upcoming = [first, again, replace(first, change=ClockChange.NONE)]
    answer = await answers.preview(pb.PreviewScheduleRequest(workflow="nightly"))
    shown = answer.due_times[0]
    assert (shown.local, shown.timezone) == ("2026-03-29 03:00:00+02:00", "Europe/Berlin")
    assert shown.due_at == time("2026-03-29T01:00:00Z")
    assert shown.start_at == time("2026-03-29T01:00:01.5Z")
    assert (shown.schedule_index, shown.blackout) == (2, "")
    assert answer.due_times[1].blackout == "blackout until 04:00"
    assert [each.change for each in answer.due_times] == [
        pb.CLOCK_CHANGE_SHIFTED,
        pb.CLOCK_CHANGE_REPEATED,
        pb.CLOCK_CHANGE_UNSPECIFIED,
    ]


@pytest.mark.parametrize(("count", "expected"), [(0, 10), (1, 1), (100, 100), (5000, 100)])
async def test_how_many_due_times(answers: ScheduleRpcs, scheduling: FakeOutlook, count: int, expected: int) -> None:
    request = pb.PreviewScheduleRequest(workflow="nightly", count=count)
    await answers.preview(request)
    request.from_time.FromDatetime(NOW)
    await answers.preview(request)
    assert scheduling.asked == [("nightly", expected, None), ("nightly", expected, NOW)]


async def test_wrong_questions(answers: ScheduleRpcs) -> None:
    with pytest.raises(InvalidFieldError):
        await answers.preview(pb.PreviewScheduleRequest(workflow="nightly", count=-1))
    request = pb.ExplainScheduleRequest(workflow="nightly")
    request.at.seconds = 1 << 60
    with pytest.raises(InvalidFieldError):
        await answers.explain(request)


# -- why


async def test_an_explanation(answers: ScheduleRpcs, scheduling: FakeOutlook) -> None:
    skipped = replace(line(0), outcome=FireOutcome.SKIPPED, reason=NotStarted(NotStartedReason.DISABLED), more=3)
    scheduling.explanation = Explanation(sentences=("It was skipped.",), fires=[skipped], before=NOW, after=None)
    answer = await answers.explain(pb.ExplainScheduleRequest(workflow="nightly"))
    assert list(answer.sentences) == ["It was skipped."]
    (told,) = answer.fires
    assert (told.outcome, told.reason, told.more) == (pb.FIRE_OUTCOME_SKIPPED, pb.NOT_STARTED_REASON_DISABLED, 3)
    assert answer.due_before == time("2026-03-01T12:00:00Z")
    assert not answer.HasField("due_after")
    request = pb.ExplainScheduleRequest(workflow="nightly")
    request.at.FromDatetime(NOW)
    await answers.explain(request)
    assert scheduling.asked == [("nightly", None), ("nightly", NOW)]


@pytest.mark.parametrize("outcome", list(FireOutcome))
async def test_every_outcome_can_be_told(answers: ScheduleRpcs, store: SqlStore, outcome: FireOutcome) -> None:
    await write(store, replace(line(0, run_id="r"), outcome=outcome))
    (told,) = (await answers.fires(pb.ListFiresRequest())).fires
    assert pb.FireOutcome.Name(told.outcome) == f"FIRE_OUTCOME_{outcome.value}"
    assert (told.schedule_id, told.workflow, told.run_id) == ("nightly/0", "nightly", "r")


# -- the ledger


@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_pages_leave_nothing_out(answers: ScheduleRpcs, store: SqlStore, size: int) -> None:
    await write(store, *(line(minutes, index) for minutes in range(3) for index in range(3)))
    found: list[tuple[str, str]] = []
    token = ""
    while True:
        answer = await answers.fires(pb.ListFiresRequest(workflow="nightly", page_size=size, page_token=token))
        assert len(answer.fires) <= size
        found += [(each.due_at.ToJsonString(), each.schedule_id) for each in answer.fires]
        token = answer.next_page_token
        if not token:
            break
    assert len(found) == 9
    assert found == sorted(found, reverse=True)


async def test_a_ledger_that_is_empty_and_one_that_does_not_exist(answers: ScheduleRpcs, store: SqlStore) -> None:
    await write(store)
    assert not (await answers.fires(pb.ListFiresRequest())).fires
    assert not (await answers.fires(pb.ListFiresRequest(workflow="nightly"))).fires
    with pytest.raises(WorkflowNotFoundError):
        await answers.fires(pb.ListFiresRequest(workflow="absent"))


@pytest.mark.parametrize(
    "token",
    ["x", *map(pages.token, ["5", "soon nightly/0", "2026-03-01T12:00:00 a/0", NOW.isoformat()])],
)
async def test_tokens_of_others(answers: ScheduleRpcs, token: str) -> None:
    with pytest.raises(InvalidFieldError):
        await answers.fires(pb.ListFiresRequest(page_token=token))


# -- workflows


async def test_a_workflow_tells_its_schedules_in_words(answers: ScheduleRpcs, store: SqlStore) -> None:
    await schedule(
        store,
        entry(1, Schedule(every=7200.0)),
        entry(0, Schedule(cron="0 3 * * *")),
        entry(2, Schedule(cron="0 15 * * 1-5", words="平日の15時")),
    )
    await store.create_schedule(replace(entry(3, Schedule(every=60.0)), id="nightly/x", subject="issue-42"))
    shown = await answers.workflow(WORKFLOW)
    assert list(shown.schedules) == [
        "every day at 03:00 Asia/Tokyo",
        "every 2h",
        "平日の15時: every weekday at 15:00 Asia/Tokyo",
    ]
    assert shown.next_due == time("2026-03-01T13:00:00Z")


async def test_a_job_tells_its_schedules_too(answers: ScheduleRpcs, store: SqlStore) -> None:
    await schedule(store, entry(0, Schedule(cron="0 3 * * *")))
    shown = await answers.job(WORKFLOW, ["uses-it"])
    assert (shown.name, list(shown.used_by)) == ("nightly", ["uses-it"])
    assert list(shown.schedules) == ["every day at 03:00 Asia/Tokyo"]
    assert shown.next_due == time("2026-03-01T13:00:00Z")


async def test_the_types_of_events_each_once_in_their_order(answers: ScheduleRpcs) -> None:
    text = """
name: nightly
description: for a test
on:
  - {event: [B, A], condition: event.depth == 0}
  - {event: [C, A], priority: 3, condition: event.depth == 1}
steps: {a: {run: "true"}}
"""
    workflow = parse(text).documents[0].workflow
    assert workflow is not None
    version = WorkflowVersion(
        workflow="nightly",
        version=1,
        source=text,
        base_dir="",
        parsed=workflow.to_dict(),
        digest="",
        created_at=NOW,
    )
    stored = replace(WORKFLOW, definition=version)
    assert list((await answers.workflow(stored)).event_types) == ["B", "A", "C"]
    assert list((await answers.job(stored)).event_types) == ["B", "A", "C"]
    # A version that was stored before there were events.
    older = {name: value for name, value in version.parsed.items() if name != "triggers"}
    stored = replace(WORKFLOW, definition=replace(version, parsed=older))
    assert list((await answers.workflow(stored)).event_types) == []
    assert list((await answers.workflow(WORKFLOW)).event_types) == []


async def test_a_workflow_that_is_never_due(answers: ScheduleRpcs, store: SqlStore) -> None:
    assert not (await answers.workflow(WORKFLOW)).HasField("next_due")
    await schedule(store, replace(entry(0, Schedule(at=NOW)), next_due=None))
    shown = await answers.workflow(WORKFLOW)
    assert list(shown.schedules) == ["once at 2026-03-01 12:00+00:00"]
    assert not shown.HasField("next_due")


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
async def test_times_at_which_nothing_can_be_due_are_refused(answers: ScheduleRpcs, text: str) -> None:
    with pytest.raises(InvalidFieldError) as refused:
        await answers.explain(pb.ExplainScheduleRequest(workflow="nightly", at=time(text)))
    assert refused.value.args == ("at", "must be a time from 1970 to 9998")


# -- backfill


def backfill_request(**fields: Any) -> pb.BackfillScheduleRequest:
    request = pb.BackfillScheduleRequest(workflow="nightly", **fields)
    request.from_time.CopyFrom(time("2026-01-01T00:00:00Z"))
    request.to_time.CopyFrom(time("2026-01-31T00:00:00Z"))
    return request


async def test_a_backfill_is_previewed_or_started(answers: ScheduleRpcs, backfill: FakeBackfill) -> None:
    await answers.backfill(backfill_request(validate_only=True), "me", None)
    fields = {"schedule_index": 0, "scope": "quick", "params": {"n": 3.0}, "again": True, "limit": 5}
    await answers.backfill(backfill_request(**fields), "me", None)
    (first, previewed), (second, started) = backfill.asked
    assert (previewed, started) == (True, False)
    assert (first.index, first.limit, first.params, first.again) == (None, MOST, {}, False)
    assert (second.index, second.scope, second.params, second.again, second.limit) == (0, "quick", {"n": 3}, True, 5)
    assert (second.first, second.last) == (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 31, tzinfo=UTC))


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (lambda request: request.ClearField("from_time"), "from_time"),
        (lambda request: request.ClearField("to_time"), "to_time"),
        (lambda request: request.to_time.CopyFrom(time("2025-12-31T00:00:00Z")), "to_time"),
        (lambda request: setattr(request, "limit", -1), "limit"),
        (lambda request: setattr(request, "limit", MOST + 1), "limit"),
    ],
)
async def test_a_backfill_without_an_interval_is_refused(
    broken: Callable[[pb.BackfillScheduleRequest], object], field: str, answers: ScheduleRpcs, backfill: FakeBackfill
) -> None:
    request = backfill_request()
    broken(request)
    with pytest.raises(InvalidFieldError) as found:
        await answers.backfill(request, "me", None)
    assert found.value.args[0] == field
    assert backfill.asked == []
