"""The floor of the followed log: a file that is filled through a pipe, tailed, and streamed by a minimal gRPC server.

    log_floor serve SOCKET SOURCE TARGET CHUNK    fills TARGET and streams it once, CHUNK bytes at most at a time
    log_floor follow SOCKET SOURCE                receives it; prints the seconds from the call to the last byte

No frames, no checksums, no messages: bytes as they are. Both ends are processes of their own, as a daemon and its
client are.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the floors need posix_spawn and pipes")

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from scripts.lib.bench.log_follow import follow

METHOD = "Follow"
SERVICE = "floor"
LOOK_AGAIN = 0.0005
END_WITHIN = 60.0
_FLOORS = str(Path(__file__).with_name("floors.py"))


async def serve(socket: str, source: str, target: str, chunk: int) -> None:
    filler = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        _FLOORS,
        "fill",
        source,
        target,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert filler.stdin is not None
    assert filler.stdout is not None
    await filler.stdout.readline()
    begin = filler.stdin
    size = os.stat(source).st_size
    tailed = os.open(target, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    done = asyncio.Event()

    async def stream(_request: bytes, _context: object) -> AsyncIterator[bytes]:
        begin.write(b"\n")
        async for data in _tail(tailed, size, chunk):
            yield data
        done.set()

    handler: Any = grpc.unary_stream_rpc_method_handler(stream)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    print("ready", flush=True)
    await done.wait()
    await filler.wait()
    # The last piece may still be on its way to a slow follower.
    await server.stop(END_WITHIN)


async def _tail(fd: int, size: int, chunk: int) -> AsyncIterator[bytes]:
    offset = 0
    while offset < size:
        data = os.pread(fd, chunk, offset)
        if data:
            offset += len(data)
            yield data
        else:
            await asyncio.sleep(LOOK_AGAIN)


async def receive(socket: str, source: str) -> float:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        await channel.channel_ready()
        call: Any = channel.unary_stream(f"/{SERVICE}/{METHOD}", None, None)
        began = time.perf_counter()
        return await follow(call(b""), source) - began


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", socket, source, target, chunk]:
            asyncio.run(serve(socket, source, target, int(chunk)))
        case ["follow", socket, source]:
            print(asyncio.run(receive(socket, source)))
        case _:
            raise SystemExit(__doc__)
