"""Events start each listening workflow once, for every kind of emitter and through restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import grpc
import pytest

from helpers.daemon import Daemon, running_daemon
from helpers.gate import Gate
from helpers.wait import wait_until
from toban.v1 import event_pb2, run_pb2, schedule_pb2, system_pb2, workflow_pb2

DEPTH_MOST = 16


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    surroundings = {"TOBAN_TIMEZONE": "UTC", "TOBAN_EVENT_CONCURRENCY": "2"}
    with running_daemon(tmp_path_factory.mktemp("d") / "s", environment=surroundings) as running:
        yield running


@pytest.fixture
def daemon(shared: Daemon) -> Iterator[Daemon]:
    """One for all tests, without what the one before left."""
    yield shared
    everything = workflow_pb2.ListWorkflowsRequest()
    names = [each.name for each in shared.workflows.ListWorkflows(everything, timeout=20).workflows]
    for name in names:
        off = workflow_pb2.SetWorkflowEnabledRequest(name=name, enabled=False)
        shared.workflows.SetWorkflowEnabled(off, timeout=20)
    for name in names:
        wait_until(partial(_deleted, shared, name), f"{name} cannot be deleted")


def _deleted(daemon: Daemon, name: str) -> bool:
    """An event that is being decided may still have started a run."""
    daemon.end_runs()
    try:
        daemon.workflows.DeleteWorkflow(workflow_pb2.DeleteWorkflowRequest(name=name), timeout=20)
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION  # noqa: PT017
        return False
    return True


def listening(name: str, on: str, run: str = "true", fields: str = "") -> str:
    return f"name: {name}\ndescription: x\n{fields}\non: {on}\nsteps:\n  only:\n    run: |\n      {run}\n"


def runs_of(daemon: Daemon, name: str) -> Sequence[run_pb2.Run]:
    request = run_pb2.ListRunsRequest(workflow=name, page_size=1000)
    return daemon.runs.ListRuns(request, timeout=20).runs


def events_of(daemon: Daemon, *types: str) -> Sequence[event_pb2.Event]:
    request = event_pb2.ListEventsRequest(types=types, page_size=1000)
    return daemon.events.ListEvents(request, timeout=20).events


def ended(daemon: Daemon, event_id: str) -> event_pb2.GetEventResponse | None:
    found = daemon.events.GetEvent(event_pb2.GetEventRequest(id=event_id), timeout=20)
    return found if found.all_ended else None


def wait_ended(daemon: Daemon, event: event_pb2.Event) -> event_pb2.Event:
    found = wait_until(lambda: ended(daemon, event.id), "its runs did not end")
    return found.event


def printed(daemon: Daemon, run_id: str) -> str:
    log = daemon.log_of(run_id)
    return log.get(run_pb2.LOG_STREAM_STDOUT, b"").decode()


def test_workflows_that_start_each_other_come_to_an_end(daemon: Daemon) -> None:
    itself = "{event: RUN_SUCCEEDED, condition: event.payload.workflow == 'loop'}"
    daemon.apply(listening("loop", itself))
    daemon.wait_run(daemon.start_run("loop"))
    cut = wait_until(
        lambda: [e for e in events_of(daemon) if e.state == event_pb2.EVENT_STATE_CUT],
        "the chain was never cut",
        deadline=120,
    )
    assert (cut[0].depth, len(cut[0].runs)) == (DEPTH_MOST, 0)
    assert "chain" in cut[0].reason
    assert sorted(run.depth for run in runs_of(daemon, "loop")) == list(range(DEPTH_MOST))


def test_steps_use_the_whole_event_and_all_params(daemon: Daemon) -> None:
    daemon.apply("""
name: whole
description: x
on: {event: whole.one, condition: "'id' in event.payload && size(event) == 9"}
params: {day: {default: friday}, ids: {type: list, default: [7, 8]}}
env: {ALL: "{{ params }}"}
steps:
  - {name: call, job_type: python, target: "builtins:dict", kwargs: {event: "{{ event }}", params: "{{ params }}"}}
  - {name: pipe, run: 'cat; echo " $ALL"', stdin: "{{ event.payload }}", when: "event.payload.id in params['ids']"}
