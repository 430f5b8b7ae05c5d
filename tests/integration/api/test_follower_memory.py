"""Followers that read all, slowly, or never: the cost of each is bounded, and their memory is freed when they leave.

With TOBAN_TEST_LONG there are as many followers, and logs as large, as a busy machine may have.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import statistics
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest

from faults.settings import LONG
from helpers.daemon import Daemon, run_state, running_daemon
from helpers.processes import look_inside
from helpers.wait import wait_until
from toban.v1 import run_pb2, run_pb2_grpc, system_pb2

FOLLOWERS = 200
LOG_BYTES = 100_000_000
OF_EACH = 256 * 1024
READERS = 200 if LONG else 20
READ_LINES = 500_000 if LONG else 20_000
"""Of a hundred bytes."""
IDLE = 1000 if LONG else 200
IDLE_COST = 100 * 1024
SLOW_READS = 180 if LONG else 15
"""In each of two windows."""
SLOW_PAUSE = 1.0 if LONG else 0.12
FAST_READS = 70
FLAT = 512 * 1024
SLOWER = 1.2
LEFT = 24 * 1024 * 1024
"""What may stay, whatever the number: caches, and the memory between blocks that are in use."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "s", environment={"TOBAN_LIMITS_STREAMS_PER_IDENTITY": str(2 * IDLE)}) as running:
        yield running


def resident(daemon: Daemon, field: str = "VmRSS") -> int:
    for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {field}")


def settled(daemon: Daemon, followers: int) -> int:
    """The memory once it has stopped growing."""
    last = [0, 0]

    def steady() -> bool:
        # Each answer has passed by all streams that had something to do.
        for _ in range(20):
            daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=60)
        last.append(resident(daemon))
        return abs(last[-1] - last[-2]) < 256 * 1024 and abs(last[-1] - last[-3]) < 256 * 1024

    wait_until(steady, f"memory with {followers} followers", deadline=120)
    return last[-1]


def loud_run(daemon: Daemon, end: Path) -> str:
    """A run that has printed its log, and goes on."""
    printed = f"head -c {LOG_BYTES} /dev/zero | tr '\\0' x; echo done > {end}.printed; cat {end}"
    steps = [{"name": "only", "run": printed}]
    daemon.apply(json.dumps({"name": "loud", "description": "for a test", "steps": steps}))
    run_id = daemon.start_run("loud")
    wait_until(Path(f"{end}.printed").exists, "the log is printed", deadline=120)
    return run_id


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_followers_that_never_read_cost_little_and_leave_nothing(daemon: Daemon, tmp_path: Path) -> None:
    end = tmp_path / "end"
    os.mkfifo(end)
    run_id = loud_run(daemon, end)
    before = settled(daemon, 0)
    target = f"unix:{quote(f'{daemon.state_dir}/toban.sock')}"
    channels = [grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(4)]
    request = run_pb2.StreamLogsRequest(run_id=run_id, follow=True)
    streams = [run_pb2_grpc.RunServiceStub(channels[n % 4]).StreamLogs(request) for n in range(FOLLOWERS)]
    # The first message of each has come: all of them are being served.
    for stream in streams:
        assert next(stream).chunk.records
    with_them = settled(daemon, FOLLOWERS)
    for channel in channels:
        channel.close()
    assert (with_them - before) / FOLLOWERS <= OF_EACH
    wait_until(lambda: resident(daemon) <= before + LEFT, "memory of followers that have gone")
    daemon.cancel(run_id)
    daemon.wait_run(run_id)


PACED = """
import sys, time
lines, out = int(sys.argv[1]), sys.argv[2]
began = time.monotonic()
for first in range(0, lines, lines // 100):
    sys.stdout.write("".join(f"{n:099d}\\n" for n in range(first, first + lines // 100)))
    sys.stdout.flush()
    time.sleep(0.05)
open(out, "w").write(str(time.monotonic() - began))
"""


def apply_paced(daemon: Daemon, took: Path) -> None:
    step = {"job_type": "exec", "target": sys.executable, "args": ["-I", "-c", PACED, str(READ_LINES), str(took)]}
    daemon.apply(json.dumps({"name": "paced", "description": "for a test", "steps": {"only": step}}))


