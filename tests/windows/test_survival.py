"""The daemon, or a supervisor, is killed; its successor reports the truth.

A daemon takes seconds to start under wine, so that many runs share one restart.
"""

from __future__ import annotations

import sys

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows: scripts/test-windows", allow_module_level=True)

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from helpers.wait import wait_until
from toban.v1 import run_pb2
from windows.machine import (
    DEADLINE,
    OUT,
    SAY,
    WAIT,
    Daemon,
    Process,
    alive,
    cause_name,
    kill,
    process_state,
    run_state,
    running_daemon,
    seen,
    step,
    written,
)

# Each start of a daemon or a step may take half a minute if the machine is busy.
pytestmark = pytest.mark.timeout(900)

GATED = (
    SAY
    + WAIT
    + """
import subprocess
print("begun", flush=True)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
say(sys.argv[1] + ".child", str(child.pid))
wait(sys.argv[1])
child.kill()
print("went on", flush=True)
sys.exit(int(sys.argv[2]))
"""
)


@dataclass
class Life:
    """The state before the daemon was killed."""

    daemon: Daemon
    runs: dict[str, str] = field(default_factory=dict)
    trees: dict[str, list[Process]] = field(default_factory=dict)
    shims: dict[str, Process] = field(default_factory=dict)
    late: str = ""
    """The one whose time was over while nobody was there, and how many seconds it had."""
    limit: int = 0

    def begin(self, name: str, code: int = 0, *more: dict[str, object], **fields: object) -> None:
        first = step(name, GATED, name, str(code), kill_grace="0.1s", **fields)
        self.runs[name] = self.daemon.begin(name, first, *more)

    def look(self, name: str) -> None:
        process = self.daemon.started(self.runs[name], name)
        self.trees[name] = [process, seen(int(written(self.daemon.work / f"{name}.child")))]
        self.shims[name] = self.daemon.shim(name)

    def open_gate(self, name: str) -> None:
        (self.daemon.work / name).touch()

    def wait_gone(self, name: str) -> None:
        """Until the shim and all that it started are gone."""
        processes = [*self.trees[name], self.shims[name]]
        wait_until(lambda: not any(map(alive, processes)), f"{name} goes on", 2 * DEADLINE)


def kill_before_time_is_over(life: Life) -> None:
    """Kills the daemon while one more goes on whose time is short: a busy machine may need more of it for that."""
    for life.limit in (15, 60, 120):
        life.late = f"late-{life.limit}"
        life.begin(life.late, timeout=f"{life.limit}s")
        with suppress(AssertionError):  # its time may be over already
            life.look(life.late)
        life.daemon.kill()
        if life.late in life.shims and alive(life.trees[life.late][0]):
            return
        life.daemon.start()
        life.daemon.ended(life.runs.pop(life.late))
    raise AssertionError("the daemon cannot be killed in time")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    with running_daemon(tmp_path_factory.mktemp("life") / "state 日本語") as daemon:
        life = Life(daemon)
        life.begin("goes-on", 0, step("after", "print('after')"))
        life.begin("ends", 5)
        life.begin("stopped")
        life.begin("shim-killed")
        for name in life.runs:
            life.look(name)
        kill_before_time_is_over(life)
        life.open_gate("ends")
        kill(life.shims["shim-killed"])
        for name in ("ends", life.late, "shim-killed"):
            life.wait_gone(name)
        for name in ("goes-on", "stopped"):
            assert all(map(alive, [*life.trees[name], life.shims[name]]))
        daemon.start()
        yield life


def test_a_run_goes_on_without_the_daemon(life: Life) -> None:
    run_id = life.runs["goes-on"]
    wait_until(lambda: life.daemon.client.get_info().running_processes, "nothing is re-attached")
    assert all(map(alive, life.trees["goes-on"]))
    life.open_gate("goes-on")
    assert run_state(life.daemon.ended(run_id)) == "SUCCEEDED"
    executions = life.daemon.executions(run_id)
    assert executions["goes-on"].pid == life.trees["goes-on"][0].pid
    assert life.daemon.logged(run_id, "goes-on")[OUT] == b"begun\r\nwent on\r\n"
    assert life.daemon.logged(run_id, "after")[OUT] == b"after\r\n"


