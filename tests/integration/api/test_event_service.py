"""Events over the API: the runs that they start, their reports, and their emitters."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from helpers.daemon import Daemon, run_state, waits_for
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.cli.render.reason_text import not_started
from toban.v1 import event_pb2 as pb
from toban.v1 import job_pb2, run_pb2, system_pb2, workflow_pb2


def apply(daemon: Daemon, name: str, run: str = "true", **fields: object) -> None:
    steps = [{"name": "only", "run": run}]
    daemon.apply(json.dumps({"name": name, "description": "for a test", **fields, "steps": steps}))


def emit(daemon: Daemon, event_type: str, payload: object = None, **more: Any) -> pb.EmitEventResponse:
    text = "" if payload is None else json.dumps(payload)
    request = pb.EmitEventRequest(type=event_type, payload_json=text, **more)
    return daemon.events.EmitEvent(request, timeout=20)


def get(daemon: Daemon, event_id: str) -> pb.GetEventResponse:
    return daemon.events.GetEvent(pb.GetEventRequest(id=event_id), timeout=20)


def info(daemon: Daemon) -> system_pb2.GetInfoResponse:
    return daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)


@contextmanager
def drained(daemon: Daemon) -> Iterator[None]:
    daemon.system.Drain(system_pb2.DrainRequest(), timeout=20)
    try:
        yield
    finally:
        daemon.system.Resume(system_pb2.ResumeRequest(), timeout=20)


def test_an_event_starts_all_that_listen_by_priority(daemon: Daemon) -> None:
    printed = "echo {{ event.type }} {{ event.payload.n }} {{ event.source }}"
    apply(daemon, "ev-low", printed, on={"event": "EV_ORDER", "priority": -5})
    apply(daemon, "ev-b", printed, on="EV_ORDER")
    apply(daemon, "ev-a", printed, on=["EV_OTHER", "EV_ORDER"])
    apply(
        daemon,
        "ev-high",
        printed,
        on={"event": "EV_ORDER", "condition": "event.payload.n > 8", "priority": 50},
    )
    apply(daemon, "ev-not", on={"event": "EV_ORDER", "condition": "event.payload.n == 8"})
    answer = emit(daemon, "EV_ORDER", {"n": 12345678901})
    assert answer.created
    event = answer.event
    assert event.state == pb.EVENT_STATE_RESOLVED
    assert [each.workflow for each in event.runs] == ["ev-high", "ev-a", "ev-b", "ev-low"]
    assert [each.priority for each in event.runs] == [50, 0, 0, -5]
    for each in event.runs:
        run = daemon.wait_run(each.run_id)
        assert run_state(run) == "SUCCEEDED"
        assert (run.event_id, run.event_type, run.depth) == (event.id, "EV_ORDER", 0)
        assert run.triggered_by == run_pb2.TRIGGER_EVENT
        assert run.priority == each.priority
        assert daemon.log_of(run.id)[run_pb2.LOG_STREAM_STDOUT] == b"EV_ORDER 12345678901 client\n"
        again = daemon.runs.RetryRun(run_pb2.RetryRunRequest(id=run.id, everything=True), timeout=20).run
        assert daemon.wait_run(again.id).event_id == event.id
        assert daemon.log_of(again.id) == daemon.log_of(run.id)
    told = get(daemon, event.id)
    assert told.all_ended
    assert {each.run_state for each in told.event.runs} == {run_pb2.RUN_STATE_SUCCEEDED}
    assert told.event.source == pb.EVENT_SOURCE_CLIENT
    assert told.event.caller.startswith("socket:")


def test_a_trigger_selects_the_scope_of_its_runs(daemon: Daemon) -> None:
    source = {
        "name": "ev-scoped",
        "description": "x",
        "scopes": {"quick": ["a"]},
        "on": [{"event": "EV_QUICK", "scope": "quick"}, "EV_SLOW"],
        "steps": {"a": {"run": "true"}, "b": {"run": "true"}},
    }
    daemon.apply(json.dumps(source))
    for event_type, scope, second in (("EV_QUICK", "quick", "SKIPPED"), ("EV_SLOW", "full", "SUCCEEDED")):
        (foreseen,) = daemon.events.ResolveEvent(pb.ResolveEventRequest(type=event_type), timeout=20).candidates
        assert foreseen.scope == (scope if scope != "full" else "")
        (started,) = emit(daemon, event_type, {}).event.runs
        run = daemon.wait_run(started.run_id)
        assert (run_state(run), run.scope) == ("SUCCEEDED", scope)
        assert [run_pb2.StepState.Name(step.state) for step in run.steps] == [
            "STEP_STATE_SUCCEEDED",
            f"STEP_STATE_{second}",
        ]


def test_why_and_why_not(daemon: Daemon) -> None:
    condition = "event.payload.kind == 'x'"
    apply(daemon, "why-some", on={"event": "EV_WHY", "condition": condition})
    apply(daemon, "why-all", on="EV_WHY")
    apply(daemon, "why-off", on="EV_WHY")
    disable = workflow_pb2.SetWorkflowEnabledRequest(name="why-off", enabled=False)
    daemon.workflows.SetWorkflowEnabled(disable, timeout=20)

    def resolve(payload: object) -> list[pb.EventCandidate]:
        request = pb.ResolveEventRequest(type="EV_WHY", payload_json=json.dumps(payload))
        return list(daemon.events.ResolveEvent(request, timeout=20).candidates)

    all_, some, off = resolve({"kind": "x"})[0], *resolve({"kind": "y"})[1:]
    assert (all_.workflow, all_.matches) == ("why-all", True)
    found = {each.workflow: each for each in (some, off)}
    assert not found["why-some"].matches
    assert found["why-some"].condition == condition
    assert "disabled" in found["why-off"].reason
    missing = {each.workflow: each for each in resolve({})}["why-some"]
    assert (missing.matches, "kind" in missing.reason) == (False, True)
    nobody = daemon.events.ResolveEvent(pb.ResolveEventRequest(type="EV_NOBODY"), timeout=20)
    assert (len(nobody.candidates), nobody.others >= 3) == (0, True)


def test_a_key_is_used_once_and_so_is_a_request(daemon: Daemon) -> None:
    apply(daemon, "once", on="EV_ONCE")
    first = emit(daemon, "EV_ONCE", {"n": 1}, dedupe_key="k")
    again = emit(daemon, "EV_ONCE", {"n": 2}, dedupe_key="k")
    assert (first.created, again.created, again.event.id) == (True, False, first.event.id)
    assert [each.run_id for each in again.event.runs] == [each.run_id for each in first.event.runs]
    assert emit(daemon, "EV_ELSE", dedupe_key="k").created
    made = emit(daemon, "EV_ONCE", {"n": 3}, request_id="ev-r")
    again = emit(daemon, "EV_ONCE", {"n": 3}, request_id="ev-r")
    assert (again.created, again.event.id) == (True, made.event.id)
    for _ in range(2):
        known = emit(daemon, "EV_ONCE", {"n": 1}, dedupe_key="k", request_id="ev-k")
        assert (known.created, known.event.id) == (False, first.event.id)
    refusal = refused(lambda: emit(daemon, "EV_ONCE", {"n": 4}, request_id="ev-r"))
    assert refusal.reason == "REQUEST_ID_REUSED"


def test_lists_by_type(daemon: Daemon) -> None:
    sent = [emit(daemon, "EV_LIST", {"n": n}).event.id for n in range(5)]
    emit(daemon, "EV_LIST_OTHER", "x" * 5000)
    token, found = "", []
    while True:
        request = pb.ListEventsRequest(types=["EV_LIST"], page_size=2, page_token=token)
        answer = daemon.events.ListEvents(request, timeout=20)
        found += [each.id for each in answer.events]
        token = answer.next_page_token
        if not token:
            break
    assert found == sent[::-1]
    newest = daemon.events.ListEvents(pb.ListEventsRequest(page_size=1), timeout=20).events[0]
    assert (newest.payload_json, newest.payload_bytes) == ("", 5002)


def test_watching(daemon: Daemon) -> None:
    before = emit(daemon, "EV_WATCH", {"n": 0}).event
    stream = daemon.events.WatchEvents(pb.WatchEventsRequest(types=["EV_WATCH"]), timeout=20)
    begun = next(stream)
    assert not begun.HasField("event")
    assert begun.sequence >= before.sequence
    emit(daemon, "EV_NOT_WATCHED")
    sent = [emit(daemon, "EV_WATCH", {"n": n}).event for n in range(1, 4)]
    messages = [next(stream) for _ in sent]
    cast(Any, stream).cancel()
    assert [each.event.id for each in messages] == [each.id for each in sent]
    assert {each.event.state for each in messages} == {pb.EVENT_STATE_RESOLVED}
    request = pb.WatchEventsRequest(types=["EV_WATCH"], after_sequence=messages[0].sequence)
    later = daemon.events.WatchEvents(request, timeout=20)
    assert [next(later).sequence for _ in range(3)] == [each.sequence for each in messages]
    cast(Any, later).cancel()
    oldest = daemon.events.WatchEvents(pb.WatchEventsRequest(after_sequence=0), timeout=20)
    assert next(oldest).sequence == 0
    assert next(oldest).event.sequence >= 1
    cast(Any, oldest).cancel()


def test_many_watchers_who_do_not_read_hold_nobody_up(daemon: Daemon) -> None:
    streams = [daemon.events.WatchEvents(pb.WatchEventsRequest(after_sequence=0), timeout=60) for _ in range(20)]
    for stream in streams:
        next(stream)
    for number in range(20):
        emit(daemon, "EV_MANY", {"n": number, "text": "x" * 3000})
    reader = daemon.events.WatchEvents(pb.WatchEventsRequest(types=["EV_MANY"], after_sequence=0))
    numbers: list[int] = []
    for message in reader:
        if message.HasField("event"):
            numbers.append(json.loads(message.event.payload_json)["n"])
        if len(numbers) == 20:
            break
    assert numbers == list(range(20))
    for stream in (*streams, reader):
        cast(Any, stream).cancel()


def test_while_draining_events_wait(daemon: Daemon) -> None:
    apply(daemon, "after-drain", on="EV_DRAIN")
    before = info(daemon).pending_events
    with drained(daemon):
        event = emit(daemon, "EV_DRAIN").event
        assert (event.state, len(event.runs)) == (pb.EVENT_STATE_PENDING, 0)
        assert "drain" in event.reason
        told = get(daemon, event.id)
        assert (told.all_ended, "drain" in told.event.reason) == (False, True)
        assert info(daemon).pending_events == before + 1
        request = pb.WatchEventsRequest(after_sequence=event.sequence - 1)
        stream = daemon.events.WatchEvents(request, timeout=20)
        next(stream)
    resolved = next(stream).event
    cast(Any, stream).cancel()
    assert (resolved.id, resolved.state) == (event.id, pb.EVENT_STATE_RESOLVED)
    (run,) = resolved.runs
    assert run_state(daemon.wait_run(run.run_id)) == "SUCCEEDED"
    assert info(daemon).pending_events == before


def test_a_step_emits(daemon: Daemon) -> None:
    """With the `toban` of the daemon's own interpreter, and nothing has to be set up."""
    apply(daemon, "emits", "toban emit EV_CHILD -d '{\"n\": 1}' --dedupe-key once", on="EV_PARENT")
    said = "echo {{ event.payload.n }} {{ event.source_run }} {{ event.source_step }}"
    apply(daemon, "is-told", said, on="EV_CHILD")
    (parent,) = emit(daemon, "EV_PARENT").event.runs
    assert run_state(daemon.wait_run(parent.run_id)) == "SUCCEEDED"
    listed = pb.ListEventsRequest(types=["EV_CHILD"])
    (event,) = daemon.events.ListEvents(listed, timeout=20).events
    assert (event.source, event.source_run) == (pb.EVENT_SOURCE_STEP, parent.run_id)
    assert (event.source_step, event.depth) == ("only", 1)
    assert event.caller == f"step:{parent.run_id}/only"
    (child,) = event.runs
    run = daemon.wait_run(child.run_id)
    assert (run.depth, run.caller) == (1, event.caller)
    said = daemon.log_of(child.run_id)[run_pb2.LOG_STREAM_STDOUT].decode()
    assert said == f"1 {parent.run_id} only\n"


