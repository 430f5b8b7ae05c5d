"""`request_id`: the same call again answers as the first one did; another call under its id is refused."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from helpers.daemon import Daemon, run_state
from helpers.refusal import refused
from toban.v1 import run_pb2
from toban.v1 import workflow_pb2 as pb


def source(name: str, run: str = "true", **fields: object) -> str:
    steps = [{"name": "only", "run": run}]
    return json.dumps({"name": name, "description": "for a test", **fields, "steps": steps})


def create(daemon: Daemon, text: str, request_id: str) -> pb.Workflow:
    request = pb.CreateWorkflowRequest(definition=pb.Definition(source=text), request_id=request_id)
    return daemon.workflows.CreateWorkflow(request, timeout=20).workflow


def update(daemon: Daemon, name: str, text: str, request_id: str) -> pb.UpdateWorkflowResponse:
    workflow = pb.Workflow(name=name, definition=pb.Definition(source=text))
    request = pb.UpdateWorkflowRequest(workflow=workflow, request_id=request_id)
    return daemon.workflows.UpdateWorkflow(request, timeout=20)


def start(daemon: Daemon, workflow: str, request_id: str, **params: str) -> run_pb2.Run:
    request = run_pb2.StartRunRequest(workflow=workflow, request_id=request_id)
    request.params.update(params)
    return daemon.runs.StartRun(request, timeout=20).run


def delete(daemon: Daemon, name: str) -> None:
    daemon.workflows.DeleteWorkflow(pb.DeleteWorkflowRequest(name=name), timeout=20)


def runs_of(daemon: Daemon, workflow: str) -> list[str]:
    request = run_pb2.ListRunsRequest(workflow=workflow)
    return [run.id for run in daemon.runs.ListRuns(request, timeout=20).runs]


def test_a_repeated_create_answers_as_the_first(daemon: Daemon) -> None:
    first = create(daemon, source("recreated"), "create-1")
    assert create(daemon, source("recreated"), "create-1") == first
    update(daemon, "recreated", source("recreated", run="false"), "")
    assert create(daemon, source("recreated"), "create-1") == first
    delete(daemon, "recreated")
    assert create(daemon, source("recreated"), "create-1") == first
    refusal = refused(lambda: daemon.workflows.GetWorkflow(pb.GetWorkflowRequest(name="recreated")))
    assert refusal.reason == "WORKFLOW_NOT_FOUND", "a repeat creates nothing"


def test_a_repeated_update_answers_as_the_first(daemon: Daemon) -> None:
    create(daemon, source("updated"), "")
    first = update(daemon, "updated", source("updated", run="one"), "update-1")
    assert first.changed
    second = update(daemon, "updated", source("updated", run="two"), "update-2")
    assert update(daemon, "updated", source("updated", run="one"), "update-1") == first
    assert update(daemon, "updated", source("updated", run="two"), "update-2") == second
    unchanged = update(daemon, "updated", source("updated", run="two"), "update-3")
    assert not unchanged.changed
    assert update(daemon, "updated", source("updated", run="two"), "update-3") == unchanged
    asked = pb.ListWorkflowVersionsRequest(workflow="updated")
    versions = daemon.workflows.ListWorkflowVersions(asked, timeout=20).versions
    assert [each.version for each in versions] == [3, 2, 1]


def test_a_repeated_start_answers_the_same_run(daemon: Daemon) -> None:
    create(daemon, source("started"), "")
    first = start(daemon, "started", "start-1")
    daemon.wait_run(first.id)
    again = start(daemon, "started", "start-1")
    assert (again.id, run_state(again)) == (first.id, "SUCCEEDED")
    assert runs_of(daemon, "started") == [first.id]
    second = start(daemon, "started", "start-2")
    assert second.id != first.id
    daemon.wait_run(second.id)


def test_a_repeated_start_is_not_judged_by_what_became_of_the_workflow(daemon: Daemon) -> None:
    create(daemon, source("judged"), "")
    first = start(daemon, "judged", "judged-1")
    daemon.wait_run(first.id)
    demanding = source("judged", params={"day": {"type": "string", "required": True}})
    update(daemon, "judged", demanding, "")
    assert start(daemon, "judged", "judged-1").id == first.id
    delete(daemon, "judged")
    assert start(daemon, "judged", "judged-1").id == first.id


def test_one_of_many_equal_starts_at_once_makes_the_run(daemon: Daemon) -> None:
    create(daemon, source("hurried", overlap="allow"), "")
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda _: start(daemon, "hurried", "hurried-1").id, range(16)))
    assert len(ids) == 1
    assert runs_of(daemon, "hurried") == list(ids)
    daemon.wait_run(ids.pop())


def test_an_id_with_another_body_is_refused(daemon: Daemon) -> None:
    create(daemon, source("reused", params={"day": {"type": "string", "default": ""}}), "reused-1")
    update(daemon, "reused", source("reused", run="one"), "reused-1")
    update(daemon, "reused", source("reused", params={"day": {"default": "", "type": "string"}}), "")
    daemon.wait_run(start(daemon, "reused", "reused-1").id)
    for call in (
        lambda: create(daemon, source("reused"), "reused-1"),
        lambda: update(daemon, "reused", source("reused", run="other"), "reused-1"),
        lambda: start(daemon, "reused", "reused-1", day="friday"),
    ):
        refusal = refused(call)
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "REQUEST_ID_REUSED",
        )
        assert refusal.metadata == {"request_id": "reused-1"}


def test_a_refused_call_does_not_use_up_its_id(daemon: Daemon) -> None:
    assert refused(lambda: start(daemon, "late", "late-1")).reason == "WORKFLOW_NOT_FOUND"
    assert refused(lambda: create(daemon, "steps: 3", "late-1")).reason == "INVALID_DEFINITION"
    made = create(daemon, source("late"), "late-1")
    assert made.version == 1
    started = start(daemon, "late", "late-1")
    assert started.number == 1
    daemon.wait_run(started.id)


@pytest.mark.parametrize("length", [129, 100_000])
def test_an_id_that_is_too_long_is_refused(daemon: Daemon, length: int) -> None:
    refusal = refused(lambda: create(daemon, source("long"), "x" * length))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [field for field, _ in refusal.violations] == ["request_id"]
