"""Server-sent events: their text, and streams that several sources feed and that stay alive while nothing happens."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import StreamingResponse

from toban.gateway.problem_details import RefusedRequestError, problem_of
from toban.safe_text import json_text
from toban.sdk.errors import TobanError

MEDIA_TYPE: Final = "text/event-stream"
# Sooner than proxies give up.
_KEEP_ALIVE: Final = 15.0
_ROOM: Final = 64
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def event(data: Any, *, name: str = "", position: Any = None) -> bytes:
    """The text of one event. `position` becomes its id."""
    head = f"id: {_written(position)}\n" if position is not None else ""
    head += f"event: {name}\n" if name else ""
    # JSON has no line breaks of its own.
    return f"{head}data: {json_text(data)}\n\n".encode()


def resumed_position(request: Request) -> Any:
    """The position after which a stream goes on; None if it begins anew. Raises RefusedRequestError."""
    text = request.headers.get("Last-Event-ID", "") or request.query_params.get("position", "")
    if not text:
        return None
    try:
        found = json.loads(base64.urlsafe_b64decode(text))
        if not isinstance(found, dict):
            raise ValueError
    except (ValueError, binascii.Error, RecursionError):
        raise RefusedRequestError(422, "INVALID_POSITION", "Last-Event-ID must be the id of an event") from None
    return found


def streaming(source: AsyncGenerator[bytes, None]) -> StreamingResponse:
    """The response. An error of a call ends it with an event `error`, which has the problem details."""
    return StreamingResponse(_kept_alive(_with_errors(source)), headers=_HEADERS, media_type=MEDIA_TYPE)


async def merged(main: AsyncIterator[bytes], *others: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The events of all sources as they come. Ends with the first source; an error of any of them ends it too."""
    queue: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue(_ROOM)

    async def pump(source: AsyncIterator[bytes], *, is_main: bool) -> None:
        try:
            async for each in source:
                await queue.put(each)
        except TobanError as error:
            await queue.put(error)
        else:
            if is_main:
                await queue.put(None)

    tasks = [asyncio.create_task(pump(each, is_main=each is main)) for each in (main, *others)]
    try:
        while (found := await queue.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _with_errors(source: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(source):
        try:
            async for each in source:
                yield each
        except TobanError as error:
            yield event(json.loads(bytes(problem_of(error).body)), name="error")


async def _kept_alive(source: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """With a comment whenever nothing came for a while, so that a lost connection is noticed."""
    # The headers go out at once, and browsers come back within a second.
    yield b"retry: 1000\n\n"
    upcoming: asyncio.Task[bytes] | None = None
    try:
        while True:
            upcoming = upcoming or asyncio.ensure_future(anext(source))
            done, _ = await asyncio.wait((upcoming,), timeout=_KEEP_ALIVE)
            if not done:
                yield b":\n\n"
                continue
            try:
                made = upcoming.result()
            except StopAsyncIteration:
                return
            upcoming = None
            yield made
    finally:
        if upcoming is not None:
            upcoming.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                await upcoming
        await source.aclose()


def _written(position: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(position, separators=(",", ":")).encode()).decode()
