"""The slots shared by event runs go to the most urgent run of all workflows, also after a restart."""

from __future__ import annotations

from pathlib import Path

from helpers.daemon import Daemon, running_daemon, waits_for
from helpers.gate import Gate
from helpers.wait import wait_until
from toban.v1 import run_pb2


def listening(name: str, priority: int, command: str) -> str:
    on = f"{{event: {name.upper()}, priority: {priority}}}"
    return f"name: {name}\ndescription: x\non: {on}\nsteps:\n  only:\n    run: |\n      {command}\n"


def ended(daemon: Daemon) -> list[str]:
    """The workflows of all runs in the order in which they began, once all have ended."""
    runs = daemon.runs.ListRuns(run_pb2.ListRunsRequest(), timeout=20).runs
    if not all(run.state == run_pb2.RUN_STATE_SUCCEEDED for run in runs):
        return []
    return [run.workflow for run in sorted(runs, key=lambda run: run.started_at.ToNanoseconds())]


def test_a_flood_of_one_workflow_does_not_keep_out_an_urgent_one(tmp_path: Path) -> None:
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
        order = wait_until(lambda: ended(daemon), "they do not end")
        assert order == ["low", "high", "low", "low"]
