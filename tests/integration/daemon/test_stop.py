"""Stopping: quick and clean, while the steps go on and wait for the next daemon."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from helpers.daemon import Daemon, run_state, running_daemon, texts
from helpers.gate import Gate
from helpers.processes import alive, seen
from helpers.refusal import Refusal, refused
from helpers.wait import wait_until
from toban.v1 import run_pb2, system_pb2

DEADLINE = 16.0
"""Half of it is waited for readers that do not read; the rest is for a machine that is slow."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    environment = {"TOBAN_STOP_DEADLINE": f"{DEADLINE:g}s"}
    with running_daemon(tmp_path_factory.mktemp("d") / "s", environment=environment) as running:
        yield running


def stops(daemon: Daemon) -> int:
    """How often it has begun to stop: others did so before."""
    return daemon.log.read_text().count('"stopping"')


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_running_step_outlives_the_daemon_and_is_taken_up_again(
    daemon: Daemon, tmp_path: Path, signum: signal.Signals
) -> None:
    gate = Gate(f"{tmp_path}/gate")
    name = f"held-{signum.name}"
    daemon.apply(f"""
name: {name}
description: x
steps:
  - {{name: only, run: "echo before; read _ < {gate.path}; echo after; exit 3", success_codes: [3]}}
  - {{name: next, run: echo next}}
""")
    run_id = daemon.start_run(name)
    pid = daemon.wait_started(run_id, "only")
    step = seen(pid)
    watching = daemon.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id), timeout=60)
    following = daemon.runs.StreamLogs(run_pb2.StreamLogsRequest(run_id=run_id, follow=True), timeout=60)
    first = next(iter(following))
    picture = next(iter(watching))
    assert daemon.process is not None
    began = time.monotonic()
    daemon.process.send_signal(signum)
    # Streams do not end as if the run had: they break off, and can be taken up again.
    for broken in (refused(lambda: watching), refused(lambda: following)):
        assert isinstance(broken, Refusal)
        assert (broken.code, broken.reason) == (grpc.StatusCode.UNAVAILABLE, "STOPPING")
    assert daemon.wait() == 0
    assert time.monotonic() - began < DEADLINE
    assert alive(step)
    daemon.start()
    info = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
    assert info.recovery.runs == 1
    gate.release_now()
    rest = daemon.chunks(run_id, first.position, follow=True)
    assert texts([first, *rest]) == {("only", 1): b"before\nafter\n", ("next", 1): b"next\n"}
    assert rest[-1].end.complete
    changes = run_pb2.WatchRunRequest(id=run_id, after_sequence=picture.sequence)
    numbers = [message.sequence for message in daemon.runs.WatchRun(changes, timeout=60)]
    assert numbers == list(range(picture.sequence + 1, picture.sequence + 1 + len(numbers)))
    run = daemon.wait_run(run_id)
    assert run_state(run) == "SUCCEEDED"
    process = daemon.process_of(run_id, "only")
    assert (process.pid, process.exit_code) == (pid, 3)


def test_a_reader_that_does_not_read_does_not_hold_up_the_stop(daemon: Daemon) -> None:
    daemon.apply("name: loud\ndescription: x\nsteps: [{name: only, run: head -c 20000000 /dev/zero}]\n")
    run = daemon.run("loud")
    stuck = daemon.runs.StreamLogs(run_pb2.StreamLogsRequest(run_id=run.id), timeout=60)
    next(iter(stuck))
    assert daemon.process is not None
    began = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.wait() == 0
    assert time.monotonic() - began < DEADLINE
    daemon.start()


def test_a_second_signal_ends_it_at_once(daemon: Daemon) -> None:
    """While a stuck reader keeps it from stopping; nothing acknowledged depends on a clean end."""
    daemon.apply("name: loud2\ndescription: x\nsteps: [{name: only, run: head -c 20000000 /dev/zero}]\n")
    run = daemon.run("loud2")
    stuck = daemon.runs.StreamLogs(run_pb2.StreamLogsRequest(run_id=run.id), timeout=60)
    next(iter(stuck))
    assert daemon.process is not None
    before = stops(daemon)
    daemon.process.send_signal(signal.SIGTERM)
    wait_until(lambda: stops(daemon) > before, "it does not begin to stop")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.wait() == 1
    daemon.start()
    assert daemon.get_run(run.id) == run


def test_a_signal_while_it_starts_is_obeyed(tmp_path: Path) -> None:
    """At any moment of the start it ends by the signal or cleanly; it never stays, and leaves no spawner."""
    for share in (1, 3, 5):
        daemon = Daemon(tmp_path / "s")
        daemon.start(wait=False)
        assert daemon.process is not None
        try:
            daemon.process.wait(timeout=share * 0.15)
        except subprocess.TimeoutExpired:
            daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait() in (0, 1, -signal.SIGTERM)
        daemon.clear()
