"""The kernel finds an error and makes the file system of the state read-only, with everything open on it.

A file system with open writers cannot be remounted read-only by hand, so this is how it happens in life; there is
no way back but to mount it again. A disk that refuses writes for a while and then takes them again is simulated in
test_single_faults.py.
"""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from faults import power
from faults.leftovers import check_left, end_all
from faults.scene import daemon_on
from helpers.daemon import Daemon, process_state, run_state, step_states
from helpers.gate import Gate
from helpers.processes import seen
from helpers.refusal import Refusal, refused
from helpers.wait import wait_until
from toban.v1 import system_pb2

pytestmark = pytest.mark.skipif(bool(power.why_not()), reason=f"no disk: {power.why_not()}")

HELD = """
name: held
description: waits for the test
steps:
  - {name: held, run: "echo begun; read _ < %s; echo done"}
  - {name: after, run: echo after}
"""
SMALL = "name: small\ndescription: x\nsteps: [{name: only, run: echo small}]"


def refusal_of(daemon: Daemon) -> Refusal | None:
    try:
        daemon.wait_run(daemon.start_run("small"))
    except grpc.RpcError:
        return refused(lambda: daemon.start_run("small"))
    return None


def condition(daemon: Daemon) -> str:
    """What health says; empty while all is well."""
    health = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).health
    if health.status != system_pb2.HEALTH_STATUS_REFUSING:
        return ""
    return "; ".join(f"{each.name}: {each.detail}" for each in health.conditions)


@pytest.mark.slow
def test_a_disk_that_becomes_read_only_is_told_and_nothing_is_made_up(tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    with (
        power.disk(tmp_path, options="errors=remount-ro") as disk,
        daemon_on(disk.directory, tmp_path / "daemon.log") as daemon,
    ):
        daemon.start()
        process = seen(daemon.pid)
        daemon.apply(HELD % gate.path)
        daemon.apply(SMALL)
        done = daemon.run("small")
        assert run_state(done) == "SUCCEEDED"
        held = daemon.start_run("held")
        daemon.wait_started(held, "held")
        if not disk.break_it():
            pytest.skip("this kernel cannot be told to find an error")
        refusal = wait_until(lambda: refusal_of(daemon), "new runs are not refused")
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.UNAVAILABLE
        assert wait_until(lambda: condition(daemon), "health says nothing")
        gate.release_now()
        # Its end cannot be recorded, and so is not told; what was there before can be read.
        assert run_state(daemon.get_run(held)) == "RUNNING"
        assert run_state(daemon.get_run(done.id)) == "SUCCEEDED"
        assert daemon.process is not None
        assert daemon.process.poll() is None, daemon.tail()
        end_all(disk.directory, process)
        daemon.kill()
        disk.off()
        disk.on()
        daemon.start()
        run = daemon.wait_run(held)
        assert (run_state(run), step_states(run)["held"]) == ("FAILED", "FAILED")
        assert step_states(run)["after"] == "SKIPPED(aborted)"
        assert process_state(daemon.process_of(held, "held")) == "LOST"
        assert run_state(daemon.get_run(done.id)) == "SUCCEEDED"
        assert run_state(daemon.run("small")) == "SUCCEEDED"
        assert condition(daemon) == ""
        assert check_left(daemon.state_dir) == []