def test_a_python_step_emits_and_schedules(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(
        "def main(context):\n"
        "    made = context.scheduler.schedule('py-1', '3日後の朝9時にリマインド', 'reminder')\n"
        "    event = context.emit('EV_PYTHON', {'n': 1}, dedupe_key='k')\n"
        "    return [event, made['id'], context.scheduler.cancel_by_issue('py-1')]\n"
    )
    steps = [{"name": "tell", "job_type": "python", "target": "told:main"}]
    source = json.dumps({"name": "py-emits", "description": "for a test", "steps": steps})
    daemon.apply(source, str(tmp_path))
    run = daemon.run("py-emits")
    assert run_state(run) == "SUCCEEDED", daemon.log_of(run.id)
    event_id, schedule_id, cancelled = json.loads(run.steps[0].result_json)
    event = get(daemon, event_id).event
    assert (event.type, event.source_run, event.source_step) == ("EV_PYTHON", run.id, "tell")
    assert (bool(schedule_id), cancelled) == (True, 1)


def test_what_a_step_starts_and_changes_stays_in_its_chain(daemon: Daemon) -> None:
    toban = f"{sys.executable} -m toban.cli"
    apply(daemon, "chain-begin", f"{toban} emit EV_LINK", on="EV_CHAIN")
    apply(
        daemon,
        "chain-link",
        f"{toban} run chain-end --wait && {toban} runs retry chain-end --all --wait"
        f" && {toban} workflows disable chain-off",
        on="EV_LINK",
        grants=[{"role": "editor", "workflows": ["chain-*"]}],
    )
    apply(daemon, "chain-end")
    apply(daemon, "chain-off", on="EV_CHAIN_OFF")
    apply(daemon, "chain-hears", on={"event": "DEFINITION_CHANGED", "condition": "event.depth > 99"})
    (begun,) = emit(daemon, "EV_CHAIN").event.runs
    daemon.wait_run(begun.run_id)
    listed = pb.ListEventsRequest(types=["EV_LINK"])
    (event,) = daemon.events.ListEvents(listed, timeout=20).events
    (link,) = event.runs
    assert run_state(daemon.wait_run(link.run_id)) == "SUCCEEDED", daemon.log_of(link.run_id)
    request = run_pb2.ListRunsRequest(workflow="chain-end")
    runs = daemon.runs.ListRuns(request, timeout=20).runs
    assert [run.depth for run in runs] == [1, 1]
    assert {run.caller for run in runs} == {f"step:{link.run_id}/only"}
    # `toban run` says that a person starts it; the token of the step knows better.
    assert [run.triggered_by for run in runs] == [run_pb2.TRIGGER_RETRY, run_pb2.TRIGGER_API]
    assert daemon.get_run(begun.run_id).caller.startswith("socket:")
    (changed,) = (
        event
        for event in daemon.events.ListEvents(pb.ListEventsRequest(types=["DEFINITION_CHANGED"]), timeout=20).events
        if event.source_run
    )
    assert (changed.source, changed.depth) == (pb.EVENT_SOURCE_DAEMON, 2)
    assert (changed.source_run, changed.source_step) == (link.run_id, "only")
    for name in ("chain-hears", "chain-off"):
        daemon.workflows.DeleteWorkflow(workflow_pb2.DeleteWorkflowRequest(name=name), timeout=20)


def test_metadata_that_cannot_say_where_a_call_is_from(daemon: Daemon) -> None:
    apply(daemon, "from-nowhere")
    request = run_pb2.StartRunRequest(workflow="from-nowhere")
    ended = daemon.run("from-nowhere")
    for origin in ("x", "gone/token", f"{ended.id}/{'0' * 32}"):
        # Whoever outlives the step is nobody: neither that step, nor a caller of the socket.
        refusal = refused(lambda: daemon.runs.StartRun(request, timeout=20, metadata=(("toban-origin", origin),)))  # noqa: B023
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, "STEP_ENDED")