""")
    event = wait_ended(daemon, daemon.emit("whole.one", {"id": 7, "日": [None, 1.5]}))
    run = daemon.get_run(event.runs[0].run_id)
    found = json.loads(run.steps[0].result_json)
    assert found["params"] == {"day": "friday", "ids": [7, 8]}
    assert (found["event"]["type"], found["event"]["id"]) == ("whole.one", event.id)
    assert found["event"]["payload"] == {"id": 7, "日": [None, 1.5]}
    assert printed(daemon, run.id) == '{"id":7,"日":[null,1.5]} {"day":"friday","ids":[7,8]}\n'


def test_a_function_gets_the_event_its_context_and_an_emitter(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "executors.py").write_text("""
from toban.step import WorkflowResult

async def analyse(event, context, emitter):
    if not event:
        return WorkflowResult(False, error=ValueError("there is no event"))
    issue = event.payload["data"]
    emitter.emit({"type": "ANALYSED", "payload": {"id": issue["id"]}})
    emitter.emit("ANALYSED", {"id": -issue["id"]}, dedupe_key="analysed")
    return WorkflowResult(True, {"run": context.metadata["run_id"], "type": event.type, "at": event["at"]})
""")
    definition = """
name: executor
description: x
on: {event: ISSUE, condition: event.payload.entity == 'issue'}
steps:
  - {name: analyse, job_type: python, target: "executors:analyse"}
  - {name: file, run: 'cat "$TOBAN_EVENT"'}
