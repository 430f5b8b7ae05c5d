"""Schedules over the API: due times, the ledger, and draining."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import grpc
import pytest

from helpers.daemon import Daemon
from helpers.refusal import refused
from toban.v1 import system_pb2
from toban.v1 import workflow_pb2 as pb


def apply(daemon: Daemon, name: str, **fields: object) -> None:
    steps = [{"name": "only", "run": "true"}]
    daemon.apply(json.dumps({"name": name, "description": "for a test", **fields, "steps": steps}))


def preview(daemon: Daemon, name: str, count: int, after: str) -> list[pb.DueTime]:
    request = pb.PreviewScheduleRequest(workflow=name, count=count)
    request.from_time.FromJsonString(after)
    return list(daemon.workflows.PreviewSchedule(request, timeout=20).due_times)


def get(daemon: Daemon, name: str) -> pb.Workflow:
    return daemon.workflows.GetWorkflow(pb.GetWorkflowRequest(name=name), timeout=20).workflow


def info(daemon: Daemon) -> system_pb2.GetInfoResponse:
    return daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)


@contextmanager
def drained(daemon: Daemon) -> Iterator[None]:
    assert daemon.system.Drain(system_pb2.DrainRequest(), timeout=20).changed
    try:
        yield
    finally:
        assert daemon.system.Resume(system_pb2.ResumeRequest(), timeout=20).changed


def test_a_workflow_without_a_schedule(daemon: Daemon) -> None:
    apply(daemon, "by-hand")
    assert preview(daemon, "by-hand", 5, "2026-01-01T00:00:00Z") == []
    asked = pb.ExplainScheduleRequest(workflow="by-hand")
    assert "no schedule" in daemon.workflows.ExplainSchedule(asked, timeout=20).sentences[0]
    fires = daemon.workflows.ListFires(pb.ListFiresRequest(workflow="by-hand"), timeout=20)
    assert (list(fires.fires), fires.next_page_token) == ([], "")
    workflow = get(daemon, "by-hand")
    assert (list(workflow.schedules), workflow.HasField("next_due")) == ([], False)


def test_what_does_not_exist(daemon: Daemon) -> None:
    calls = [
        lambda: preview(daemon, "absent", 1, "2026-01-01T00:00:00Z"),
        lambda: daemon.workflows.ExplainSchedule(pb.ExplainScheduleRequest(workflow="absent"), timeout=20),
        lambda: daemon.workflows.ListFires(pb.ListFiresRequest(workflow="absent"), timeout=20),
    ]
    for call in calls:
        refusal = refused(call)
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.NOT_FOUND,
            "WORKFLOW_NOT_FOUND",
        )


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.PreviewScheduleRequest(workflow="x", count=-1), "count"),
        (pb.ListFiresRequest(page_size=-1), "page_size"),
        (pb.ListFiresRequest(page_token="?"), "page_token"),
    ],
)
def test_wrong_fields(daemon: Daemon, request_: pb.PreviewScheduleRequest | pb.ListFiresRequest, field: str) -> None:
    def call() -> object:
        if isinstance(request_, pb.ListFiresRequest):
            return daemon.workflows.ListFires(request_, timeout=20)
        return daemon.workflows.PreviewSchedule(request_, timeout=20)

    refusal = refused(call)
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [found for found, _ in refusal.violations] == [field]


def test_due_times_over_a_change_of_the_clocks(daemon: Daemon) -> None:
    schedule = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "fold": "both"}
    apply(daemon, "at-night", schedule=schedule, blackout=["0 2 30 3 */1h"])
    spring = preview(daemon, "at-night", 3, "2030-03-30T12:00:00Z")
    assert [each.local for each in spring] == [
        "2030-03-31 03:00:00+02:00",
        "2030-04-01 02:30:00+02:00",
        "2030-04-02 02:30:00+02:00",
    ]
    assert [each.change == pb.CLOCK_CHANGE_SHIFTED for each in spring] == [True, False, False]
    (covered,) = preview(daemon, "at-night", 1, "2030-03-29T12:00:00Z")
    assert covered.blackout.startswith("blackout until 2030-03-30T03:00:00")
    autumn = preview(daemon, "at-night", 2, "2030-10-26T12:00:00Z")
    assert [each.local[-6:] for each in autumn] == ["+02:00", "+01:00"]
    assert autumn[1].change == pb.CLOCK_CHANGE_REPEATED


def test_a_workflow_tells_its_schedules(daemon: Daemon) -> None:
    before = info(daemon).schedules
    at = datetime(2099, 1, 1, tzinfo=UTC)
    apply(daemon, "told", schedule=[{"at": at.isoformat()}], timezone="Asia/Tokyo")
    workflow = get(daemon, "told")
    assert len(workflow.schedules) == 1
    assert workflow.schedules[0].startswith("once at 2099-01-01 00:00")
    assert workflow.next_due.ToDatetime(tzinfo=UTC) == at
    assert info(daemon).schedules == before + 1
    daemon.workflows.DeleteWorkflow(pb.DeleteWorkflowRequest(name="told"), timeout=20)
    assert info(daemon).schedules == before


def test_draining_holds_schedules_and_nothing_else(daemon: Daemon) -> None:
    apply(daemon, "while-draining")
    assert not info(daemon).draining
    with drained(daemon):
        assert info(daemon).draining
        assert not daemon.system.Drain(system_pb2.DrainRequest(), timeout=20).changed
        daemon.wait_run(daemon.start_run("while-draining"))
    assert not info(daemon).draining
    assert not daemon.system.Resume(system_pb2.ResumeRequest(), timeout=20).changed


def test_a_blackout_without_an_end_says_so(daemon: Daemon) -> None:
    apply(daemon, "shut", schedule={"cron": "* * * * *"}, blackout=["0 0 * * */24h"])
    found = preview(daemon, "shut", 100, "2030-01-01T00:00:00Z")
    assert {each.blackout for each in found} == {"blackout until further notice"}


def test_what_is_never_due_is_a_warning_and_is_explained(daemon: Daemon) -> None:
    schedule = {"at": "2020-01-01T00:00:00Z", "timezone": "Asia/Tokyo"}
    apply(daemon, "too-late", schedule=schedule)
    definition = get(daemon, "too-late").definition
    request = pb.ValidateWorkflowRequest(definition=definition)
    answer = daemon.workflows.ValidateWorkflow(request, timeout=20)
    assert answer.valid
    assert [problem.path for problem in answer.problems if problem.warning] == ["schedule"]
    asked = pb.ExplainScheduleRequest(workflow="too-late")
    said = daemon.workflows.ExplainSchedule(asked, timeout=20).sentences
    assert said[0] == ("Was scheduled once at 2020-01-01 00:00+00:00 (Asia/Tokyo): that time has passed.")


def test_whether_it_is_due_at_a_time_to_come(daemon: Daemon) -> None:
    apply(daemon, "ahead", schedule={"cron": "0 3 * * *", "timezone": "Asia/Tokyo"})
    request = pb.ExplainScheduleRequest(workflow="ahead")
    request.at.FromJsonString("2030-01-01T18:00:00Z")
    answer = daemon.workflows.ExplainSchedule(request, timeout=20)
    assert list(answer.sentences) == ["It is due then, at 2030-01-02 03:00:00 JST."]
    assert answer.due_before.ToJsonString() == "2029-12-31T18:00:00Z"
    assert answer.due_after.ToJsonString() == "2030-01-02T18:00:00Z"


def test_a_limit_counts_what_is_due_before_the_time_that_is_asked_about(daemon: Daemon) -> None:
    # From a time to come on: none of them is due while this runs.
    schedule = {"cron": "0 * * * *", "max_occurrences": 3, "start": "2029-01-01T00:00:00Z"}
    apply(daemon, "thrice", schedule=schedule)
    assert preview(daemon, "thrice", 10, "2030-01-01T00:00:00Z") == []
    assert len(preview(daemon, "thrice", 10, "2026-01-01T00:00:00Z")) == 3


def test_a_schedule_of_boots_is_due_at_the_next(daemon: Daemon) -> None:
    apply(daemon, "at-boot", schedule="@reboot")
    asked = pb.ExplainScheduleRequest(workflow="at-boot")
    said = daemon.workflows.ExplainSchedule(asked, timeout=20).sentences
    assert said[-1] == "It is due at the next boot of the machine."
