"""HistoryService through a real daemon: runs by day, grids of runs and steps, chains of events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import grpc
import pytest

from helpers.daemon import Daemon, running_daemon
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.sdk import SyncClient
from toban.v1 import event_pb2, history_pb2, history_pb2_grpc, run_pb2

WORKFLOWS = """
name: steps
description: d
steps:
- {name: first, run: "true"}
- {name: each, for_each: [1, 2], run: "true", depends_on: [first]}
- {name: fails, run: exit 3, depends_on: [first]}
- {name: after, run: "true", depends_on: [fails]}
"""
CHAIN = """
name: %s
description: d
on: %s
steps:
- {name: emits, run: 'toban emit %s -q'}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("h") / "s") as running:
        running.apply(WORKFLOWS)
        yield running


@pytest.fixture
def history(daemon: Daemon) -> history_pb2_grpc.HistoryServiceStub:
    return history_pb2_grpc.HistoryServiceStub(daemon.channel)


def test_runs_by_day(daemon: Daemon, history: history_pb2_grpc.HistoryServiceStub) -> None:
    zone = ZoneInfo("Pacific/Kiritimati")
    before = datetime.now(UTC)
    for _ in range(3):
        daemon.run("steps")
    answer = history.CountRunsByDay(history_pb2.CountRunsByDayRequest(timezone=zone.key), timeout=20)
    today = datetime.now(UTC).astimezone(zone).date()
    assert (answer.timezone, answer.last_day) == (zone.key, today.isoformat())
    assert answer.first_day == (today - timedelta(days=364)).isoformat()
    days = {day.day: {count.state: count.runs for count in day.counts} for day in answer.days}
    assert sum(days.pop(before.astimezone(zone).date().isoformat(), {}).values()) + sum(
        count for counts in days.values() for count in counts.values()
    ) == len(daemon.runs.ListRuns(run_pb2.ListRunsRequest(page_size=1000), timeout=20).runs)
    with SyncClient(daemon.socket) as client:
        counted = client.count_runs_by_day("steps", timezone="UTC", first_day=before.date().isoformat(), days=2)
        assert {count.state for day in counted.days for count in day.counts} == {run_pb2.RUN_STATE_FAILED}
        assert not client.count_runs_by_day("steps", first_day="2001-02-03", days=371).days
        assert not client.count_runs_by_day("absent").days


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"timezone": "Mars/Base"}, "timezone"),
        ({"days": 372}, "days"),
        ({"days": -1}, "days"),
        ({"first_day": "2026-02-30"}, "first_day"),
        ({"first_day": "yesterday"}, "first_day"),
        ({"first_day": "0001-01-01"}, "first_day"),
    ],
)
def test_days_that_cannot_be(history: history_pb2_grpc.HistoryServiceStub, fields: dict[str, Any], field: str) -> None:
    found = refused(lambda: history.CountRunsByDay(history_pb2.CountRunsByDayRequest(**fields), timeout=20))
    assert (found.code, [name for name, _ in found.violations]) == (grpc.StatusCode.INVALID_ARGUMENT, [field])


def test_a_grid(daemon: Daemon, history: history_pb2_grpc.HistoryServiceStub) -> None:
    runs = [daemon.run("steps") for _ in range(3)]
    page = history.ListRunGrid(history_pb2.ListRunGridRequest(workflow="steps", page_size=2), timeout=20)
    assert list(page.steps) == ["first", "each", "fails", "after"]
    assert [run.run_id for run in page.runs] == [runs[2].id, runs[1].id]
    newest = page.runs[0]
    assert (newest.state, newest.number) == (run_pb2.RUN_STATE_FAILED, runs[2].number)
    assert [(step.index, run_pb2.StepState.Name(step.state)) for step in newest.steps] == [
        (0, "STEP_STATE_SUCCEEDED"),
        (1, "STEP_STATE_SUCCEEDED"),
        (2, "STEP_STATE_FAILED"),
        (3, "STEP_STATE_SKIPPED"),
    ]
    first = newest.steps[0]
    assert first.attempts == 1
    assert newest.created_at.ToDatetime() <= first.started_at.ToDatetime() <= first.finished_at.ToDatetime()
    with SyncClient(daemon.socket) as client:
        rest = client.list_run_grid("steps", page_size=200, page_token=page.next_page_token)
    assert rest.runs[0].run_id == runs[0].id
    assert not rest.next_page_token
    unknown = refused(lambda: history.ListRunGrid(history_pb2.ListRunGridRequest(workflow="absent"), timeout=20))
    assert unknown.reason == "WORKFLOW_NOT_FOUND"
    many = refused(
        lambda: history.ListRunGrid(history_pb2.ListRunGridRequest(workflow="steps", page_size=201), timeout=20)
    )
    assert [name for name, _ in many.violations] == ["page_size"]


def test_a_chain_of_events(daemon: Daemon, history: history_pb2_grpc.HistoryServiceStub) -> None:
    for name, on, emits in (("one", "A", "B"), ("two", "B", "C"), ("three", "C", "D"), ("other", "B", "E")):
        daemon.apply(CHAIN % (name, on, emits))
    event = daemon.emit("A", {})

    def chain() -> history_pb2.GetEventChainResponse:
        return history.GetEventChain(history_pb2.GetEventChainRequest(id=event.id), timeout=20)

    def ended() -> bool:
        found = chain()
        return len(found.events) == 5 and all(run.state == run_pb2.RUN_STATE_SUCCEEDED for run in found.runs)

    wait_until(ended, "the chain does not end")
    found = chain()
    assert sorted(each.type for each in found.events) == ["A", "B", "C", "D", "E"]
    assert found.events[0].id == event.id
    types = {each.id: each.type for each in found.events}
    assert {run.workflow: types[run.event_id] for run in found.runs} == {
        "one": "A",
        "two": "B",
        "three": "C",
        "other": "B",
    }
    sources = {each.type: each.source_run for each in found.events}
    runs = {run.workflow: run.run_id for run in found.runs}
    assert (sources["B"], sources["C"], sources["D"], sources["E"]) == (
        runs["one"],
        runs["two"],
        runs["three"],
        runs["other"],
    )
    assert not found.truncated
    alone = next(each for each in found.events if each.type == "D")
    last = history.GetEventChain(history_pb2.GetEventChainRequest(id=alone.id), timeout=20)
    assert ([each.id for each in last.events], list(last.runs)) == ([alone.id], [])
    absent = refused(lambda: history.GetEventChain(history_pb2.GetEventChainRequest(id="absent"), timeout=20))
    assert absent.reason == "EVENT_NOT_FOUND"


def test_a_long_chain_is_cut(daemon: Daemon, history: history_pb2_grpc.HistoryServiceStub) -> None:
    daemon.apply(CHAIN % ("again", "AGAIN", "AGAIN"))
    event = daemon.emit("AGAIN", {})

    def cut() -> bool:
        found = history.GetEventChain(history_pb2.GetEventChainRequest(id=event.id), timeout=20)
        return bool(found.events) and found.events[-1].state == event_pb2.EVENT_STATE_CUT

    wait_until(cut, "the chain is not cut", 60)
    found = history.GetEventChain(history_pb2.GetEventChainRequest(id=event.id), timeout=20)
    assert (len(found.events), len(found.runs)) == (17, 16)
