"""A step fills the disk that holds the state: new runs are refused, what runs is finished, space brings all back."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from faults.leftovers import end_all
from faults.scene import daemon_on
from helpers.daemon import Daemon, process_state, run_state, step_states
from helpers.gate import Gate
from helpers.refusal import Refusal, refused
from helpers.waiting import wait_until
from toban.v1 import run_pb2, system_pb2

MEGABYTES = 64

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small disk needs root"
)

DEFINITIONS = """
name: filling
description: writes until nothing fits any more, then waits
steps:
  fill:
    run: |
      echo begun
      dd if=/dev/zero of=big bs=64k 2>/dev/null
      echo full
      echo full > "$FULL"
      read _ < "$GATE"
      echo done
    env: {FULL: "%(full)s", GATE: "%(gate)s"}
  after:
    depends_on: [fill]
    run: echo after
---
name: small
description: needs next to nothing
steps: [{name: only, run: echo small}]
"""


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    directory.mkdir()
    options = f"size={MEGABYTES}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)], check=True, timeout=60)
    try:
        yield directory
    finally:
        end_all(directory)
        subprocess.run(["umount", str(directory)], check=True, timeout=60)


def refusal_of(daemon: Daemon) -> Refusal | None:
    """Why a new run is refused; None while it is not: the daemon looks once a second."""
    try:
        daemon.wait_run(daemon.start_run("small"))
    except grpc.RpcError:
        return refused(lambda: daemon.start_run("small"))
    return None


def accepted(daemon: Daemon) -> run_pb2.Run | None:
    try:
        run_id = daemon.start_run("small")
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # noqa: PT017
        return None
    return daemon.wait_run(run_id)


def well(daemon: Daemon) -> bool:
    """What failed for want of space may have to be tried again before it is."""
    health = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).health
    return health.status == system_pb2.HEALTH_STATUS_OK


@pytest.mark.slow
def test_a_disk_that_a_step_fills_stops_new_runs_and_nothing_else(tmp_path: Path) -> None:
    gate, full = Gate(f"{tmp_path}/gate"), tmp_path / "full"
    with (
        small_disk(tmp_path / "m") as disk,
        daemon_on(disk, tmp_path / "daemon.log") as daemon,
    ):
        daemon.start()
        pid = daemon.pid
        for source in (DEFINITIONS % {"full": full, "gate": gate.path}).split("---"):
            daemon.apply(source)
        assert run_state(daemon.run("small")) == "SUCCEEDED"
        run_id = daemon.start_run("filling")
        wait_until(full.exists, "the disk does not become full")
        refusal = wait_until(lambda: refusal_of(daemon), "new runs are not refused")
        assert refusal is not None
        assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(disk) in refusal.text, "it does not say what is full"
        health = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).health
        assert health.status == system_pb2.HEALTH_STATUS_REFUSING
        gate.release_now()
        run = daemon.wait_run(run_id)
        assert (run_state(run), run.error_message) == ("SUCCEEDED", "")
        assert step_states(run) == {"fill": "SUCCEEDED", "after": "SUCCEEDED"}
        fill = daemon.process_of(run_id, "fill")
        assert (process_state(fill), fill.exit_code) == ("COMPLETED", 0)
        assert daemon.log_of(run_id, "fill")[run_pb2.LOG_STREAM_STDOUT].startswith(b"begun\n")
        assert refused(lambda: daemon.start_run("small")).code is refusal.code
        (daemon.state_dir / "runs" / run_id / "work" / "big").unlink()
        again = wait_until(lambda: accepted(daemon), "new runs stay refused")
        assert again is not None
        assert run_state(again) == "SUCCEEDED"
        assert daemon.pid == pid
        assert daemon.process is not None
        assert daemon.process.poll() is None
        wait_until(lambda: well(daemon), "something is still said to be wrong")
