"""Thousands of calls at once: each gets a true answer, or is refused with a reason."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from urllib.parse import quote

import grpc
import pytest

from helpers.daemon import Daemon
from toban.sdk import Client
from toban.sdk.errors import from_rpc_error
from toban.v1 import run_pb2, run_pb2_grpc, system_pb2, system_pb2_grpc

CALLS = 5000
CALL_WITHIN = 120.0
CONTROL_WITHIN = 30.0
"""Generous, since the client floods from the same few processors; not answered at all is what would be wrong."""


def channel(daemon: Daemon) -> grpc.aio.Channel:
    """One with a connection of its own."""
    target = f"unix:{quote(f'{daemon.state_dir}/toban.sock')}"
    return grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])


async def answer(stub: run_pb2_grpc.RunServiceStub) -> str:
    try:
        await stub.GetRun(run_pb2.GetRunRequest(id="none"), timeout=CALL_WITHIN)  # type: ignore[misc]
    except grpc.aio.AioRpcError as error:
        reason = from_rpc_error(error).reason
        return f"{error.code().name} {reason}"
    return "OK"


async def flood(daemon: Daemon, connections: int) -> tuple[Counter[str], int]:
    """The answers by code; and how many control calls were answered meanwhile."""
    channels = [channel(daemon) for _ in range(connections)]
    stubs = [run_pb2_grpc.RunServiceStub(each) for each in channels]
    other = channel(daemon)
    system = system_pb2_grpc.SystemServiceStub(other)
    answered = 0

    async def control() -> None:
        nonlocal answered
        while True:
            await system.GetInfo(system_pb2.GetInfoRequest(), timeout=CONTROL_WITHIN)
            answered += 1

    controlling = asyncio.create_task(control())
    codes = await asyncio.gather(*(answer(stubs[n % connections]) for n in range(CALLS)))
    controlling.cancel()
    ended = await asyncio.gather(controlling, return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError), ended
    for each in (*channels, other):
        await each.close()
    return Counter(codes), answered


@pytest.mark.parametrize("connections", [1, 10])
def test_five_thousand_calls_at_once_get_answers(daemon: Daemon, connections: int) -> None:
    codes, answered = asyncio.run(flood(daemon, connections))
    assert set(codes) <= {"NOT_FOUND RUN_NOT_FOUND", "RESOURCE_EXHAUSTED TOO_MANY_CALLS"}, codes
    assert codes["NOT_FOUND RUN_NOT_FOUND"] >= 1000
    assert answered


def test_the_sdk_gets_all_of_its_many_calls_done(daemon: Daemon) -> None:
    steps = [{"name": "only", "run": "true"}]
    daemon.apply(json.dumps({"name": "idle", "description": "for a test", "steps": steps}))

    async def read() -> Sequence[str]:
        async with Client(daemon.socket, timeout=CALL_WITHIN) as client:
            found = await asyncio.gather(*(client.get_workflow("idle") for _ in range(3000)))
        return [each.name for each in found]

    assert asyncio.run(read()) == ["idle"] * 3000
