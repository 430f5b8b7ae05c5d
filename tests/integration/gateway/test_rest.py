"""REST over a real daemon: what creates, changes and refuses, and the forms of the answers."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from jsonschema import Draft202012Validator

from helpers.daemon import Daemon
from helpers.gateway import HttpClient
from toban.definition.schema.editor_schema import json_schema
from toban.gateway.further_paths import FURTHER
from toban.gateway.open_api import document
from toban.gateway.operations.operation_table import OPERATIONS
from toban.gateway.project_runs import SCHEMA

UNKNOWN = "01a1f5d2-267b-705e-91f9-f1404222216a"


def source(name: str, *lines: str, run: str = "true") -> str:
    head = [f"name: {name}", "description: Of a test.", *lines]
    return "\n".join([*head, "steps:", "  - id: only", f"    run: {json.dumps(run)}", ""])


def test_a_workflow_is_created_read_changed_and_deleted(editor: HttpClient) -> None:
    made = editor.post("/api/workflows", source("crud"))
    assert (made.status, made.data["version"], made.data["warnings"]) == (201, 1, [])
    read = editor.get("/api/workflows/crud")
    assert read.data["definition"]["source"] == source("crud")
    assert editor.get("/api/workflows/crud", If_None_Match=read.headers["etag"]).status == 304
    assert editor.get("/api/workflows/crud", If_None_Match='"other"').status == 200

    body = {"definition": {"source": source("crud", "title: Changed")}}
    changed = editor.send("PUT", "/api/workflows/crud", body, If_Match=read.headers["etag"])
    assert (changed.status, changed.data["version"], changed.data["changed"]) == (200, 2, True)
    late = editor.send("PUT", "/api/workflows/crud", source("crud"), If_Match=read.headers["etag"])
    assert (late.status, late.reason, late.data["metadata"]["name"]) == (412, "ETAG_MISMATCH", "crud")
    assert editor.get("/api/workflows/crud", If_None_Match=read.headers["etag"]).status == 200
    assert editor.send("DELETE", "/api/workflows/crud", If_Match=read.headers["etag"]).status == 412

    taken = editor.post("/api/workflows", source("crud"))
    assert (taken.status, taken.reason) == (409, "WORKFLOW_EXISTS")
    gone = editor.send("DELETE", "/api/workflows/crud", If_Match=changed.headers["etag"])
    assert (gone.status, gone.body) == (204, b"")
    assert editor.get("/api/workflows/crud").reason == "WORKFLOW_NOT_FOUND"


def test_versions_differ_and_are_restored(editor: HttpClient) -> None:
    editor.post("/api/workflows", source("versions"))
    editor.send("PUT", "/api/workflows/versions", source("versions", "title: Second"))
    listed = editor.get("/api/workflows/versions/versions").data["versions"]
    assert [each["version"] for each in listed] == [2, 1]
    diff = editor.get("/api/workflows/versions/versions/2/diff").data
    assert (diff["from"], diff["to"]) == (1, 2)
    assert "+title: Second" in diff["diff"].splitlines()
    assert "-title: Second" in editor.get("/api/workflows/versions/versions/1/diff?against=2").data["diff"]
    restored = editor.post("/api/workflows/versions/versions/1/restore")
    assert (restored.data["version"], restored.data["changed"]) == (3, True)
    assert editor.get("/api/workflows/versions/versions/9/diff").reason == "VERSION_NOT_FOUND"


def test_every_problem_of_a_definition_has_its_line_and_column(editor: HttpClient) -> None:
    broken = "name: broken\ndescription: x\nsteps:\n" + "".join(
        f"  - id: s{n}\n    run: 'true'\n    timout: 1s\n    retries_{n}: {'x' * 100}\n" for n in range(60)
    )
    problems: list[dict[str, object]] = []
    for answer in (
        editor.post("/api/workflows", broken),
        editor.post("/api/workflows", {"definition": {"source": broken}}),
    ):
        assert (answer.status, answer.reason) == (422, "INVALID_DEFINITION")
        problems = answer.data["problems"]
        assert len(problems) == 120
        assert (problems[0]["line"], problems[0]["column"], problems[0]["path"]) == (6, 5, "steps.s0.timout")
    checked = editor.post("/api/validate", broken)
    assert (checked.status, checked.data["valid"]) == (200, False)
    assert checked.data["problems"] == problems


def test_a_second_run_is_refused_with_the_id_of_the_active_one(daemon: Daemon, editor: HttpClient) -> None:
    editor.post("/api/workflows", source("busy", "overlap: skip", "scopes:", "  full: [only]", run="sleep 600"))
    first = editor.post("/api/projects/busy/runs", {"scope": "full"})
    assert first.status == 201
    Draft202012Validator({**SCHEMA, "additionalProperties": False}).validate(first.data)
    assert first.data["triggered_by"] == "api"
    for path, body in (("/api/projects/busy/runs", {"scope": "full"}), ("/api/workflows/busy/run", None)):
        again = editor.post(path, body)
        assert (again.status, again.reason) == (409, "RUN_ALREADY_ACTIVE")
        assert again.data["metadata"]["run_id"] == first.data["id"]
    run = first.data["id"]
    assert editor.get("/api/projects/busy/runs/current").data["id"] == run
    assert editor.get(f"/api/projects/other/runs/{run}").status == 404
    assert editor.get("/api/projects/other/runs").reason == "WORKFLOW_NOT_FOUND"
    cancelled = editor.send("DELETE", f"/api/projects/busy/runs/{run}")
    assert (cancelled.status, cancelled.data["id"]) == (200, run)
    daemon.wait_run(run)
    assert [each["status"] for each in editor.get("/api/projects/busy/runs").data["runs"]] == ["cancelled"]
    ended = editor.post(f"/api/workflow_runs/{run}/cancel")
    assert (ended.status, ended.reason, ended.data["metadata"]["state"]) == (409, "RUN_ALREADY_TERMINAL", "CANCELLED")


def test_a_repeated_request_with_its_key_starts_one_run(editor: HttpClient) -> None:
    editor.post("/api/workflows", source("once", "params:", "  day: {type: string, default: monday}"))
    first = editor.post("/api/workflows/once/run", {"params": {"day": "friday"}}, Idempotency_Key="k1")
    again = editor.post("/api/workflows/once/run", {"params": {"day": "friday"}}, Idempotency_Key="k1")
    assert first.data["id"] == again.data["id"]
    assert first.data["params"] == {"day": "friday"}
    other = editor.post("/api/workflows/once/run", {"params": {"day": "sunday"}}, Idempotency_Key="k1")
    assert (other.status, other.reason) == (422, "REQUEST_ID_REUSED")
    wrong = editor.post("/api/workflows/once/run", {"params": {"week": 1}})
    assert [each["field"] for each in wrong.data["violations"]] == ["params.week"]


def test_runs_are_found_by_pages_and_filters(daemon: Daemon, editor: HttpClient) -> None:
    editor.post("/api/workflows", source("paged"))
    runs = [daemon.run("paged").id for _ in range(3)][::-1]
    first = editor.get("/api/workflow_runs?workflow=paged&page_size=2").data
    rest = editor.get(f"/api/workflow_runs?workflow=paged&page_size=2&page_token={first['next_page_token']}").data
    assert [each["id"] for each in [*first["runs"], *rest["runs"]]] == runs
    assert rest["next_page_token"] == ""
    assert editor.get("/api/workflow_runs?workflow=paged&states=failed&states=cancelled").data["runs"] == []
    shown = editor.get(f"/api/workflow_runs/{runs[0]}").data
    assert (shown["state"], shown["steps"][0]["state"], shown["next_step_page_token"]) == ("succeeded", "succeeded", "")
    assert editor.get("/api/workflow_runs/current?workflow=paged").data["id"] == runs[0]
    assert editor.get("/api/workflow_runs/current").data["violations"] == [
        {"field": "workflow", "description": "is required"}
    ]
    (process,) = editor.get(f"/api/process_logs?run_id={runs[0]}").data["process_executions"]
    assert editor.get(f"/api/process_logs/{process['id']}").data["stdout"] == ""


def test_an_approval_is_listed_and_decided(daemon: Daemon, editor: HttpClient) -> None:
    editor.post(
        "/api/workflows",
        "name: asks\ndescription: x\nsteps:\n  - id: ask\n    job_type: approval\n"
        "  - id: beside\n    depends_on: []\n    run: sleep 600\n",
    )
    run = daemon.start_run("asks")
    daemon.wait_started(run, "beside")
    listed = editor.get("/api/approvals?workflow=asks").data
    assert [(each["run"]["id"], each["step"]["id"]) for each in listed["approvals"]] == [(run, "ask")]
    assert listed["complete"]
    decided = editor.post(f"/api/workflow_runs/{run}/approve", {"step": "ask", "decision": "rejected", "note": "no"})
    assert decided.status == 200
    again = editor.post(f"/api/workflow_runs/{run}/approve", {"step": "ask", "decision": "approved"})
    assert again.status == 409
    editor.post(f"/api/workflow_runs/{run}/cancel", {"reason": "of a test"})
    assert daemon.wait_run(run).failed_steps == 1
    assert editor.get("/api/approvals?workflow=asks").data["approvals"] == []
    retried = editor.post(f"/api/workflow_runs/{run}/retry", {"everything": True})
    assert (retried.status, retried.data["retry_of"]) == (201, run)
    daemon.cancel(retried.data["id"])


def test_artifacts_are_listed_and_downloaded(daemon: Daemon, editor: HttpClient) -> None:
    editor.post(
        "/api/workflows",
        "name: makes\ndescription: x\nsteps:\n  - id: make\n"
        "    run: mkdir d; printf 'a\\0b' > 'd/報告 1.txt'; echo 2 > d/2\n"
        "    outputs:\n      - {name: files, path: d/}\n",
    )
    run = daemon.run("makes")
    assert run.error_message == ""
    (listed,) = editor.get(f"/api/artifacts?run_id={run.id}").data["artifacts"]
    assert sorted(each["path"] for each in listed["files"]) == ["d/2", "d/報告 1.txt"]
    path = f"/api/artifacts/{run.id}/make/{listed['artifact']['name']}"
    one = editor.get(f"{path}?path=d/%E5%A0%B1%E5%91%8A%201.txt")
    assert one.body == b"a\0b"
    assert one.headers["content-type"] == "application/octet-stream"
    assert one.headers["content-disposition"].startswith("attachment; filename*=UTF-8''%E5%A0%B1%E5%91%8A%201.txt")
    with tarfile.open(fileobj=io.BytesIO(editor.get(path).body)) as archive:
        assert len([each for each in archive if each.isfile()]) == 2
    assert editor.get(f"{path}?path=no").reason == "ARTIFACT_NOT_FOUND"


def test_changes_of_runs_and_events_come_in_one_stream(daemon: Daemon, editor: HttpClient) -> None:
    editor.post("/api/workflows", source("watched"))
    stream = editor.events("/api/stream")
    begun = next(stream)
    assert begun.name == "position"
    first_run = daemon.start_run("watched")
    begun = next(stream)
    assert begun.name == "run"
    stream.close()  # type: ignore[attr-defined]
    daemon.wait_run(first_run)
    editor.post("/api/events", {"type": "of.the.stream", "payload_json": "{}"})
    wanted = {("run", "succeeded"), ("event", "of.the.stream")}
    for each in editor.events("/api/stream", Last_Event_ID=begun.id):
        if each.name == "run":
            wanted -= {("run", each.data["run"]["state"])}
        elif each.name == "event":
            wanted -= {("event", each.data["event"]["type"])}
        if not wanted:
            break


def test_bodies_that_cannot_be_read_are_refused(editor: HttpClient) -> None:
    for body, kind, status in (
        (b"{", "application/json", 400),
        (b'{"params": NaN}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"\xff", "application/yaml", 400),
        (b"[]", "application/json", 422),
        (b'{"nothing": 1}', "application/json", 422),
        (b"a=b", "application/x-www-form-urlencoded", 415),
        (b"{}", "text/plain", 415),
        (b" " * 9_000_000, "application/json", 413),
    ):
        answer = editor.send("POST", "/api/workflows", body, Content_Type=kind)
        assert answer.status == status, (body[:20], answer.body)
    everything = editor.post("/api/schedules", {"subject": 1, "rule": {"at": "x", "every": "y"}, "action": "z"})
    assert {each["field"] for each in everything.data["violations"]} == {"subject", "rule.at", "rule.every", "action"}


def test_unknown_paths_and_methods_are_problems_too(editor: HttpClient) -> None:
    assert editor.get("/api/nothing").reason == "NOT_FOUND"
    wrong = editor.send("PATCH", "/api/workflows")
    assert (wrong.status, wrong.reason) == (405, "METHOD_NOT_ALLOWED")
    assert {"GET", "POST"} <= set(wrong.headers["allow"].split(", "))
    assert editor.get(f"/api/workflow_runs/{UNKNOWN}").reason == "RUN_NOT_FOUND"


def test_the_document_describes_what_is_served(editor: HttpClient, tmp_path: Path) -> None:
    assert editor.get("/api/openapi.json").data == document(OPERATIONS, FURTHER)
    assert editor.get("/api/definition_schema").data == json_schema()