def test_a_stored_event_is_judged_as_it_is_stored(daemon: Daemon) -> None:
    outside = "event.source == 'client' && event.depth == 0"
    apply(daemon, "from-outside", on={"event": "EV_INSIDE", "condition": outside})
    apply(daemon, "from-inside", f"{sys.executable} -m toban.cli emit EV_INSIDE", grants=[{"role": "viewer"}])
    run = daemon.run("from-inside")
    said = daemon.log_of(run.id)[run_pb2.LOG_STREAM_STDOUT].decode()
    assert "not started: from-outside: its condition is false" in said
    listed = pb.ListEventsRequest(types=["EV_INSIDE"])
    (event,) = daemon.events.ListEvents(listed, timeout=20).events
    by_id = pb.ResolveEventRequest(event_id=event.id)
    (one,) = daemon.events.ResolveEvent(by_id, timeout=20).candidates
    assert not one.matches
    by_type = pb.ResolveEventRequest(type="EV_INSIDE")
    (one,) = daemon.events.ResolveEvent(by_type, timeout=20).candidates
    assert one.matches


def test_what_is_in_the_way_is_told_before(daemon: Daemon) -> None:
    apply(daemon, "skips", "sleep 60", on="EV_SKIP", overlap="skip")
    request = pb.ResolveEventRequest(type="EV_SKIP")
    (one,) = daemon.events.ResolveEvent(request, timeout=20).candidates
    assert one.matches
    (run,) = emit(daemon, "EV_SKIP").event.runs
    (one,) = daemon.events.ResolveEvent(request, timeout=20).candidates
    (skipped,) = emit(daemon, "EV_SKIP").event.runs
    assert (one.matches, one.reason) == (False, not_started(skipped))
    daemon.cancel(run.run_id)
    daemon.wait_run(run.run_id)
    with drained(daemon):
        answer = daemon.events.ResolveEvent(request, timeout=20)
        assert ([each.matches for each in answer.candidates], answer.pending) == (
            [True],
            "the daemon drains",
        )