async def hashes(target: str, run_id: str) -> list[str]:
    """What each of the followers has read."""

    async def read(channel: grpc.aio.Channel) -> str:
        found = hashlib.sha256()
        request = run_pb2.StreamLogsRequest(run_id=run_id, follow=True)
        async for message in run_pb2_grpc.RunServiceStub(channel).StreamLogs(request, timeout=600):
            for record in message.chunk.records:
                found.update(record.data)
        return found.hexdigest()

    channels = [grpc.aio.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(4)]
    try:
        return await asyncio.gather(*(read(channels[number % 4]) for number in range(READERS)))
    finally:
        for channel in channels:
            await channel.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_followers_read_the_same_and_do_not_slow_the_step(daemon: Daemon, tmp_path: Path) -> None:
    target = f"unix:{quote(f'{daemon.state_dir}/toban.sock')}"
    took = tmp_path / "took"
    apply_paced(daemon, took)
    alone = []
    for _ in range(3):
        assert run_state(daemon.wait_run(daemon.start_run("paced"), 120)) == "SUCCEEDED"
        alone.append(float(took.read_text()))
    before = settled(daemon, 0)
    look_inside(daemon.pid)
    Path(f"/proc/{daemon.pid}/clear_refs").write_text("5")
    run_id = daemon.start_run("paced")
    found = asyncio.run(hashes(target, run_id))
    followed = float(took.read_text())
    cost = (resident(daemon, "VmHWM") - before) / READERS
    text = b"".join(b"%099d\n" % n for n in range(READ_LINES))
    print(f"{READERS} followers of {len(text)} bytes: {cost / 1024:.0f} KiB each, step {followed:.2f} s, {alone} alone")
    assert set(found) == {hashlib.sha256(text).hexdigest()}
    assert cost <= OF_EACH + LEFT / READERS
    assert followed <= SLOWER * statistics.median(alone) + 0.5


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_idle_followers_cost_little(daemon: Daemon, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    daemon.apply(json.dumps({"name": "idle", "description": "x", "steps": {"only": {"run": f"echo on; cat {gate}"}}}))
    run_id = daemon.start_run("idle")
    daemon.wait_started(run_id, "only")
    before = settled(daemon, 0)
    target = f"unix:{quote(f'{daemon.state_dir}/toban.sock')}"
    with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        request = run_pb2.StreamLogsRequest(run_id=run_id, follow=True)
        streams = [run_pb2_grpc.RunServiceStub(channel).StreamLogs(request) for _ in range(IDLE)]
        for stream in streams:
            assert next(stream).chunk.records
        cost = settled(daemon, IDLE) - before
    print(f"{IDLE} idle followers: {cost / IDLE / 1024:.0f} KiB each")
    assert cost <= IDLE * IDLE_COST
    daemon.cancel(run_id)
    daemon.wait_run(run_id)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_slow_reader_is_paced_from_disk(daemon: Daemon) -> None:
    """While the step goes on printing: what the reader has not taken is on disk, and not in memory.

    It reads fast first, so that it gets large pages, and then slowly: in the second window nothing grows any more.
    """
    script = "seq 1 5000000; while seq 1 2000; do sleep 0.02; done"
    daemon.apply(json.dumps({"name": "endless", "description": "x", "steps": {"only": {"run": script}}}))
    run_id = daemon.start_run("endless")
    stream = daemon.runs.StreamLogs(run_pb2.StreamLogsRequest(run_id=run_id, follow=True))
    next(stream)
    before = settled(daemon, 1)
    for _ in range(FAST_READS):
        next(stream)
    tick, windows = threading.Event(), list[int]()
    for _ in range(2):
        found = []
        for _ in range(SLOW_READS):
            next(stream)
            tick.wait(SLOW_PAUSE)
            found.append(resident(daemon) - before)
        windows.append(max(found))
    print(f"memory of one slow reader: {' and '.join(f'{most / 1024:.0f}' for most in windows)} KiB at most")
    assert windows[0] <= LEFT / 2
    assert windows[1] <= windows[0] + FLAT
    daemon.cancel(run_id)
    daemon.wait_run(run_id)
