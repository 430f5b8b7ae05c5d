"""Steps that wait for a time, an event or a file, without a slot, and through kills of the daemon."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from helpers.daemon import Daemon, run_state, running_daemon, step_states, steps_of, waits_for
from helpers.wait import wait_until
from toban.v1 import event_pb2, job_pb2, run_pb2, system_pb2, workflow_pb2

OUT = run_pb2.LOG_STREAM_STDOUT
SECOND = 1_000_000


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    surroundings = {"TOBAN_TIMEZONE": "Asia/Tokyo", "TOBAN_MAX_ATTEMPTS_RUNNING": "2"}
    with running_daemon(tmp_path_factory.mktemp("d") / "s", environment=surroundings) as running:
        yield running


def start(daemon: Daemon, name: str, steps: Any, params: dict[str, Any] | None = None, **fields: Any) -> str:
    kinds = {int: "integer", str: "string"}
    declared = {"params": {key: {"type": kinds[type(v)], "default": v} for key, v in (params or {}).items()}}
    daemon.apply(json.dumps({"name": name, "description": "x", **declared, **fields, "steps": steps}))
    return daemon.start_run(name)


def waiting(daemon: Daemon, run_id: str, step: str = "hold") -> run_pb2.Step:
    """The step, once it has begun to wait."""

    def begun() -> run_pb2.Step | None:
        found = steps_of(daemon.get_run(run_id))[step]
        assert found.state != run_pb2.STEP_STATE_FAILED, found.reason
        return found if found.HasField("awaited") else None

    found = wait_until(begun, "it does not begin to wait")
    assert found is not None
    return found


def result_of(run: run_pb2.Run, step: str = "hold") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(steps_of(run)[step].result_json)
    return found


def after(text: str) -> dict[str, Any]:
    return {"run": f"echo {text}", "depends_on": ["hold"]}


def test_a_wait_for_a_duration(daemon: Daemon) -> None:
    steps = {"hold": {"wait": {"for": "{{ params.pause }}"}}, "next": after("{{ steps.hold.result.reason }}")}
    run_id = start(daemon, "duration", steps, {"pause": "700ms"})
    step = waiting(daemon, run_id)
    assert (waits_for(step), step.job_type, step.attempts) == ("TIME", run_pb2.JOB_TYPE_WAIT, 1)
    assert step.awaited.until.ToMicroseconds() - step.started_at.ToMicroseconds() == 700_000
    assert not step.awaited.HasField("timeout_at")
    run = daemon.wait_run(run_id)
    assert step_states(run) == {"hold": "SUCCEEDED", "next": "SUCCEEDED"}
    assert steps_of(run)["hold"].finished_at == step.awaited.until
    assert daemon.log_of(run_id)[OUT] == b"time\n"
    at = step.awaited.until.ToDatetime(UTC).isoformat()
    assert result_of(run) == {"reason": "time", "at": at, "event": None, "file": ""}


def test_a_wait_until_a_time(daemon: Daemon) -> None:
    def held(name: str, until: str, **fields: Any) -> run_pb2.Step:
        return waiting(daemon, start(daemon, name, {"hold": {"wait": {"until": until}}}, **fields))

    today = datetime.now(UTC)
    day = (today + timedelta(days=2)).date().isoformat()
    assert held("until-offset", f"{day}T09:30:00+05:30").awaited.until.ToDatetime(UTC).isoformat() == (
        f"{day}T04:00:00+00:00"
    )
    assert held("until-daemon", f"{day} 09:30").awaited.until.ToDatetime(UTC).isoformat() == f"{day}T00:30:00+00:00"
    own = held("until-own", f"{day} 09:30", timezone="UTC").awaited.until.ToDatetime(UTC)
    assert own.isoformat() == f"{day}T09:30:00+00:00"
    step = held("until-day", "09:30", timezone="UTC")
    next_one = step.awaited.until.ToDatetime(UTC)
    assert (next_one.hour, next_one.minute, next_one.second) == (9, 30, 0)
    assert timedelta() < next_one - step.started_at.ToDatetime(UTC) <= timedelta(days=1)
    daemon.end_runs()
    past = daemon.wait_run(start(daemon, "until-past", {"hold": {"wait": {"until": "2020-01-01T00:00Z"}}}))
    assert run_state(past) == "SUCCEEDED"
    assert steps_of(past)["hold"].finished_at == steps_of(past)["hold"].started_at


def test_a_wait_until_a_time_that_is_near(daemon: Daemon) -> None:
    at = (datetime.now(UTC) + timedelta(seconds=1.5)).isoformat()
    run = daemon.wait_run(start(daemon, "until-near", {"hold": {"wait": {"until": "{{ params.at }}"}}}, {"at": at}))
    assert result_of(run)["at"] == at
    assert datetime.now(UTC) >= datetime.fromisoformat(at)


def test_a_wait_for_an_event_of_its_own(daemon: Daemon) -> None:
    """Of two runs, each gets the event about its own order, and later steps its payload."""
    steps = {
        "order": {"run": "echo id={{ params.id }} >> $TOBAN_OUTPUT"},
        "hold": {
            "wait": {
                "event": ["order.paid", "order.cancelled"],
                "condition": "event.payload.id == params.id && string(params.id) == steps.order.outputs.id",
            },
            "depends_on": ["order"],
            "timeout": "1h",
        },
        "next": after("{{ steps.hold.result.event.type }} {{ steps.hold.result.event.payload.amount }}"),
    }
    daemon.apply(
        json.dumps(
            {
                "name": "orders",
                "description": "x",
                "max_active_runs": 5,
                "params": {"id": {"type": "integer", "required": True}},
                "steps": steps,
            }
        )
    )
    ids = {number: daemon.start_run("orders", id=number) for number in (1, 2)}
    step = waiting(daemon, ids[1])
    waiting(daemon, ids[2])
    assert (waits_for(step), list(step.awaited.event_types)) == ("EVENT", ["order.paid", "order.cancelled"])
    assert "params.id" in step.awaited.condition
    assert step.awaited.timeout_at.ToMicroseconds() - step.started_at.ToMicroseconds() == 3600 * SECOND
    found = daemon.get_run(ids[1])
    assert (waits_for(found), list(found.waiting_steps)) == ("EVENT", ["hold"])
    listed = daemon.runs.ListRuns(run_pb2.ListRunsRequest(workflow="orders"), timeout=20).runs
    assert [(waits_for(run), list(run.waiting_steps)) for run in listed] == [("EVENT", ["hold"])] * 2
    daemon.emit("order.paid", {"amount": 5})  # without an id it matches neither
    daemon.emit("order.shipped", {"id": 1})
    second = daemon.emit("order.paid", {"id": 2, "amount": 20})
    assert run_state(daemon.wait_run(ids[2])) == "SUCCEEDED"
    assert waits_for(daemon.get_run(ids[1])) == "EVENT"
    first = daemon.emit("order.cancelled", {"id": 1, "amount": 10})
    assert run_state(daemon.wait_run(ids[1])) == "SUCCEEDED"
    printed = {number: daemon.log_of(run_id, "next")[OUT] for number, run_id in ids.items()}
    assert printed == {1: b"order.cancelled 10\n", 2: b"order.paid 20\n"}
    for number, event in ((1, first), (2, second)):
        found_event = result_of(daemon.get_run(ids[number]))["event"]
        assert (found_event["id"], found_event["source"]) == (event.id, "client")


def test_an_event_from_before_the_wait_does_not_count(daemon: Daemon) -> None:
    daemon.emit("early", {"n": 1})
    run_id = start(daemon, "early", {"hold": {"wait": {"event": "early"}}})
    waiting(daemon, run_id)
    daemon.emit("early", {"n": 2})
    assert result_of(daemon.wait_run(run_id))["event"]["payload"] == {"n": 2}


def test_events_of_the_daemon_end_a_wait(daemon: Daemon) -> None:
    """No workflow listens to them: they are stored because a step waits."""
    condition = "event.payload.workflow == 'other' && event.payload.params.n == '7'"
    run_id = start(daemon, "follows", {"hold": {"wait": {"event": "RUN_FAILED", "condition": condition}}})
    waiting(daemon, run_id)
    other = start(daemon, "other", {"only": {"run": "exit 1"}}, {"n": "7"})
    assert result_of(daemon.wait_run(run_id))["event"]["source_run"] == other


def test_a_wait_ends_while_the_daemon_drains(daemon: Daemon) -> None:
    run_id = start(daemon, "drained", {"hold": {"wait": {"event": "go"}}})
    waiting(daemon, run_id)
    daemon.system.Drain(system_pb2.DrainRequest(), timeout=20)
    try:
        event = daemon.emit("go", {})
        assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
        assert event.state == event_pb2.EVENT_STATE_PENDING
    finally:
        daemon.system.Resume(system_pb2.ResumeRequest(), timeout=20)


def test_a_wait_for_a_file_that_is_written_slowly(daemon: Daemon, tmp_path: Path) -> None:
    steps = {
        "hold": {"wait": {"file": "{{ params.dir }}/data.csv", "settle": "1s"}},
        "next": after('"$(wc -c < {{ steps.hold.result.file }})"'),
    }
    run_id = start(daemon, "file", steps, {"dir": str(tmp_path)})
    step = waiting(daemon, run_id)
    assert (waits_for(step), step.awaited.file) == ("FILE", f"{tmp_path}/data.csv")
    with (tmp_path / "data.csv").open("ab", buffering=0) as file:
        until, written = time.monotonic() + 2.5, 0
        while time.monotonic() < until:
            written += file.write(b"x")
            # A machine may be so slow that the file did not change for long enough.
            os.sched_yield()
    run = daemon.wait_run(run_id)
    assert result_of(run)["reason"] == "file"
    assert int(daemon.log_of(run_id, "next")[OUT]) == written
    assert run.finished_at.ToMicroseconds() >= (tmp_path / "data.csv").stat().st_mtime_ns // 1000 + SECOND - 50_000


def test_a_wait_for_a_relative_path_that_a_step_makes(daemon: Daemon) -> None:
    steps = {
        "hold": {"wait": {"file": "{{ run.dir }}/made", "settle": 0}},
        "make": {"run": "mkdir made", "workspace": "{{ run.dir }}"},
    }
    assert run_state(daemon.wait_run(start(daemon, "made", steps))) == "SUCCEEDED"


def test_waits_need_no_slot(daemon: Daemon) -> None:
    """Of the run, or of the daemon, which has two."""
    hold = {"wait": {"event": "all.go", "condition": "event.payload.n == item"}, "for_each": [*range(20)]}
    steps = {"hold": hold, "beside": {"run": "echo ran"}, "next": after("{{ size(steps.hold.result) }}")}
    run_id = start(daemon, "slotless", steps, concurrency=1)
    wait_until(lambda: step_states(daemon.get_run(run_id))["beside"] == "SUCCEEDED", "a wait takes its slot")
    wait_until(lambda: waits_for(daemon.get_run(run_id)) == "EVENT", "not all of them wait")
    for number in range(20):
        daemon.emit("all.go", {"n": number})
    run = daemon.wait_run(run_id)
    assert run_state(run) == "SUCCEEDED"
    assert daemon.log_of(run_id, "next")[OUT] == b"20\n"
    assert not [each for each in daemon.processes(run_id) if each.step.startswith("hold")]


def test_timeouts_retries_cancel_and_errors(daemon: Daemon, tmp_path: Path) -> None:
    slow = {"wait": {"event": "never"}, "timeout": "300ms"}
    run = daemon.wait_run(start(daemon, "late", {"hold": slow}))
    hold = steps_of(run)["hold"]
    assert (run_state(run), hold.reason) == ("FAILED", "timed out: no event never that it waits for came in time")
    assert hold.finished_at.ToMicroseconds() - hold.started_at.ToMicroseconds() == 300_000
    retry = {"max_retries": 1, "retry": {"delay": "50ms", "jitter": 0}, "on_failure": "continue"}
    path = f"{tmp_path}/nothing"
    lost = {"wait": {"file": path}, "timeout": "200ms", **retry}
    run = daemon.wait_run(start(daemon, "retried", {"hold": lost, "next": after("{{ steps.hold.status }}")}))
    assert (run_state(run), steps_of(run)["hold"].attempts) == ("SUCCEEDED", 2)
    assert steps_of(run)["hold"].reason == f"timed out: the file {path} was not complete in time"
    run_id = start(daemon, "cancelled", {"hold": {"wait": {"for": "1h"}}, "next": after("x")})
    waiting(daemon, run_id)
    daemon.cancel(run_id)
    assert step_states(daemon.wait_run(run_id)) == {"hold": "CANCELLED", "next": "SKIPPED(cancelled)"}
    for wait, message in (
        ({"for": "{{ params.x }}"}, 'expected a duration, found "soon"'),
        ({"until": "{{ params.x }}"}, 'expected a time, found "soon"'),
        ({"file": "{{ params.x == 'soon' ? '' : params.x }}"}, "cannot render wait.file of step hold: it is empty"),
    ):
        steps = {"hold": {"wait": wait, "max_retries": 3}}
        run = daemon.wait_run(start(daemon, f"wrong-{next(iter(wait))}", steps, {"x": "soon"}))
        assert message in steps_of(run)["hold"].reason
        assert steps_of(run)["hold"].attempts == 1


def test_a_job_that_waits(daemon: Daemon) -> None:
    definition = workflow_pb2.Definition(source="jobs: {pause: {wait: {for: 100ms}, title: A pause}}")
    daemon.jobs.CreateJob(job_pb2.CreateJobRequest(definition=definition), timeout=20)
    assert run_state(daemon.wait_run(daemon.start_run("pause"))) == "SUCCEEDED"
    run = daemon.wait_run(start(daemon, "uses-it", [{"job": "pause"}, {"name": "next", "run": "true"}]))
    assert step_states(run) == {"pause": "SUCCEEDED", "next": "SUCCEEDED"}


# -- kills


KINDS = ("time", "duration", "event", "file")


def waits(directory: Path, soon: float) -> dict[str, dict[str, Any]]:
    until = (datetime.now(UTC) + timedelta(seconds=soon)).isoformat()
    return {
        "time": {"until": until},
        "duration": {"for": f"{soon}s"},
        "event": {"event": "kill.go", "condition": "event.payload.n == params.n"},
        "file": {"file": f"{directory}/kill.txt", "settle": "500ms"},
    }


@pytest.mark.parametrize("while_down", [True, False])
def test_every_wait_goes_on_after_a_kill(tmp_path: Path, while_down: bool) -> None:
    soon = 3.0 if while_down else 12.0
    with running_daemon(tmp_path / "s") as daemon:
        found = waits(tmp_path, soon)
        runs = {}
        for kind, wait in found.items():
            steps = {"hold": {"wait": wait}, "next": {"run": "echo x >> $OUT", "depends_on": ["hold"]}}
            runs[kind] = start(daemon, kind, steps, {"n": 7}, env={"OUT": f"{tmp_path}/{kind}"})
        before = {kind: waiting(daemon, run_id) for kind, run_id in runs.items()}
        daemon.kill()
        if while_down:
            (tmp_path / "kill.txt").write_text("done")
            due = max(step.awaited.until.ToMicroseconds() for step in before.values())
            wait_until(lambda: time.time() * SECOND > due, "time stands still")
        daemon.start()
        if not while_down:
            again = {kind: waiting(daemon, run_id) for kind, run_id in runs.items()}
            assert {kind: step.awaited for kind, step in again.items()} == {
                kind: step.awaited for kind, step in before.items()
            }
            (tmp_path / "kill.txt").write_text("done")
        daemon.emit("kill.go", {"n": 6})
        daemon.emit("kill.go", {"n": 7})
        for kind, run_id in runs.items():
            run = daemon.wait_run(run_id)
            assert (kind, run_state(run)) == (kind, "SUCCEEDED")
            assert (tmp_path / kind).read_text() == "x\n"
            if kind in ("time", "duration"):
                assert steps_of(run)["hold"].finished_at == before[kind].awaited.until


@pytest.mark.parametrize("failpoint", ["wait.begin", "wait.begun", "event.stored", "wait.matched", "event.resolved"])
def test_an_event_ends_a_wait_once_whenever_the_daemon_is_killed(tmp_path: Path, failpoint: str) -> None:
    """Before the wait has begun, or after the event was stored and before, or after, the wait was saved as ended."""
    steps = {
        "hold": {"wait": {"event": "go"}},
        "next": {"run": "echo {{ steps.hold.result.event.payload.n }} >> $OUT", "depends_on": ["hold"]},
    }
    with running_daemon(tmp_path / "s") as daemon:
        daemon.emit("go", {"n": 0})
        of_wait = failpoint in ("wait.begin", "wait.begun")
        if not of_wait:
            waiting(daemon, start(daemon, "w", steps, env={"OUT": f"{tmp_path}/out"}))
        daemon.kill()
        daemon.start({"TOBAN_FAILPOINTS": f"{failpoint}=kill"})
        with suppress(grpc.RpcError):
            if of_wait:
                start(daemon, "w", steps, env={"OUT": f"{tmp_path}/out"})
            else:
                daemon.emit("go", {"n": 1})
        wait_until(lambda: daemon.process is not None and daemon.process.poll() is not None, "it is not killed")
        daemon.start()
        listed = run_pb2.ListRunsRequest(workflow="w")
        (only,) = daemon.runs.ListRuns(listed, timeout=20).runs
        run_id = only.id
        if of_wait:
            waiting(daemon, run_id)
            daemon.emit("go", {"n": 1})
        run = daemon.wait_run(run_id)
        assert run_state(run) == "SUCCEEDED"
        assert result_of(run)["event"]["payload"] == {"n": 1}
        daemon.emit("go", {"n": 2})
        assert (tmp_path / "out").read_text() == "1\n"
        assert daemon.get_run(run_id) == run


@pytest.mark.slow
def test_many_waits_are_cheap(tmp_path: Path) -> None:
    count = 2_000
    hold = {"wait": {"event": "many", "condition": "event.payload.n == item"}}
    pause = {"wait": {"for": "1h"}}
    params = {"items": {"type": "list", "default": list(range(count))}}
    steps = {name: {**step, "for_each": "params.items"} for name, step in (("hold", hold), ("pause", pause))}
    with running_daemon(tmp_path / "s") as daemon:
        daemon.apply(json.dumps({"name": "many", "description": "x", "params": params, "steps": steps}))
        run_id = daemon.start_run("many")
        begun: set[str] = set()
        for change in daemon.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id), timeout=150):
            begun |= {step.id for step in change.run.steps if step.HasField("awaited")}
            if len(begun) == 2 * count:
                break
        assert change.sequence < count / 10, "each is saved on its own"
        before, began = cpu_of(daemon.pid), time.monotonic()
        wait_until(lambda: time.monotonic() - began > 3, "time stands still")
        assert cpu_of(daemon.pid) - before < 0.5, "they cost something although nothing happens"
        daemon.emit("many", {"n": count - 1})
        last = f"hold[{count - 1}]"
        for change in daemon.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id), timeout=60):
            if (last, run_pb2.STEP_STATE_SUCCEEDED) in {(step.id, step.state) for step in change.run.steps}:
                break
        daemon.cancel(run_id)
        assert run_state(daemon.wait_run(run_id, 100)) == "CANCELLED"


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