def foreign_interpreter() -> str:
    """One that has no Toban; empty if there is none."""
    for name in ("python3.8", "/usr/bin/python3"):
        script = "import sys; print(sys.executable); import toban"
        with contextlib.suppress(OSError):
            tried = subprocess.run([name, "-c", script], capture_output=True, text=True, timeout=60)
            if "No module named" in tried.stderr and tried.stdout:
                return tried.stdout.strip()
    return ""


def test_a_python_step_emits_from_an_interpreter_without_toban(daemon: Daemon, tmp_path: Path) -> None:
    interpreter = foreign_interpreter()
    if not interpreter:
        pytest.skip("every interpreter here has Toban")
    # Modules of the step's own directory are not taken for those of the command line.
    (tmp_path / "grpc.py").write_text("raise SystemExit('not this one')\n")
    (tmp_path / "told.py").write_text("def main(context):\n    return context.emit('EV_FOREIGN', {'日本': 1})\n")
    step = {"name": "tell", "job_type": "python", "target": "told:main", "python": interpreter}
    source = json.dumps({"name": "foreign", "description": "for a test", "steps": [step]})
    daemon.apply(source, str(tmp_path))
    run = daemon.run("foreign")
    assert run_state(run) == "SUCCEEDED", daemon.log_of(run.id)
    event = get(daemon, json.loads(run.steps[0].result_json)).event
    assert (event.type, json.loads(event.payload_json)) == ("EV_FOREIGN", {"日本": 1})
    assert (event.source_run, event.source_step) == (run.id, "tell")


