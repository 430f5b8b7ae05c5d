"""Resource usage of a running step is sampled, stored and shown."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.daemon import Daemon, run_state, running_daemon
from helpers.gate import Gate
from helpers.wait import wait_until
from toban.v1 import run_pb2
from toband.engine.runs.resource_sampling import TICK

GREEDY = (
    "import subprocess, sys; block = bytearray(48 << 20); child = subprocess.Popen(['sleep', '600']); "
    "open(sys.argv[1]).readline(); child.kill()"
)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "s") as running:
        yield running


def execution(daemon: Daemon, run_id: str) -> run_pb2.ProcessExecution:
    request = run_pb2.GetProcessExecutionRequest(id=daemon.process_of(run_id, "greedy").id)
    return daemon.runs.GetProcessExecution(request, timeout=20).process_execution


def whole(sample: run_pb2.ResourceSample) -> bool:
    """Whether the step was all that it will be."""
    return sample.processes == 2 and sample.rss_bytes > 48 << 20


def samples(
    daemon: Daemon,
    run_id: str,
    at_least: int,
    last: Callable[[run_pb2.ResourceSample], bool] = lambda _: True,
) -> list[run_pb2.ResourceSample]:
    def enough() -> list[run_pb2.ResourceSample] | None:
        if not daemon.processes(run_id):
            return None  # the run has not begun
        found = list(execution(daemon, run_id).resources.samples)
        return found if len(found) >= at_least and last(found[-1]) else None

    return wait_until(enough, f"there are no {at_least} samples")


def shown(daemon: Daemon, *arguments: str) -> str:
    command = [sys.executable, "-m", "toban.cli", "--server", daemon.socket, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_samples_of_a_running_step_are_kept_over_a_restart_and_after_its_end(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    daemon.apply(f"""
name: greedy
description: x
steps:
  - {{name: greedy, job_type: exec, target: {sys.executable}, args: ["-c", "{GREEDY}", {gate.path}]}}
""")
    run_id = daemon.start_run("greedy")
    first = samples(daemon, run_id, 2, last=whole)
    assert first[-1].HasField("written_bytes")
    assert first[0].at.ToMicroseconds() < first[1].at.ToMicroseconds()
    listed = daemon.process_of(run_id, "greedy").resources
    assert len(listed.samples) == 1, "lists have the latest one only"
    out = shown(daemon, "runs", "show", "greedy")
    table = out[out.index("Resource use:") :].splitlines()
    assert table[1].split()[:3] == ["STEP", "CPU", "MEMORY"]
    assert "cores" in table[2]
    assert "MiB, peak" in table[2]

    assert daemon.stop() == 0
    daemon.start()
    second = samples(daemon, run_id, len(first) + 1)
    assert second[: len(first)] == first, "the series goes on where it was"
    gate.release_now()
    assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
    daemon.stop()
    daemon.start()
    used = execution(daemon, run_id).resources
    assert list(used.samples)[: len(second)] == second
    assert used.peak_processes == 2
    assert used.peak_rss_bytes >= max(sample.rss_bytes for sample in used.samples)
    assert "peak" in shown(daemon, "runs", "show", "greedy")
    assert "peak" in shown(daemon, "runs", "processes", "greedy")


def test_a_short_step_costs_nothing_and_has_no_samples(daemon: Daemon) -> None:
    daemon.apply("name: short\ndescription: x\nsteps: [{name: greedy, run: 'true'}]\n")

    def short() -> str:
        began = time.monotonic()
        run_id = daemon.run("short").id
        return run_id if time.monotonic() - began < TICK else ""

    run_id = wait_until(short, "even a step that does nothing is not short")
    assert not execution(daemon, run_id).resources.samples
    assert "Resource use" not in shown(daemon, "runs", "show", "short")