def test_an_end_is_taken_up_later(life: Life) -> None:
    run_id = life.runs["ends"]
    assert run_state(life.daemon.ended(run_id)) == "FAILED"
    execution = life.daemon.executions(run_id)["ends"]
    assert (process_state(execution), execution.exit_code) == ("FAILED", 5)
    assert life.daemon.logged(run_id, "ends")[OUT] == b"begun\r\nwent on\r\n"


def test_a_timeout_holds_without_the_daemon(life: Life) -> None:
    run_id = life.runs[life.late]
    life.daemon.ended(run_id)
    execution = life.daemon.executions(run_id)[life.late]
    assert process_state(execution) == "TIMED_OUT"
    took = execution.finished_at.ToMicroseconds() - execution.started_at.ToMicroseconds()
    assert (life.limit - 1) * 1_000_000 < took < (life.limit + 60) * 1_000_000


def test_cancel_after_a_restart(life: Life) -> None:
    run_id = life.runs["stopped"]
    life.daemon.client.cancel_run(run_id)
    assert run_state(life.daemon.ended(run_id)) == "CANCELLED"
    assert not any(map(alive, life.trees["stopped"]))
    ending = life.daemon.executions(run_id)["stopped"].ending
    assert (cause_name(ending), ending.proved_empty) == ("cancel", True)


def test_a_shim_that_was_killed_while_nobody_looked(life: Life) -> None:
    run_id = life.runs["shim-killed"]
    assert run_state(life.daemon.ended(run_id)) == "FAILED"
    execution = life.daemon.executions(run_id)["shim-killed"]
    assert (process_state(execution), execution.ending.orphans) == ("LOST", run_pb2.ORPHANS_ENDED)


def test_a_killed_shim_takes_its_tree_along(life: Life) -> None:
    life.begin("watched")
    life.look("watched")
    kill(life.shims["watched"])
    life.wait_gone("watched")
    run_id = life.runs["watched"]
    assert run_state(life.daemon.ended(run_id)) == "FAILED"
    execution = life.daemon.executions(run_id)["watched"]
    assert (process_state(execution), execution.ending.orphans) == ("LOST", run_pb2.ORPHANS_ENDED)


def test_killed_around_the_hand_over_and_a_reboot(life: Life) -> None:
    """Killed before and after a shim gets the attempt: in the end the step has run once.

    The last start is on a machine that was booted again, as far as it can see: what has no owner then is LOST.
    """
    daemon = life.daemon
    life.begin("running")
    life.look("running")
    daemon.kill()
    daemon.start({"TOBAN_FAILPOINTS": "launch.before_send=kill"})
    code = "import os; open('witness', 'a').write(os.environ['TOBAN_ATTEMPT_TOKEN'] + '\\n')"
    daemon.apply("once", step("once", code))
    with suppress(AssertionError):  # it may die before it has answered
        daemon.client.start_run("once")
    daemon.died()
    assert not (daemon.work / "witness").exists()
    # Found again, it is launched: and this one dies as soon as the shim has its message.
    daemon.start({"TOBAN_FAILPOINTS": "launch.after_send=kill"}, wait=False)
    daemon.died()
    kill(life.shims["running"])
    life.wait_gone("running")
    written(daemon.work / "witness")
    daemon.start({"TOBAN_BOOT_ID": "another"})
    (run_id,) = (run.id for run in daemon.client.list_runs(workflow="once"))
    assert run_state(daemon.ended(run_id)) == "SUCCEEDED"
    assert len((daemon.work / "witness").read_text().split()) == 1
    daemon.ended(life.runs["running"])
    execution = daemon.executions(life.runs["running"])["running"]
    assert (process_state(execution), execution.ending.orphans) == ("LOST", run_pb2.ORPHANS_NONE)
    assert "the machine went down" in execution.error_message