def test_nobody_can_claim_to_be_a_step(daemon: Daemon) -> None:
    apply(daemon, "claimed")
    run = daemon.run("claimed")
    for run_id in (run.id, "absent"):
        origin = pb.EventOrigin(run_id=run_id, attempt_token="0" * 32)
        refusal = refused(lambda origin=origin: emit(daemon, "EV_CLAIM", origin=origin))  # type: ignore[misc]
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.NOT_FOUND,
            "EVENT_SOURCE_NOT_FOUND",
        )
        assert refusal.metadata["run_id"] == run_id


def test_workflows_and_jobs_tell_what_they_listen_to(daemon: Daemon) -> None:
    some = {"event": "EV_A", "priority": 3, "condition": "event.depth == 0"}
    apply(daemon, "listens", on=[{"event": ["EV_B", "EV_A"], "condition": "true"}, some])
    request = workflow_pb2.GetWorkflowRequest(name="listens")
    workflow = daemon.workflows.GetWorkflow(request, timeout=20).workflow
    assert list(workflow.event_types) == ["EV_B", "EV_A"]
    job = {"run": "true", "on": "EV_JOB", "schedule": [{"at": "2099-01-01T00:00:00Z"}]}
    definition = workflow_pb2.Definition(source=json.dumps({"jobs": {"listening-job": job}}))
    created = daemon.jobs.CreateJob(job_pb2.CreateJobRequest(definition=definition), timeout=20)
    told = daemon.jobs.GetJob(job_pb2.GetJobRequest(name="listening-job"), timeout=20).job
    assert told == created.job
    assert list(told.event_types) == ["EV_JOB"]
    assert told.schedules[0].startswith("once at 2099-01-01")
    assert told.next_due.ToJsonString() == "2099-01-01T00:00:00Z"
    (run,) = emit(daemon, "EV_JOB").event.runs
    assert run.workflow == "listening-job"
    daemon.wait_run(run.run_id)