"""
    daemon.apply(definition, str(tmp_path))
    daemon.apply(listening("next", "ANALYSED", "echo {{ event.payload.id }} {{ event.depth }}"))
    event = wait_ended(daemon, daemon.emit("ISSUE", {"entity": "issue", "data": {"id": 7, "title": "題"}}))
    run = daemon.get_run(event.runs[0].run_id)
    assert run.state == run_pb2.RUN_STATE_SUCCEEDED, run.error_message
    result = json.loads(run.steps[0].result_json)
    assert (result["run"], result["type"]) == (run.id, "ISSUE")
    found = json.loads(printed(daemon, run.id))
    assert (found["id"], found["at"], found["payload"]["data"]["title"]) == (event.id, result["at"], "題")
    analysed = [wait_ended(daemon, each) for each in events_of(daemon, "ANALYSED")]
    assert sorted(printed(daemon, each.runs[0].run_id) for each in analysed) == ["-7 1\n", "7 1\n"]
    by_hand = daemon.run("executor")
    assert by_hand.error_message == "step analyse failed: ValueError: there is no event"


def test_what_fails_is_an_event(daemon: Daemon) -> None:
    daemon.apply("name: fails\ndescription: x\nsteps: {bad: {run: exit 3}}\n")
    daemon.apply(listening("told", "[RUN_FAILED, STEP_FAILED]", "echo {{ event.payload.workflow }}"))
    run = daemon.run("fails")

    def about_it() -> list[event_pb2.Event]:
        events = events_of(daemon, "RUN_FAILED", "STEP_FAILED")
        return [event for event in events if event.source_run == run.id]

    events = wait_until(lambda: found if len(found := about_it()) == 2 else None, "nobody told")
    about = {event.type: json.loads(event.payload_json) for event in events}
    assert about["STEP_FAILED"]["step"] == "bad"
    assert about["STEP_FAILED"]["exit_code"] == 3
    assert about["RUN_FAILED"]["run_id"] == run.id
    assert about["RUN_FAILED"]["state"] == "FAILED"
    assert all(wait_ended(daemon, event).runs[0].workflow == "told" for event in events)


def test_a_changed_definition_is_an_event(daemon: Daemon) -> None:
    daemon.apply(listening("watcher", "{event: DEFINITION_CHANGED, condition: event.payload.entity == 'workflow'}"))
    daemon.apply(listening("records", "DATA_CHANGED"))
    daemon.apply(listening("fresh", "NOTHING"))
    request = workflow_pb2.SetWorkflowEnabledRequest(name="fresh", enabled=False)
    daemon.workflows.SetWorkflowEnabled(request, timeout=20)
    daemon.workflows.DeleteWorkflow(workflow_pb2.DeleteWorkflowRequest(name="fresh"), timeout=20)
    wait_until(lambda: len(runs_of(daemon, "watcher")) == 4, "nobody was told")
    told = [json.loads(e.payload_json) for e in reversed(events_of(daemon, "DEFINITION_CHANGED"))][-3:]
    assert [each["action"] for each in told] == ["created", "disabled", "deleted"]
    assert {each["data"]["name"] for each in told} == {"fresh"}
    assert not events_of(daemon, "DATA_CHANGED")


def test_runs_of_events_wait_for_a_place_and_the_most_urgent_goes_first(daemon: Daemon, tmp_path: Path) -> None:
    gates = [Gate(str(tmp_path / str(number))) for number in range(4)]
    for number, (gate, priority) in enumerate(zip(gates, (0, 0, 10, 90), strict=True)):
        on = f"{{event: E{number}, priority: {priority}}}"
        daemon.apply(listening(f"w{number}", on, f"read line < {gate.path}"))
    runs = [daemon.emit(f"E{number}").runs[0].run_id for number in range(4)]
    for run_id in runs[:2]:
        daemon.wait_started(run_id, "only")
    info = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
    assert (info.event_runs, info.event_runs_waiting, info.event_concurrency) == (2, 2, 2)
    assert daemon.get_run(runs[3]).waiting_for
    daemon.apply("name: by-hand\ndescription: x\nsteps: {only: {run: 'true'}}\n")
    assert daemon.run("by-hand").state == run_pb2.RUN_STATE_SUCCEEDED
    gates[0].release_now()
    daemon.wait_started(runs[3], "only")
    assert daemon.get_run(runs[2]).state == run_pb2.RUN_STATE_PENDING
    for gate in (gates[1], gates[3], gates[2]):
        gate.release_now()
    assert all(daemon.wait_run(run_id).state == run_pb2.RUN_STATE_SUCCEEDED for run_id in runs)


def test_no_event_is_dropped_unless_the_file_says_so(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(str(tmp_path / "gate"))
    daemon.apply(listening("queues", "E", f"read line < {gate.path}"))
    daemon.apply(listening("skips", "E", f"read line < {gate.path}", "overlap: skip"))
    first, second = daemon.emit("E"), daemon.emit("E")
    assert [run.outcome for run in first.runs] == [event_pb2.EVENT_RUN_OUTCOME_STARTED] * 2
    outcomes = {run.workflow: run for run in second.runs}
    assert outcomes["queues"].outcome == event_pb2.EVENT_RUN_OUTCOME_STARTED
    assert outcomes["skips"].outcome == event_pb2.EVENT_RUN_OUTCOME_SKIPPED
    assert outcomes["skips"].reason == workflow_pb2.NOT_STARTED_REASON_OVERLAP
    daemon.end_runs()
    assert wait_ended(daemon, second).state == event_pb2.EVENT_STATE_RESOLVED
    assert len(runs_of(daemon, "queues")) == 2


def test_a_burst_of_events_starts_one_run_also_over_a_crash(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    line = f"echo {{{{ event.payload.id }}}} {{{{ event.payload.n }}}} {{{{ event.coalesced }}}} >> {witness}"
    with running_daemon(tmp_path / "state", environment={"TOBAN_TIMEZONE": "UTC"}) as daemon:
        daemon.apply(listening("calm", "{event: E, debounce: {quiet: 3s, max_wait: 1h}, key: event.payload.id}", line))
        first = daemon.emit("E", {"id": "a", "n": 1})
        (waits,) = first.runs
        assert waits.reason == workflow_pb2.NOT_STARTED_REASON_DEBOUNCED
        assert "waits for further events until" in waits.detail
        daemon.emit("E", {"id": "b", "n": 1})
        last = daemon.emit("E", {"id": "a", "n": 2})
        daemon.kill()
        assert not witness.exists()
        # The first run is stored, and the daemon dies before it begins.
        daemon.start({"TOBAN_FAILPOINTS": "event.burst_ended=kill@1"})
        daemon.wait()
        daemon.start()
        wait_until(lambda: len(runs_of(daemon, "calm")) == 2, "a run is missing")
        for run in runs_of(daemon, "calm"):
            assert daemon.wait_run(run.id).state == run_pb2.RUN_STATE_SUCCEEDED
        assert sorted(witness.read_text().splitlines()) == ["a 2 2", "b 1 1"]
        (started,) = daemon.events.GetEvent(event_pb2.GetEventRequest(id=last.id), timeout=20).event.runs
        assert started.outcome == event_pb2.EVENT_RUN_OUTCOME_STARTED
        (replaced,) = daemon.events.GetEvent(event_pb2.GetEventRequest(id=first.id), timeout=20).event.runs
        assert (replaced.outcome, replaced.detail) == (
            event_pb2.EVENT_RUN_OUTCOME_SKIPPED,
            f"event {last.id} came later",
        )


def test_a_throttle_starts_no_more_runs_than_its_limit(daemon: Daemon) -> None:
    daemon.apply(listening("slow", "{event: T, throttle: {limit: 2, per: 1h}}"))
    rows = [daemon.emit("T", {"n": number}).runs[0] for number in range(4)]
    assert [bool(row.run_id) for row in rows] == [True, True, False, False]
    assert {row.reason for row in rows[2:]} == {workflow_pb2.NOT_STARTED_REASON_THROTTLED}
    assert all("no further run before" in row.detail for row in rows[2:])
    assert len(runs_of(daemon, "slow")) == 2


def test_nothing_is_forgotten_over_a_restart(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "s", environment={"TOBAN_TIMEZONE": "UTC"}) as daemon:
        daemon.apply(listening("later", "E", "echo {{ event.payload.n }}", "overlap: allow"))
        daemon.apply(listening("starts", "DAEMON_STARTED"))
        daemon.system.Drain(system_pb2.DrainRequest(), timeout=20)
        pending = [daemon.emit("E", {"n": number}) for number in range(3)]
        repeated = daemon.emit("E", {"n": 9}, dedupe_key="k")
        for subject, words in (("a", "in 1 second"), ("b", "every 2 hours"), ("c", "in 2 hours")):
            daemon.schedules.CreateSchedule(
                schedule_pb2.CreateScheduleRequest(
                    subject=subject,
                    rule=schedule_pb2.ScheduleRule(words=words),
                    action=schedule_pb2.SCHEDULE_ACTION_REMINDER,
                    dedupe_key="only",
                ),
                timeout=20,
            )
        cancel = schedule_pb2.CancelBySubjectRequest(subject="c")
        assert daemon.schedules.CancelBySubject(cancel, timeout=20).cancelled == 1
        daemon.kill()
        daemon.start()
        for event, number in zip((*pending, repeated), (0, 1, 2, 9), strict=True):
            (run,) = wait_ended(daemon, event).runs
            assert printed(daemon, run.run_id) == f"{number}\n"
        assert daemon.emit("E", {"n": 10}, dedupe_key="k").id == repeated.id
        assert len(runs_of(daemon, "later")) == 4
        wait_until(lambda: len(runs_of(daemon, "starts")) == 1, "nobody told of the start")
        (told,) = wait_until(lambda: events_of(daemon, "SCHEDULE_TRIGGERED"), "it was never due")
        assert json.loads(told.payload_json)["issueId"] == "a"
        left = daemon.schedules.ListSchedules(schedule_pb2.ListSchedulesRequest(), timeout=20)
        assert [schedule.subject for schedule in left.schedules] == ["b"]


def test_a_file_that_changes_is_an_event(daemon: Daemon, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    mine = "{event: FILE_CHANGED, condition: event.payload.workflow == 'arrived'}"
    report = "echo {{ event.payload.change }} {{ event.payload.path }}"
    daemon.apply(listening("arrived", mine, report, f"watch: ['{inbox}']"))
    wait_until(lambda: touched(inbox) and runs_of(daemon, "arrived"), "nobody noticed")
    run = daemon.wait_run(runs_of(daemon, "arrived")[-1].id)
    assert printed(daemon, run.id).split()[1].startswith(str(inbox))


def touched(inbox: Path) -> bool:
    """Changes before the watch begins are not reported, so the file changes again each time."""
    inbox.mkdir(exist_ok=True)
    inbox.with_name("aside").write_text("x")
    inbox.with_name("aside").replace(inbox / "file")
    return True


def test_a_watcher_continues_exactly_after_each_event_of_a_killed_daemon(daemon: Daemon) -> None:
    def watched(after: int, count: int) -> list[tuple[int, str]]:
        request = event_pb2.WatchEventsRequest(types=["WATCHED"], after_sequence=after)
        stream = daemon.events.WatchEvents(request, timeout=60)
        try:
            assert not next(stream).HasField("event")
            return [(message.sequence, message.event.id) for _, message in zip(range(count), stream, strict=False)]
        finally:
            stream.cancel()

    before = daemon.emit("BEFORE_WATCHED").sequence
    sent: list[str] = []
    known: list[tuple[int, str]] = []
    for life in range(3):
        sent += [daemon.emit("WATCHED", {"n": number}).id for number in range(3)]
        known = watched(before, len(sent))
        assert [event_id for _, event_id in known] == sent
        for number, (sequence, _) in enumerate(known[:-1]):
            assert watched(sequence, len(sent) - number - 1) == known[number + 1 :]
        if life:
            daemon.stop()
        else:
            daemon.kill()
        daemon.start()
    assert watched(before, len(sent)) == known
