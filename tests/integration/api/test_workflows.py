"""WorkflowService: storing, reading, changing and deleting definitions."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import grpc
import pytest
from google.protobuf import field_mask_pb2

from helpers.daemon import Daemon, run_state
from helpers.gate import Gate
from helpers.refusal import refused
from toban.v1 import run_pb2
from toban.v1 import workflow_pb2 as pb


def source(name: str, run: str = "true", **fields: object) -> str:
    """A definition of one step; JSON is YAML too."""
    steps = [{"name": "only", "run": run}]
    return json.dumps({"name": name, "description": "for a test", **fields, "steps": steps})


def update(daemon: Daemon, name: str, text: str, etag: str = "", base_dir: str = "") -> pb.UpdateWorkflowResponse:
    workflow = pb.Workflow(name=name, etag=etag, definition=pb.Definition(source=text, base_dir=base_dir))
    return daemon.workflows.UpdateWorkflow(pb.UpdateWorkflowRequest(workflow=workflow), timeout=20)


def get(daemon: Daemon, name: str) -> pb.Workflow:
    return daemon.workflows.GetWorkflow(pb.GetWorkflowRequest(name=name), timeout=20).workflow


def names(daemon: Daemon, size: int = 0, **labels: str) -> list[str]:
    """Every name, page by page."""
    found, token = [], ""
    while True:
        request = pb.ListWorkflowsRequest(page_size=size, page_token=token, labels=labels)
        page = daemon.workflows.ListWorkflows(request, timeout=20)
        assert len(page.workflows) <= (size or 100)
        assert all(not each.HasField("definition") for each in page.workflows)
        found += [each.name for each in page.workflows]
        token = page.next_page_token
        if not token:
            return found


def test_a_created_workflow_comes_back_as_it_was_given(daemon: Daemon) -> None:
    text = source("created", title="作成", labels={"team": "tools"}, enabled=False)
    made = daemon.apply(text, "/srv/flows")
    assert get(daemon, "created") == made
    assert (made.name, made.title, made.description) == ("created", "作成", "for a test")
    assert (dict(made.labels), made.enabled, made.version, made.owner_kind) == (
        {"team": "tools"},
        False,
        1,
        pb.OWNER_KIND_API,
    )
    assert made.created_at == made.updated_at
    assert made.etag
    assert (made.definition.source, made.definition.base_dir) == (text, "/srv/flows")
    parsed = json.loads(made.definition.parsed_json)
    assert parsed["name"] == "created"
    assert [step["target"] for step in parsed["steps"]] == ["true"]


def test_warnings_come_with_the_answer(daemon: Daemon) -> None:
    text = json.dumps({"name": "undescribed", "steps": [{"name": "only", "run": "true"}]})
    request = pb.CreateWorkflowRequest(definition=pb.Definition(source=text))
    answer = daemon.workflows.CreateWorkflow(request, timeout=20)
    assert answer.workflow.name == "undescribed"
    assert [each.warning for each in answer.warnings] == [True]
    assert "description" in answer.warnings[0].message


def test_a_taken_name_is_refused(daemon: Daemon) -> None:
    daemon.apply(source("taken"))
    refusal = refused(lambda: daemon.apply(source("taken", run="false")))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "WORKFLOW_EXISTS")
    assert refusal.metadata == {"workflow": "taken"}


def test_every_problem_of_a_definition_is_told_with_its_place(daemon: Daemon) -> None:
    text = "\n".join(
        [
            "name: bad name",
            "description: five mistakes",
            "timeout: soon",
            "colour: blue",
            "steps:",
            "  a: {run: 'true', depends_on: [nobody]}",
            "  b: {run: 'echo {{ params.missing }}'}",
        ]
    )
    refusal = refused(lambda: daemon.apply(text))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_DEFINITION",
    )
    places = {(each.path, each.line) for each in refusal.problems}
    assert places == {
        ("name", 1),
        ("timeout", 3),
        ("colour", 4),
        ("steps.a.depends_on[0]", 6),
        ("steps.b.run", 7),
    }
    assert all(each.column >= 1 and each.message for each in refusal.problems)
    assert [each.line for each in refusal.problems] == sorted(e.line for e in refusal.problems)
    assert len(refusal.violations) == 5
    for problem, (field, text) in zip(refusal.problems, refusal.violations, strict=True):
        assert field == problem.path
        assert text == f"{problem.line}:{problem.column}: {problem.message}"
    missing = refused(lambda: get(daemon, "bad name"))
    assert missing.reason == "WORKFLOW_NOT_FOUND", "nothing was stored"


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "{", "name: x\n---\nname: y\n", "\x07", "&a *a"])
def test_what_is_no_definition_is_a_problem_with_a_place(daemon: Daemon, text: str) -> None:
    refusal = refused(lambda: daemon.apply(text))
    assert refusal.reason == "INVALID_DEFINITION"
    assert all(each.line >= 1 and each.column >= 1 for each in refusal.problems)
    request = pb.ValidateWorkflowRequest(definition=pb.Definition(source=text))
    answer = daemon.workflows.ValidateWorkflow(request, timeout=20)
    assert not answer.valid
    assert list(answer.problems) == list(refusal.problems)


def test_two_documents_are_not_one_workflow(daemon: Daemon) -> None:
    two = f"{source('first-of-two')}\n---\n{source('second-of-two')}\n"
    refusal = refused(lambda: daemon.apply(two))
    assert refusal.reason == "INVALID_DEFINITION"
    assert "2 documents" in refusal.problems[-1].message


def test_a_field_that_is_not_supported_yet_is_refused(daemon: Daemon) -> None:
    refusal = refused(lambda: daemon.apply(source("telling", notify=["ops"])))
    assert [each.path for each in refusal.problems] == ["notify"]
    assert "not supported yet" in refusal.problems[0].message


def test_validate_stores_nothing(daemon: Daemon) -> None:
    request = pb.ValidateWorkflowRequest(definition=pb.Definition(source=source("only-checked")))
    answer = daemon.workflows.ValidateWorkflow(request, timeout=20)
    assert answer.valid
    assert list(answer.problems) == []
    assert refused(lambda: get(daemon, "only-checked")).code is grpc.StatusCode.NOT_FOUND


def test_a_relative_base_dir_is_refused(daemon: Daemon) -> None:
    refusal = refused(lambda: daemon.apply(source("relative"), "flows"))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [field for field, _ in refusal.violations] == ["definition.base_dir"]


def test_an_unknown_workflow_is_not_found_by_any_call(daemon: Daemon) -> None:
    calls = [
        lambda: get(daemon, "nobody"),
        lambda: update(daemon, "nobody", source("nobody")),
        lambda: daemon.workflows.DeleteWorkflow(pb.DeleteWorkflowRequest(name="nobody")),
        lambda: daemon.workflows.SetWorkflowEnabled(pb.SetWorkflowEnabledRequest(name="nobody")),
        lambda: daemon.workflows.ListWorkflowVersions(pb.ListWorkflowVersionsRequest(workflow="nobody")),
        lambda: daemon.start_run("nobody"),
        lambda: daemon.runs.GetCurrentRun(run_pb2.GetCurrentRunRequest(workflow="nobody")),
    ]
    for call in calls:
        refusal = refused(call)
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.NOT_FOUND,
            "WORKFLOW_NOT_FOUND",
        )
        assert refusal.metadata == {"workflow": "nobody"}
        assert "nobody" in refusal.text


# -- update


def test_the_same_text_again_changes_nothing(daemon: Daemon) -> None:
    made = daemon.apply(source("same"))
    answer = update(daemon, "same", source("same"))
    assert not answer.changed
    assert answer.workflow == made


def test_another_text_is_a_new_version_and_the_old_one_stays(daemon: Daemon) -> None:
    made = daemon.apply(source("changing"))
    answer = update(daemon, "changing", source("changing", run="false", title="New"))
    assert answer.changed
    assert (answer.workflow.version, answer.workflow.title) == (2, "New")
    assert answer.workflow.etag != made.etag
    assert answer.workflow.created_at == made.created_at
    request = pb.ListWorkflowVersionsRequest(workflow="changing")
    listed = daemon.workflows.ListWorkflowVersions(request, timeout=20).versions
    assert [each.version for each in listed] == [2, 1]
    assert all(not each.HasField("definition") for each in listed)
    for version, text in ((1, source("changing")), (2, answer.workflow.definition.source)):
        asked = pb.GetWorkflowVersionRequest(workflow="changing", version=version)
        found = daemon.workflows.GetWorkflowVersion(asked, timeout=20).version
        assert (found.version, found.definition.source) == (version, text)
        assert found.digest == hashlib.sha256(text.encode()).hexdigest()


def test_another_base_dir_is_a_new_version(daemon: Daemon) -> None:
    daemon.apply(source("moved"), "/srv/a")
    answer = update(daemon, "moved", source("moved"), base_dir="/srv/b")
    assert (answer.changed, answer.workflow.version) == (True, 2)
    assert answer.workflow.definition.base_dir == "/srv/b"


def test_an_update_with_an_old_etag_is_refused(daemon: Daemon) -> None:
    first = daemon.apply(source("raced"))
    second = update(daemon, "raced", source("raced", run="one"), etag=first.etag).workflow
    refusal = refused(lambda: update(daemon, "raced", source("raced", run="two"), etag=first.etag))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
    assert refusal.metadata["etag"] == second.etag
    assert get(daemon, "raced") == second
    third = update(daemon, "raced", source("raced", run="two"), etag=second.etag)
    assert third.workflow.version == 3


def test_a_workflow_keeps_its_name(daemon: Daemon) -> None:
    made = daemon.apply(source("kept"))
    refusal = refused(lambda: update(daemon, "kept", source("renamed")))
    assert refusal.reason == "INVALID_DEFINITION"
    assert [each.path for each in refusal.problems] == ["name"]
    assert get(daemon, "kept") == made


def test_only_the_definition_can_be_updated(daemon: Daemon) -> None:
    made = daemon.apply(source("masked"))
    mask = field_mask_pb2.FieldMask(paths=["title"])
    request = pb.UpdateWorkflowRequest(workflow=pb.Workflow(name="masked", title="x"), update_mask=mask)
    refusal = refused(lambda: daemon.workflows.UpdateWorkflow(request, timeout=20))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [field for field, _ in refusal.violations] == ["update_mask"]
    assert get(daemon, "masked") == made


def test_an_unknown_version_is_not_found(daemon: Daemon) -> None:
    daemon.apply(source("versioned"))
    for number in (0, 2, -1, 2**63 - 1):
        asked = pb.GetWorkflowVersionRequest(workflow="versioned", version=number)
        refusal = refused(lambda asked=asked: daemon.workflows.GetWorkflowVersion(asked))  # type: ignore[misc]
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "VERSION_NOT_FOUND")
        assert refusal.metadata == {"workflow": "versioned", "version": str(number)}


def test_versions_come_in_pages(daemon: Daemon) -> None:
    daemon.apply(source("paged"))
    for number in range(2, 8):
        update(daemon, "paged", source("paged", run=f"echo {number}"))
    found, token = [], ""
    while True:
        request = pb.ListWorkflowVersionsRequest(workflow="paged", page_size=3, page_token=token)
        page = daemon.workflows.ListWorkflowVersions(request, timeout=20)
        found += [each.version for each in page.versions]
        token = page.next_page_token
        if not token:
            break
        # What comes in between is newer than all that is still to be listed.
        update(daemon, "paged", source("paged", run=f"echo more {len(found)}"))
    assert found == [7, 6, 5, 4, 3, 2, 1]


def test_enabling_makes_no_version_and_may_be_repeated(daemon: Daemon) -> None:
    made = daemon.apply(source("switched"))

    def switch(enabled: bool) -> pb.Workflow:
        request = pb.SetWorkflowEnabledRequest(name="switched", enabled=enabled)
        return daemon.workflows.SetWorkflowEnabled(request, timeout=20).workflow

    off = switch(False)
    assert (off.enabled, off.version) == (False, 1)
    assert off.etag != made.etag
    assert switch(False) == off
    assert run_state(daemon.run("switched")) == "SUCCEEDED", "a run by hand always may"
    kept = update(daemon, "switched", source("switched", run="echo new")).workflow
    assert not kept.enabled, "what was set by hand stays when the definition says nothing new"
    assert switch(True).enabled


# -- lists


def test_lists_are_in_order_of_name_and_stable_under_inserts(daemon: Daemon) -> None:
    for name in ("list-b", "list-d", "list-f"):
        daemon.apply(source(name, labels={"list": "yes", "odd": str(name != "list-d")}))
    assert names(daemon, 1, list="yes") == ["list-b", "list-d", "list-f"]
    assert names(daemon, list="yes", odd="True") == ["list-b", "list-f"]
    assert names(daemon, list="no") == []
    first = pb.ListWorkflowsRequest(page_size=2, labels={"list": "yes"})
    page = daemon.workflows.ListWorkflows(first, timeout=20)
    assert [each.name for each in page.workflows] == ["list-b", "list-d"]
    for name in ("list-a", "list-c", "list-e"):
        daemon.apply(source(name, labels={"list": "yes"}))
    rest = pb.ListWorkflowsRequest(page_size=2, page_token=page.next_page_token, labels={"list": "yes"})
    page = daemon.workflows.ListWorkflows(rest, timeout=20)
    assert [each.name for each in page.workflows] == ["list-e", "list-f"]
    assert names(daemon) == sorted(names(daemon, 3))


# -- restore


def test_an_old_version_is_restored_as_a_new_one(daemon: Daemon, tmp_path: Path) -> None:
    first = source("restored", run="echo one")
    daemon.apply(first, str(tmp_path))
    update(daemon, "restored", source("restored", run="echo two"))
    etag = get(daemon, "restored").etag
    asked = pb.RestoreWorkflowVersionRequest(workflow="restored", version=1, etag=etag, request_id="restored")
    answer = daemon.workflows.RestoreWorkflowVersion(asked, timeout=20)
    assert (answer.changed, answer.version.version) == (True, 3)
    assert (answer.version.definition.source, answer.version.definition.base_dir) == (
        first,
        str(tmp_path),
    )
    assert daemon.workflows.RestoreWorkflowVersion(asked, timeout=20) == answer
    asked.request_id = ""
    late = refused(lambda: daemon.workflows.RestoreWorkflowVersion(asked, timeout=20))
    assert late.reason == "ETAG_MISMATCH"
    run = daemon.run("restored")
    assert (run.version, daemon.log_of(run.id)[run_pb2.LOG_STREAM_STDOUT]) == (3, b"one\n")


# -- delete


def test_delete_is_refused_while_a_run_is_active(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    daemon.apply(source("busy", run=f"read _ < {gate.path}"))
    run = daemon.start_run("busy")
    request = pb.DeleteWorkflowRequest(name="busy")
    refusal = refused(lambda: daemon.workflows.DeleteWorkflow(request, timeout=20))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "RUN_ALREADY_ACTIVE",
    )
    assert refusal.metadata == {"run_id": run, "run": "busy#1"}
    gate.release_now()
    assert run_state(daemon.wait_run(run)) == "SUCCEEDED"
    daemon.workflows.DeleteWorkflow(request, timeout=20)
    assert refused(lambda: get(daemon, "busy")).reason == "WORKFLOW_NOT_FOUND"


def test_history_outlives_the_workflow_and_versions_go_on(daemon: Daemon) -> None:
    daemon.apply(source("gone", run="echo one"))
    update(daemon, "gone", source("gone", run="echo two"))
    run = daemon.run("gone")
    etag = get(daemon, "gone").etag
    wrong = pb.DeleteWorkflowRequest(name="gone", etag=f"{etag}-old")
    assert refused(lambda: daemon.workflows.DeleteWorkflow(wrong)).reason == "ETAG_MISMATCH"
    daemon.workflows.DeleteWorkflow(pb.DeleteWorkflowRequest(name="gone", etag=etag), timeout=20)
    assert daemon.get_run(run.id) == run
    assert daemon.log_of(run.id) == {run_pb2.LOG_STREAM_STDOUT: b"two\n"}
    listed = daemon.runs.ListRuns(run_pb2.ListRunsRequest(workflow="gone"), timeout=20).runs
    assert [each.id for each in listed] == [run.id]
    current = run_pb2.GetCurrentRunRequest(workflow="gone")
    assert daemon.runs.GetCurrentRun(current, timeout=20).run.id == run.id
    asked = pb.GetWorkflowVersionRequest(workflow="gone", version=2)
    old = daemon.workflows.GetWorkflowVersion(asked, timeout=20).version
    assert old.definition.source == source("gone", run="echo two")
    again = daemon.apply(source("gone", run="echo three"))
    assert again.version == 3
    assert daemon.run("gone").number == run.number + 1