def test_info_tells_of_runs_of_events(daemon: Daemon) -> None:
    apply(daemon, "takes-long", "sleep 60", on="EV_LONG")
    wait_until(lambda: info(daemon).event_runs == 0, "runs of other tests do not end")
    assert info(daemon).event_concurrency == 10
    runs = [emit(daemon, "EV_LONG").event.runs[0].run_id for _ in range(2)]
    during = info(daemon)
    assert (during.event_runs, during.event_runs_waiting) == (1, 1)
    # It waits for the one before it, as runs that events start do.
    waiting = daemon.get_run(runs[1])
    assert (run_state(waiting), waits_for(waiting)) == ("PENDING", "QUEUE")
    for run_id in reversed(runs):
        daemon.cancel(run_id)
        daemon.wait_run(run_id)
    # That it has ended is told by the database, maybe a moment before the daemon has let go of it.
    wait_until(lambda: info(daemon).event_runs == 0, "they still are under way")


def test_many_at_once_are_all_kept_in_order(daemon: Daemon) -> None:
    apply(daemon, "counts", on="EV_BURST", overlap="queue")
    failures: list[BaseException] = []

    def some(part: int) -> None:
        try:
            for number in range(5):
                emit(daemon, "EV_BURST", {"part": part, "n": number})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=some, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    listed = pb.ListEventsRequest(types=["EV_BURST"])
    events = daemon.events.ListEvents(listed, timeout=20).events
    assert len(events) == 20
    assert [each.sequence for each in events] == sorted((each.sequence for each in events), reverse=True)
    for part in range(4):
        numbers = [
            json.loads(each.payload_json)["n"]
            for each in reversed(events)
            if json.loads(each.payload_json)["part"] == part
        ]
        assert numbers == list(range(5))
    for each in events:
        (run,) = get(daemon, each.id).event.runs
        daemon.wait_run(run.run_id)
