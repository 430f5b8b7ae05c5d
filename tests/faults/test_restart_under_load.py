"""A daemon is restarted under a hundred running steps: all are taken up again within two seconds, untouched."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from faults.leftovers import check_left
from helpers.daemon import Daemon, run_state, running_daemon
from helpers.processes import Process, seen, stat_of
from helpers.wait import wait_until
from toban.v1 import system_pb2

STEPS = 100
WITHIN = 2.0


def started(daemon: Daemon, run_id: str) -> dict[str, tuple[Process, Process]] | None:
    """Each step's process and its shim, with their start times; None while one is missing."""
    pids = {process.step: process.pid for process in daemon.processes(run_id) if process.pid}
    if len(pids) < STEPS:
        return None
    found = {}
    for step, pid in pids.items():
        stat = stat_of(pid)
        assert stat is not None, f"{step} is gone"
        found[step] = (seen(pid), seen(stat.parent))
    return found


def recovered(daemon: Daemon) -> system_pb2.Recovery:
    """Within two seconds of listening."""
    serving = time.monotonic()

    def done() -> system_pb2.Recovery | None:
        info = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
        return info.recovery if info.recovery.HasField("finished_at") else None

    found = wait_until(done, "recovery does not end")
    took = time.monotonic() - serving
    print(f"{found.reattached} of {STEPS} taken up in {took:.2f} s")
    assert took <= WITHIN
    return found


@pytest.mark.slow
def test_a_hundred_running_steps_are_taken_up_within_two_seconds(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "s") as daemon:
        steps = "".join(f"  s{n}: {{run: exec sleep 600, kill_grace: 1s}}\n" for n in range(STEPS))
        daemon.apply(f"name: many\ndescription: x\nsteps:\n{steps}")
        run_id = daemon.start_run("many")
        before = wait_until(lambda: started(daemon, run_id), "not all of them start", 60)
        for end in (daemon.kill, daemon.stop):
            end()
            daemon.start()
            found = recovered(daemon)
            assert (found.reattached, found.relaunched, found.lost) == (STEPS, 0, 0)
            assert started(daemon, run_id) == before, "a shim or a step is another process"
        daemon.cancel(run_id)
        assert run_state(daemon.wait_run(run_id)) == "CANCELLED"
        assert check_left(daemon.state_dir) == []
