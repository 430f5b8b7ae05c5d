"""Clients that leave in the middle of an answer: nothing of them stays behind, and the log has no error."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import grpc
import pytest

from helpers.daemon import Daemon
from helpers.processes import look_inside
from helpers.wait import wait_until
from toban.v1 import event_pb2, event_pb2_grpc, run_pb2, run_pb2_grpc

ROUNDS = 20
OF_EACH = 5


@pytest.fixture(scope="module")
def run_id(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A run with a long log that goes on."""
    end = tmp_path_factory.mktemp("fifo") / "end"
    os.mkfifo(end)
    printed = "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo all"
    steps = [{"name": "only", "run": f"{printed}; cat {end}"}]
    daemon.apply(json.dumps({"name": "abandoned", "description": "for a test", "steps": steps}))
    started = daemon.start_run("abandoned")
    request = run_pb2.StreamLogsRequest(run_id=started, follow=True)
    log = daemon.runs.StreamLogs(request, timeout=60)
    for message in log:
        if any(record.data.endswith(b"all\n") for record in message.chunk.records):
            break
    cast(Any, log).cancel()
    yield started
    daemon.cancel(started)
    daemon.wait_run(started)


def descriptors(daemon: Daemon) -> int:
    look_inside(daemon.pid)
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def errors(daemon: Daemon, start: int) -> list[str]:
    lines = daemon.log.read_bytes()[start:].decode().splitlines()
    return [line for line in lines if json.loads(line)["level"] in ("error", "warning")]


def leave(daemon: Daemon, run_id: str) -> None:
    """Opens streams on a connection of its own, reads a little of some, and closes it."""
    target = f"unix:{quote(f'{daemon.state_dir}/toban.sock')}"
    channel = grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)])
    runs, events = run_pb2_grpc.RunServiceStub(channel), event_pb2_grpc.EventServiceStub(channel)
    calls: list[Callable[[], Any]] = [
        lambda: runs.StreamLogs(run_pb2.StreamLogsRequest(run_id=run_id, follow=True)),
        lambda: runs.WatchRun(run_pb2.WatchRunRequest(id=run_id)),
        lambda: runs.WatchRuns(run_pb2.WatchRunsRequest()),
        lambda: events.WatchEvents(event_pb2.WatchEventsRequest()),
    ]
    streams = [call() for call in calls for _ in range(OF_EACH)]
    for stream in streams[::2]:
        next(stream)
    streams[0].cancel()
    with contextlib.suppress(grpc.RpcError):
        runs.ListRuns(run_pb2.ListRunsRequest(), timeout=0.001)
    channel.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_streams_that_clients_leave_cost_nothing_and_are_no_errors(daemon: Daemon, run_id: str) -> None:
    leave(daemon, run_id)
    start = daemon.log.stat().st_size
    before = descriptors(daemon)
    for _ in range(ROUNDS):
        leave(daemon, run_id)
    wait_until(lambda: descriptors(daemon) <= before + 2, "descriptors of abandoned streams")
    assert errors(daemon, start) == []
