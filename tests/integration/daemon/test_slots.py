"""Slots for attempts and for runs of events: never more than configured; the waiting ones by priority, then by age."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.daemon import Daemon, run_state, running_daemon, step_states, waits_for
from helpers.gate import Gate
from helpers.wait import wait_until
from toban.v1 import run_pb2, system_pb2


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    environment = {"TOBAN_MAX_ATTEMPTS_RUNNING": "1"}
    with running_daemon(tmp_path / "s", environment=environment) as running:
        yield running


def workflow(name: str, command: str, priority: int = 0) -> str:
    return (
        f"name: {name}\ndescription: x\noverlap: allow\npriority: {priority}\n"
        f"steps:\n  - {{name: only, run: '{command}'}}\n"
    )


def waiting(daemon: Daemon) -> int:
    return daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).waiting_attempts


def blocked(daemon: Daemon, gate: Gate) -> str:
    daemon.apply(workflow("blocker", f"read _ < {gate.path}"))
    run_id = daemon.start_run("blocker")
    daemon.wait_started(run_id, "only")
    return run_id


def test_what_waits_goes_by_priority_then_by_age(daemon: Daemon, tmp_path: Path) -> None:
    gate, order = Gate(f"{tmp_path}/gate"), tmp_path / "order"
    for name, priority in (("low", -10), ("plain", 0), ("high", 50)):
        daemon.apply(workflow(name, f"echo {name} >> {order}", priority))
    first = blocked(daemon, gate)
    started = []
    for name in ("low", "plain", "high", "plain"):
        started.append(daemon.start_run(name))
        wait_until(lambda: waiting(daemon) == len(started), "it does not wait")
    shown = daemon.get_run(started[2])
    assert (shown.priority, run_state(shown)) == (50, "RUNNING")
    assert (waits_for(shown), list(shown.waiting_steps)) == ("SLOT", ["only"])
    info = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
    assert (info.max_attempts_running, info.running_processes) == (1, 1)
    gate.release_now()
    for run_id in (first, *started):
        assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
    assert order.read_text().split() == ["high", "plain", "plain", "low"]


def test_what_waits_is_cancelled_without_ever_starting(daemon: Daemon, tmp_path: Path) -> None:
    gate, witness = Gate(f"{tmp_path}/gate"), tmp_path / "witness"
    daemon.apply(workflow("never", f"echo ran >> {witness}"))
    first = blocked(daemon, gate)
    run_id = daemon.start_run("never")
    wait_until(lambda: waiting(daemon) == 1, "it does not wait")
    daemon.cancel(run_id)
    run = daemon.wait_run(run_id)
    assert (run_state(run), step_states(run)) == ("CANCELLED", {"only": "SKIPPED(cancelled)"})
    gate.release_now()
    assert run_state(daemon.wait_run(first)) == "SUCCEEDED"
    assert not witness.exists()


def test_what_waits_survives_the_daemon_and_what_runs_keeps_its_place(daemon: Daemon, tmp_path: Path) -> None:
    gate, witness = Gate(f"{tmp_path}/gate"), tmp_path / "witness"
    daemon.apply(workflow("later", f"echo $TOBAN_ATTEMPT >> {witness}"))
    first = blocked(daemon, gate)
    run_id = daemon.start_run("later")
    wait_until(lambda: waiting(daemon) == 1, "it does not wait")
    daemon.kill()
    daemon.start()
    wait_until(lambda: waiting(daemon) == 1, "it does not wait again")
    assert not witness.exists()
    gate.release_now()
    for each in (first, run_id):
        assert run_state(daemon.wait_run(each)) == "SUCCEEDED"
    assert witness.read_text() == "1\n"


def listening(name: str, priority: int, command: str) -> str:
    on = f"{{event: {name.upper()}, priority: {priority}}}"
    return f"name: {name}\ndescription: x\non: {on}\nsteps:\n  only:\n    run: |\n      {command}\n"


def order_of_starts(daemon: Daemon) -> list[str]:
    """The workflows of all runs in the order in which they began, once all have succeeded."""
    runs = daemon.runs.ListRuns(run_pb2.ListRunsRequest(), timeout=20).runs
    if not all(run.state == run_pb2.RUN_STATE_SUCCEEDED for run in runs):
        return []
    return [run.workflow for run in sorted(runs, key=lambda run: run.started_at.ToNanoseconds())]


def test_an_urgent_event_passes_a_flood_of_another_workflow(tmp_path: Path) -> None:
    gate = Gate(str(tmp_path / "gate"))
    with running_daemon(tmp_path / "s", environment={"TOBAN_EVENT_CONCURRENCY": "1"}) as daemon:
        daemon.apply(listening("low", -50, f"read line < {gate.path}"))
        daemon.apply(listening("high", 100, "true"))
        flood = [daemon.emit("LOW").runs[0].run_id for _ in range(3)]
        daemon.wait_started(flood[0], "only")
        urgent = daemon.emit("HIGH").runs[0].run_id
        assert waits_for(daemon.get_run(urgent)) == "EVENT_SLOT"
        assert waits_for(daemon.get_run(flood[1])) == "QUEUE"
        daemon.kill()
        daemon.start()
        for run_id in flood:
            daemon.wait_started(run_id, "only")
            gate.release_now()
            daemon.wait_run(run_id)
        order = wait_until(lambda: order_of_starts(daemon), "not all runs succeeded")
        assert order == ["low", "high", "low", "low"]
