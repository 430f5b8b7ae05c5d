"""Clients that behave badly, as programs: `python -m faults.bad_clients KIND ADDRESS [ARGUMENT]`.

Each says `ready` when it is at work, goes on until its standard input is closed, and then prints what it saw as JSON.
They are processes of their own: their work must not slow down whoever measures the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc

from faults.raw_http2 import PREFACE, RawConnection, headers, request, settings
from toban.v1 import (
    event_pb2,
    event_pb2_grpc,
    run_pb2,
    run_pb2_grpc,
    system_pb2,
    system_pb2_grpc,
    workflow_pb2,
    workflow_pb2_grpc,
)

PARSERS = 8
PARSED_WITHIN = 2.0
LISTERS = 100
FOLLOWERS = 100
SILENT_FOLLOWERS = 500
IDLERS = 500
STALLED_EACH = 20
EMITTERS = 16
CLOSED_WITHIN = 10.0
CALLS = 5000
_BOMB_BYTES = 1_200_000
_UNLIMITED = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]

stop = threading.Event()
seen: Counter[str] = Counter()


def merge_bomb() -> str:
    """A mapping of many keys, merged many times over: small to send, and enormous to expand."""
    keys = ",".join(f"k{number}: 1" for number in range(40_000))
    head = f"name: bomb\ndescription: x\nx-a: &a {{{keys}}}\n"
    merged = "*a," * ((_BOMB_BYTES - len(head)) // 3)
    return f"{head}x-b: {{<<: [{merged}*a]}}\nsteps: [{{name: s, run: 'true'}}]\n"


def _noted(call: Callable[[], Any]) -> None:
    try:
        call()
        seen["OK"] += 1
    except grpc.RpcError as error:
        seen[error.code().name] += 1


def _threads(count: int, work: Callable[[grpc.Channel], None], address: str) -> None:
    """So many clients, each with a connection of its own, doing the same again and again."""

    def client() -> None:
        with grpc.insecure_channel(address, _UNLIMITED) as channel:
            while not stop.is_set():
                work(channel)

    threads = [threading.Thread(target=client) for _ in range(count)]
    for thread in threads:
        thread.start()
    _say_ready_and_wait()
    for thread in threads:
        thread.join()


def parsers(address: str, _argument: str) -> None:
    """Eight clients that have a merge bomb validated, and give up."""
    bomb = merge_bomb()
    request = workflow_pb2.ValidateWorkflowRequest(definition=workflow_pb2.Definition(source=bomb))

    def validate(channel: grpc.Channel) -> None:
        stub = workflow_pb2_grpc.WorkflowServiceStub(channel)
        _noted(lambda: stub.ValidateWorkflow(request, timeout=PARSED_WITHIN))

    _threads(PARSERS, validate, address)


def listers(address: str, _argument: str) -> None:
    """A hundred clients that list all runs at once, and again."""
    request = run_pb2.ListRunsRequest(page_size=1000)

    def list_runs(channel: grpc.Channel) -> None:
        stub = run_pb2_grpc.RunServiceStub(channel)
        _noted(lambda: stub.ListRuns(request, timeout=60.0))

    _threads(LISTERS, list_runs, address)


def followers(address: str, run_id: str) -> None:
    """A hundred clients that follow a log and never read a byte of it."""
    request = run_pb2.StreamLogsRequest(run_id=run_id, follow=True)
    with contextlib.ExitStack() as stack:
        streams = []
        for _ in range(FOLLOWERS):
            channel = stack.enter_context(grpc.insecure_channel(address, _UNLIMITED))
            streams.append(run_pb2_grpc.RunServiceStub(channel).StreamLogs(request))
        seen["streams"] = len(streams)
        _say_ready_and_wait()
        for stream in streams:
            stream.cancel()


def silent_followers(address: str, run_id: str) -> None:
    """Five hundred streams that are never read, over ten connections."""
    request = run_pb2.StreamLogsRequest(run_id=run_id, follow=True)
    with contextlib.ExitStack() as stack:
        channels = [stack.enter_context(grpc.insecure_channel(address, _UNLIMITED)) for _ in range(10)]
        stubs = [run_pb2_grpc.RunServiceStub(channel) for channel in channels]
        streams = [stubs[number % len(stubs)].StreamLogs(request) for number in range(SILENT_FOLLOWERS)]
        _say_ready_and_wait()
        seen["open"] = sum(stream.is_active() for stream in streams)
        for stream in streams:
            stream.cancel()


def idlers(address: str, _argument: str) -> None:
    """Five hundred connections without a call."""
    path = address.removeprefix("unix:")
    connections = [RawConnection(path, PREFACE + settings()) for _ in range(IDLERS)]
    _say_ready_and_wait()
    seen["closed"] = sum(each.is_closed(CLOSED_WITHIN) for each in connections)


def half_open(address: str, _argument: str) -> None:
    """Connections that fall silent anywhere: in the preface, in a frame, before the request, before the answer.

    For each that the daemon ends, or whose call it ends, there is a new one.
    """
    get, listed = "/toban.v1.RunService/GetRun", "/toban.v1.SystemService/GetConfig"
    begun = PREFACE + settings()
    whole = request(run_pb2.GetRunRequest(id="none").SerializeToString())
    stalls = {
        "nothing": b"",
        "part of the preface": PREFACE[:10],
        "the preface alone": PREFACE,
        "part of a frame": begun + headers(get)[:20],
        "no request": begun + headers(get),
        "part of a request": begun + headers(get) + whole[:-2],
        "no room for the answer": PREFACE + settings(window=0) + headers(listed) + request(b""),
    }
    path = address.removeprefix("unix:")
    connections = [(name, RawConnection(path, sent)) for name, sent in stalls.items() for _ in range(STALLED_EACH)]

    def open_again() -> None:
        while not stop.wait(0.05):
            for index, (name, each) in enumerate(connections):
                if each.is_closed(0) or b"did not arrive" in each.received:
                    each.close()
                    connections[index] = name, RawConnection(path, stalls[name])
                    seen["again"] += 1

    again = threading.Thread(target=open_again)
    again.start()
    _say_ready_and_wait()
    again.join()
    for name, each in connections:
        seen[f"closed: {name}"] += each.is_closed(CLOSED_WITHIN)


def emitters(address: str, _argument: str) -> None:
    """Events as fast as sixteen clients can emit them."""

    def emit(channel: grpc.Channel) -> None:
        stub = event_pb2_grpc.EventServiceStub(channel)
        _noted(lambda: stub.EmitEvent(event_pb2.EmitEventRequest(type="storm"), timeout=60.0))

    _threads(EMITTERS, emit, address)


def callers(address: str, _argument: str) -> None:
    """Five thousand calls at once on one channel, and again."""
    asyncio.run(_call_all(address))


async def _call_all(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = system_pb2_grpc.SystemServiceStub(channel)

        async def call() -> None:
            try:
                await stub.GetInfo(system_pb2.GetInfoRequest(), timeout=120.0)
                seen["OK"] += 1
            except grpc.aio.AioRpcError as error:
                seen[error.code().name] += 1
                seen[f"details {error.details()}"] += 1

        waiting = threading.Thread(target=_say_ready_and_wait)
        waiting.start()
        while True:
            await asyncio.gather(*(call() for _ in range(CALLS)))
            seen["rounds"] += 1
            if stop.is_set():
                break
        waiting.join()


def _say_ready_and_wait() -> None:
    print("ready", flush=True)
    sys.stdin.read()
    stop.set()


KINDS = {
    each.__name__: each
    for each in (parsers, listers, followers, silent_followers, idlers, half_open, emitters, callers)
}


def main() -> None:
    kind, address = sys.argv[1:3]
    KINDS[kind](address, *(sys.argv[3:] or [""]))
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
