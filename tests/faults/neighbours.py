"""Bad neighbours: their attacks on a daemon, and the delays that another client sees."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import grpc

from helpers.daemon import CALL_WITHIN, Daemon
from helpers.processes import look_inside
from helpers.wait import wait_until
from toban.v1 import run_pb2

QUIET = "quiet"
_QUIET_WORKFLOW = """\
name: quiet
description: x
overlap: allow
params: {n: {type: integer, default: 1}}
steps: [{name: only, run: "echo hello {{ params.n }}", when: params.n > 0}]
"""
SAMPLES = 9
EVERY = 0.4
"""Seconds between the beginnings of two samples: they do not wait for each other, so a pause of the daemon meets all
that begin during it, and not one."""
PATIENCE = 45.0
"""Seconds for one sample: beyond it the other client is stopped, and not merely slow."""
TIMES = 10.0
FLOOR = 2.0
"""Seconds that are always allowed: on a busy machine the quiet latency itself varies that much."""
ENDS_WITHIN = 30.0


class Neighbour:
    """Another client of the daemon, with a connection of its own: from StartRun to the first output of its step."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        daemon.apply(_QUIET_WORKFLOW)
        self.sample()  # the first one warms up
        self.quiet = statistics.median(self.sample() for _ in range(SAMPLES))

    def sample(self) -> float:
        began = time.monotonic()
        request = run_pb2.StartRunRequest(workflow=QUIET)
        run_id = self._daemon.runs.StartRun(request, timeout=PATIENCE).run.id
        follow = run_pb2.StreamLogsRequest(run_id=run_id, follow=True)
        left = max(0.1, PATIENCE - (time.monotonic() - began))
        for message in self._daemon.runs.StreamLogs(follow, timeout=left):
            if message.chunk.records:
                return time.monotonic() - began
        raise AssertionError("the run ended without its output")

    def samples(self) -> list[float]:
        """One that is not answered took all its time."""

        def take(number: int) -> None:
            wait_until(lambda: time.monotonic() >= began + number * EVERY, "", PATIENCE)
            try:
                found.append(self.sample())
            except grpc.RpcError as error:
                print(f"not answered: {error.code()} {error.details()}")
                found.append(PATIENCE)

        found: list[float] = []
        began = time.monotonic()
        threads = [threading.Thread(target=take, args=[number]) for number in range(SAMPLES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def expect_served(self, attack: str) -> None:
        """While the attack goes on the median stays within ten times the quiet one."""
        taken = self.samples()
        median = statistics.median(taken)
        allowed = max(TIMES * self.quiet, FLOOR)
        shown = ", ".join(f"{each * 1000:.0f}" for each in taken)
        print(
            f"{attack}: quiet {self.quiet * 1000:.0f} ms, attacked {median * 1000:.0f} ms "
            f"(allowed {allowed * 1000:.0f}): {shown}"
        )
        assert median <= allowed, f"{attack}: {median:.2f} s, quiet {self.quiet:.3f} s"


class BadClient:
    """A process of `faults.bad_clients`."""

    def __init__(self, kind: str, daemon: Daemon, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        address = f"unix:{daemon.state_dir}/toban.sock"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faults.bad_clients", kind, address, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def stop(self) -> Counter[str]:
        """What it saw."""
        output, _ = self._process.communicate(timeout=2 * CALL_WITHIN)
        assert self._process.returncode == 0
        return Counter(json.loads(output))

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def bad_client(kind: str, daemon: Daemon, *arguments: str) -> Iterator[BadClient]:
    client = BadClient(kind, daemon, *arguments)
    try:
        yield client
    finally:
        client.end()


@contextlib.contextmanager
def again_and_again(
    daemon: Daemon, workflow: str, *, at_once: int, params: Mapping[str, str] | None = None
) -> Iterator[list[str]]:
    """As many runs of a workflow under way at all times; the ids of those that were started."""
    started: list[str] = []
    stop = threading.Event()

    def one_after_the_other() -> None:
        while not stop.is_set():
            with contextlib.suppress(grpc.RpcError):
                run_id = daemon.start_run(workflow, **(params or {}))
                started.append(run_id)
                watched = daemon.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id))
                watching.append(watched)
                for _ in watched:
                    pass

    watching: list[grpc.Call] = []
    threads = [threading.Thread(target=one_after_the_other) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(started) >= at_once, "the attack does not begin", CALL_WITHIN)
        yield started
    finally:
        stop.set()
        for thread in threads:
            # One that was about to watch another run begins to do so after the others were cancelled.
            while thread.is_alive():
                for watched in list(watching):
                    watched.cancel()
                thread.join(0.1)


def expect_cancelled(daemon: Daemon, run_ids: Sequence[str], attack: str, within: float = ENDS_WITHIN) -> None:
    """A cancel is answered, and ends each run."""
    began = time.monotonic()
    for run_id in run_ids:
        with ended_already():
            daemon.runs.CancelRun(run_pb2.CancelRunRequest(id=run_id), timeout=within)
    for run_id in run_ids:
        daemon.wait_run(run_id, within=within)
    print(f"{attack}: {len(run_ids)} cancelled in {time.monotonic() - began:.2f} s")


@contextlib.contextmanager
def ended_already() -> Iterator[None]:
    """A bad run may have been refused or have failed by itself before it could be cancelled."""
    try:
        yield
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
            raise


class Memory:
    """The largest resident size of the daemon since it was asked to look."""

    def __init__(self, daemon: Daemon) -> None:
        self._pid = daemon.pid
        look_inside(self._pid)
        # The kernel starts counting anew.
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")

    def peak(self) -> int:
        return self._field("VmHWM")

    def now(self) -> int:
        return self._field("VmRSS")

    def _field(self, name: str) -> int:
        for line in Path(f"/proc/{self._pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"the kernel does not say {name}")
