"""Followers that never read: the cost of each is bounded, and their memory is freed when they leave."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest

from helpers.daemon import Daemon, running_daemon
from helpers.wait import wait_until
from toban.v1 import run_pb2, run_pb2_grpc, system_pb2

FOLLOWERS = 200
LOG_BYTES = 100_000_000
OF_EACH = 256 * 1024
LEFT = 24 * 1024 * 1024
"""What may stay, whatever the number: caches, and the memory between blocks that are in use."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "s") as running:
        yield running


def resident(daemon: Daemon) -> int:
    for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


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
