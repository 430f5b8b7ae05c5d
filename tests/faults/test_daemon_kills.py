"""The daemon is killed with -9 again and again while it works. Nothing acknowledged may be lost, nothing run twice.

Every step appends its run, its name and its token to a witness file, which knows nothing of the daemon. Half of the
kills come from outside at random moments, the others at failpoints on both sides of what must be durable; in a part of
them the spawner dies too. The seed is printed; TOBAN_TEST_SEED repeats a run, TOBAN_TEST_KILLS sets its length.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import grpc
import pytest

from helpers.daemon import Daemon, running_daemon
from toban.v1 import run_pb2, run_pb2_grpc

KILLS = int(os.environ.get("TOBAN_TEST_KILLS", "200"))
SEED = int(os.environ.get("TOBAN_TEST_SEED", "20261116"))
FAILPOINTS = (
    "store.before_commit",
    "store.after_commit",
    "launch.before_send",
    "launch.after_send",
)
MOST_ACTIVE = 12
DAEMON_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)

CHAIN = """\
name: chain
description: six steps, one after the other
overlap: allow
defaults: {{env: {{WITNESS: {witness}}}}}
steps:
""" + "".join(
    f"""\
  - name: s{number}
    run: echo "$TOBAN_RUN_ID s{number} $TOBAN_ATTEMPT_TOKEN" >> "$WITNESS"{"; sleep 0.05" if number % 3 == 1 else ""}
"""
    for number in range(6)
)

DAG = (
    """\
name: dag
description: branches that meet again
overlap: allow
concurrency: 3
defaults: {{env: {{WITNESS: {witness}}}}}
steps:
  first:
    run: echo "$TOBAN_RUN_ID first $TOBAN_ATTEMPT_TOKEN" >> "$WITNESS"; echo one
"""
    + "".join(
        f"""\
  b{number}:
    depends_on: [first]
    run: echo "$TOBAN_RUN_ID b{number} $TOBAN_ATTEMPT_TOKEN" >> "$WITNESS"; sleep 0.0{number}; echo {number}
"""
        for number in range(4)
    )
    + """\
  last:
    depends_on: [b0, b1, b2, b3]
    run: echo "$TOBAN_RUN_ID last $TOBAN_ATTEMPT_TOKEN" >> "$WITNESS"; echo {{{{ steps.first.stdout }}}}
"""
)

STEPS = {"chain": {f"s{n}" for n in range(6)}, "dag": {"first", "b0", "b1", "b2", "b3", "last"}}


class Load:
    """Starts runs all the time, repeating a request under the same id until it is acknowledged."""

    def __init__(self, daemon: Daemon, rng: random.Random) -> None:
        self.acknowledged: dict[str, tuple[str, str]] = {}
        self._daemon = daemon
        self._rng = random.Random(rng.random())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                self._start_one()
                self._stop.wait(self._rng.uniform(0, 0.08))
        except BaseException as error:
            self.failure = error

    def _start_one(self) -> None:
        workflow = self._rng.choice(["chain", "dag"])
        request_id = str(uuid.UUID(int=self._rng.getrandbits(128)))
        request = run_pb2.StartRunRequest(workflow=workflow, request_id=request_id)
        while not self._stop.is_set():
            with grpc.insecure_channel(f"unix:{self._daemon.state_dir}/toban.sock") as channel:
                stub = run_pb2_grpc.RunServiceStub(channel)
                try:
                    active = stub.ListRuns(
                        run_pb2.ListRunsRequest(
                            states=[run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING]
                        ),
                        timeout=5,
                    )
                    if len(active.runs) >= MOST_ACTIVE:
                        self._stop.wait(0.02)
                        continue
                    run = stub.StartRun(request, timeout=5).run
                    self.acknowledged[run.id] = (workflow, request_id)
                    return
                except grpc.RpcError as error:
                    if error.code() not in DAEMON_GONE:
                        raise
                    self._stop.wait(0.01)


def kill_somehow(daemon: Daemon, rng: random.Random) -> str:
    """One death and one new life; how it died."""
    if rng.random() < 0.5:
        failpoint = f"{rng.choice(FAILPOINTS)}=kill@{rng.randint(1, 12)}"
        daemon.start({"TOBAN_FAILPOINTS": failpoint}, wait=False)
        if daemon.wait_serving():
            deadline = time.monotonic() + 1.0
            assert daemon.process is not None
            while daemon.process.poll() is None and time.monotonic() < deadline:
                signal.sigtimedwait([], 0.005)
        how = (
            failpoint
            if daemon.process is not None and daemon.process.poll() is not None
            else "late"
        )
    else:
        daemon.start()
        signal.sigtimedwait([], rng.uniform(0.0, 0.3))
        how = "outside"
    if rng.random() < 0.2 and daemon.process is not None and daemon.process.poll() is None:
        for spawner in daemon.children():
            os.kill(spawner, signal.SIGKILL)
        how += " and the spawner"
    daemon.kill()
    return how


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    rng = random.Random(SEED)
    witness = tmp_path / "witness"
    witness.touch()
    with running_daemon(tmp_path / "s") as daemon:
        daemon.apply(CHAIN.format(witness=witness))
        daemon.apply(DAG.format(witness=witness))
        load = Load(daemon, rng)
        load.start()
        ways: Counter[str] = Counter()
        try:
            daemon.kill()
            for _ in range(KILLS - 1):
                ways[kill_somehow(daemon, rng).partition("=")[0]] += 1
            daemon.start()
        finally:
            load.stop()
        runs = {run_id: daemon.wait_run(run_id, within=120) for run_id in load.acknowledged}
        check(daemon, load, runs, witness)
    print(f"{len(runs)} runs, {dict(ways)}")
    assert len(runs) >= KILLS / 4, "too little happened to prove anything"


def check(daemon: Daemon, load: Load, runs: dict[str, run_pb2.Run], witness: Path) -> None:
    seen: dict[str, list[tuple[str, str]]] = {}
    for line in witness.read_text().splitlines():
        run_id, step, token = line.split()
        seen.setdefault(run_id, []).append((step, token))
    listed: dict[str, run_pb2.Run] = {}
    token = ""
    while True:
        page = daemon.runs.ListRuns(run_pb2.ListRunsRequest(page_size=1000, page_token=token))
        listed |= {run.id: run for run in page.runs}
        token = page.next_page_token
        if not token:
            break
    assert set(load.acknowledged) <= set(listed), "an acknowledged run is missing"
    requests = [request_id for _, request_id in load.acknowledged.values()]
    assert len(requests) == len(set(requests)), "one request made two runs"
    for run_id, (workflow, _) in load.acknowledged.items():
        run, steps = runs[run_id], seen.get(run_id, [])
        states = {step.id: run_pb2.StepState.Name(step.state) for step in run.steps}
        assert run.state == run_pb2.RUN_STATE_SUCCEEDED, (run_id, run.error_message, states)
        counts = Counter(step for step, _ in steps)
        assert set(counts) == STEPS[workflow], f"run {run_id}: a step did not run: {counts}"
        assert max(counts.values()) == 1, f"run {run_id}: a step ran twice: {counts}"
        order = [step for step, _ in steps]
        if workflow == "chain":
            assert order == sorted(order)
        else:
            assert order[0] == "first"
            assert order[-1] == "last"
            assert daemon.log_of(run_id, "last")[run_pb2.LOG_STREAM_STDOUT] == b"one\n"
