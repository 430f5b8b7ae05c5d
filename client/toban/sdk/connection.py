"""One channel to the daemon: calls that survive a restart of it, and streams that go on where they stopped."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

import grpc
import grpc.aio

from toban.limits import MIB
from toban.sdk.address import Address
from toban.sdk.errors import NotFound, Refused, TobanError, Unreachable, from_rpc_error
from toban.sdk.origin import step_origin

_Request = TypeVar("_Request", contravariant=True)
_Response = TypeVar("_Response", covariant=True)
_Message = TypeVar("_Message")

# An older daemon may send more than today's.
_TAKEN_MOST: Final = 16 * MIB

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
# A busy daemon takes a while to greet; one that is not there is known at once.
_GREETED_WITHIN: Final = 10.0
# A stream that lived this long was connected, even if nothing came.
_CONNECTED_AFTER: Final = 15.0

_OPTIONS: Final[tuple[tuple[str, str | int], ...]] = (
    ("grpc.max_receive_message_length", _TAKEN_MOST),
    # Only ever a socket or loopback: no proxy has a part in it.
    ("grpc.enable_http_proxy", 0),
    ("grpc.default_authority", "localhost"),
    # Retrying is done here, where it is known which call may be repeated.
    ("grpc.enable_retries", 0),
    # A restarted daemon is found again soon.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Unlike its name: how long one connection may take.
    ("grpc.min_reconnect_backoff_ms", int(_GREETED_WITHIN * 1000)),
)


class UnaryCall(Protocol[_Request, _Response]):
    """A call of a stub with one answer."""

    def __call__(
        self,
        request: _Request,
        *,
        timeout: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> Awaitable[_Response]: ...


class ReconnectPatience:
    """How long to go on trying, counted from the first failure. Every success deserves a new one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline: float | None = None
        self._delay = _FIRST_PAUSE

    async def pause(self) -> bool:
        """Waits before the next try; False when the time is up."""
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._seconds
        left = self._deadline - now
        if left <= 0:
            return False
        # Not all clients of a busy daemon come back at the same moment.
        delay = self._delay * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        await asyncio.sleep(min(delay, left))
        self._delay = min(self._delay * 2, _LONGEST_PAUSE)
        return True


class Connection:
    """A channel that is opened by its first use, in the event loop of that use.

    Inside of a step of the daemon every call tells which one it is from.
    """

    def __init__(self, address: Address, *, timeout: float, retry_for: float, connect_for: float) -> None:
        self.address: Final = address
        self._timeout = timeout
        self._retry_for = retry_for
        self._connect_for = connect_for
        self._reached = False
        origin = step_origin(address)
        self._metadata = origin.metadata if origin is not None else ()
        self._channel: grpc.aio.Channel | None = None

    @property
    def channel(self) -> grpc.aio.Channel:
        """The channel, opened if need be."""
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self.address.target, options=_OPTIONS)
        return self._channel

    async def close(self) -> None:
        """Closes the channel and ends every stream on it. May be repeated."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)

    async def call(
        self,
        rpc: UnaryCall[_Request, _Response],
        request: _Request,
        *,
        repeated: Callable[[], None] | None = None,
        within: float | None = None,
    ) -> _Response:
        """Makes a call that may be repeated, again if the daemon is away or too busy for a while; raises a TobanError.

        `repeated` is told when the call is made once more, and may have been carried out before. `within` is for a
        call that may well take longer than others.
        """
        patience = ReconnectPatience(self._retry_for if self._reached else self._connect_for)
        busy_patience = ReconnectPatience(self._retry_for)
        within = within or self._timeout
        while True:
            try:
                answer = await rpc(request, timeout=within, metadata=self._metadata)
            except grpc.aio.AioRpcError as error:
                failure = self.failure(error, within)
                if failure.reason in _BUSY:
                    # Refused before anything was done for it: this is not a repeat.
                    if not await busy_patience.pause():
                        raise failure from None
                    continue
                if error.code() is not grpc.StatusCode.UNAVAILABLE or not await patience.pause():
                    raise failure from None
                if repeated is not None:
                    repeated()
            else:
                self._reached = True
                return answer

    async def delete(self, rpc: UnaryCall[_Request, _Response], request: _Request) -> None:
        """As `call`, for what must be there to be deleted: that it is gone by the second try is no error."""
        tries = 1

        def repeated() -> None:
            nonlocal tries
            tries += 1

        try:
            await self.call(rpc, request, repeated=repeated)
        except NotFound:
            # The answer to an earlier try was lost, not the try.
            if tries == 1:
                raise

    async def stream(
        self,
        open_stream: Callable[[], grpc.aio.UnaryStreamCall[Any, _Message]],
        *,
        ended: Callable[[bool], bool],
        reconnect: float,
    ) -> AsyncGenerator[_Message, None]:
        """Yields messages over as many connections as it takes; raises a TobanError.

        `open_stream` asks for what follows the last message that was yielded. `ended` is told whether a
        stream closed in good order and says whether everything has come. `reconnect` bounds the seconds
        without a connection.
        """
        patience = ReconnectPatience(reconnect if self._reached else min(reconnect, self._connect_for))
        clock = asyncio.get_running_loop().time
        while True:
            opened_at = clock()
            call = open_stream()
            try:
                async for message in call:
                    self._reached = True
                    patience = ReconnectPatience(reconnect)
                    yield message
                if ended(True):
                    return
                failure: TobanError = Unreachable("the daemon closed the stream before its end")
            except grpc.aio.AioRpcError as error:
                if ended(False):
                    return
                failure = self.failure(error)
                if error.code() not in _LOST and failure.reason not in _BUSY:
                    raise failure from None
            finally:
                call.cancel()
            if clock() - opened_at > _CONNECTED_AFTER:
                self._reached = True
                patience = ReconnectPatience(reconnect)
            if not await patience.pause():
                raise failure

    def failure(self, error: grpc.aio.AioRpcError, within: float = 0) -> TobanError:
        """The exception that stands for a failed call on this channel."""
        failure = from_rpc_error(error)
        if not isinstance(failure, Unreachable) or failure.reason:
            return failure
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unreachable(f"the daemon at {self.address.text} did not answer within {within or self._timeout:g} s")
        path = self.address.path
        if path and os.path.exists(path) and not os.access(path, os.W_OK):
            return Refused(f"permission denied on the socket {path}")
        return Unreachable(f"no daemon answers at {self.address.text}: {_cause(error, path)}")


# The reasons of a daemon that has too much to do at this moment.
_BUSY: Final = frozenset({"TOO_MANY_CALLS", "TOO_MANY_STREAMS"})

# What a stream sees of a daemon that stops or is killed.
_LOST: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})


def _cause(error: grpc.aio.AioRpcError, path: str) -> str:
    """A few words of gRPC's own paragraph."""
    if path and not os.path.exists(path):
        return "no such socket"
    details = error.details() or ""
    if "Connection refused" in details:
        return "nobody listens there"
    return details.rpartition(": ")[2] or "connection lost"
