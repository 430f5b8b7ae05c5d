"""A channel to the daemon: calls that survive its restart, and streams that resume after it."""

from __future__ import annotations

import asyncio
import copy
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

import grpc
import grpc.aio

from toban.limits import MIB
from toban.sdk.address import Address
from toban.sdk.credentials import TlsFiles
from toban.sdk.endpoint import Endpoint
from toban.sdk.errors import NotFound, Refused, TobanError, Unreachable, from_rpc_error
from toban.sdk.origin import step_origin
from toban.sdk.token_source import GivenToken, TokenSource, token_source

_Request = TypeVar("_Request", contravariant=True)
_Response = TypeVar("_Response", covariant=True)
_Message = TypeVar("_Message")

# An older daemon may send larger messages than the current one.
_TAKEN_MOST: Final = 16 * MIB

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
# A busy daemon takes a while to accept a connection; a missing one is noticed at once.
_GREETED_WITHIN: Final = 10.0
# How long calls are tried before the first connection. A daemon that restarts is back within that time, usually.
_CONNECT_FOR: Final = 1.0
# A stream that lived this long was connected, even without a message.
_CONNECTED_AFTER: Final = 15.0

_OPTIONS: Final[tuple[tuple[str, str | int], ...]] = (
    ("grpc.max_receive_message_length", _TAKEN_MOST),
    # The daemon is never reached through a proxy.
    ("grpc.enable_http_proxy", 0),
    # Retries are done here, where it is known which calls may be repeated.
    ("grpc.enable_retries", 0),
    # Reconnect soon after a restart of the daemon.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Despite its name, this limits how long one connection attempt may take.
    ("grpc.min_reconnect_backoff_ms", int(_GREETED_WITHIN * 1000)),
)

# Of a socket the path would be the authority. With TLS it is the host, which the certificate must name.
_PLAIN_OPTIONS: Final = (*_OPTIONS, ("grpc.default_authority", "localhost"))

# Notices a peer that is gone. Servers refuse pings that come more often than every five minutes.
_TLS_OPTIONS: Final = (*_OPTIONS, ("grpc.keepalive_time_ms", 330_000), ("grpc.keepalive_timeout_ms", 20_000))

Metadata = tuple[tuple[str, str], ...]


class UnaryCall(Protocol[_Request, _Response]):
    """A stub's call with one answer."""

    def __call__(
        self,
        request: _Request,
        *,
        timeout: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> Awaitable[_Response]: ...


class ReconnectPatience:
    """Time limit for retries, counted from the first failure. Create a new one after each success."""

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
        # Jitter: the clients of a busy daemon must not all come back at once.
        delay = self._delay * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        await asyncio.sleep(min(delay, left))
        self._delay = min(self._delay * 2, _LONGEST_PAUSE)
        return True


class Connection:
    """A channel that is opened on first use, in the event loop of that use.

    Inside a step of the daemon, every call carries the attempt that it comes from.
    """

    def __init__(self, endpoint: Endpoint, *, timeout: float, retry_for: float, connect_for: float | None) -> None:
        self.address: Final[Address] = endpoint.address
        self._tls = endpoint.tls
        self._timeout = timeout
        self._retry_for = retry_for
        self._reached = False
        origin = step_origin(self.address)
        if connect_for is None:
            # The daemon that started this step exists: it comes back.
            connect_for = min(retry_for, _CONNECT_FOR) if origin is None else retry_for
        self._connect_for = connect_for
        self._origin: Metadata = origin.metadata if origin is not None else ()
        # A step is identified by its attempt, not by its user.
        self._token: TokenSource = token_source(endpoint.credentials, path=self.address.path if origin is None else "")
        self._channel: grpc.aio.Channel | None = None

    @property
    def channel(self) -> grpc.aio.Channel:
        """The channel; opens it if necessary."""
        if self._channel is None:
            target = self.address.target
            if self.address.tls:
                self._channel = grpc.aio.secure_channel(target, _tls_credentials(self._tls), options=_TLS_OPTIONS)
            else:
                # A socket, or loopback: nothing leaves this machine.
                self._channel = grpc.aio.insecure_channel(target, options=_PLAIN_OPTIONS)
        return self._channel

    def acting_for(self, token: str) -> Connection:
        """The same channel with another credential, for a program that makes calls for somebody else. It need not be
        closed, and retries nothing: errors go straight to the caller."""
        other = copy.copy(self)
        other._channel = self.channel
        other._token = GivenToken(token)
        other._origin = ()
        other._retry_for = other._connect_for = 0.0
        return other

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
        """Makes a repeatable call; retries it while the daemon is unavailable or too busy. Raises a TobanError.

        `repeated` is called before a retry of a call that may have been carried out. `within` replaces the time limit
        of one try, for slow calls.
        """
        patience = ReconnectPatience(self._retry_for if self._reached else self._connect_for)
        busy_patience = ReconnectPatience(self._retry_for)
        within = within or self._timeout
        renewed = False
        while True:
            token = await self._token.token()
            try:
                answer = await rpc(request, timeout=within, metadata=self._metadata(token))
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAUTHENTICATED and not renewed and self._token.renew(token):
                    # Refused before it was carried out.
                    renewed = True
                    continue
                failure = await self._failure(error, within)
                if failure.reason in _BUSY:
                    # Refused before it was carried out, so the next try is not a repeat.
                    if not await busy_patience.pause():
                        raise failure from None
                    continue
                again = error.code() is grpc.StatusCode.UNAVAILABLE and isinstance(failure, Unreachable)
                if not again or not await patience.pause():
                    raise failure from None
                if repeated is not None:
                    repeated()
            else:
                self._reached = True
                return answer

    async def delete(self, rpc: UnaryCall[_Request, _Response], request: _Request) -> None:
        """As `call`, for deletions: NotFound on a repeated try is no error."""
        tries = 1

        def repeated() -> None:
            nonlocal tries
            tries += 1

        try:
            await self.call(rpc, request, repeated=repeated)
        except NotFound:
            # The earlier try succeeded; only its answer was lost.
            if tries == 1:
                raise

    async def stream(
        self,
        open_stream: Callable[[Metadata], grpc.aio.UnaryStreamCall[Any, _Message]],
        *,
        ended: Callable[[bool], bool],
        reconnect: float,
    ) -> AsyncGenerator[_Message, None]:
        """Yields messages, reconnecting as often as needed; raises a TobanError.

        `open_stream` requests, with the metadata of the call, the messages after the last one that was yielded. `ended`
        is called with whether a stream closed normally, and returns whether all messages have arrived. `reconnect`
        limits the seconds without a connection.
        """
        patience = ReconnectPatience(reconnect if self._reached else min(reconnect, self._connect_for))
        clock = asyncio.get_running_loop().time
        renewed = False
        while True:
            opened_at = clock()
            token = await self._token.token()
            call = open_stream(self._metadata(token))
            try:
                async for message in call:
                    self._reached = True
                    renewed = False
                    patience = ReconnectPatience(reconnect)
                    yield message
                if ended(True):
                    return
                failure: TobanError = Unreachable("the daemon closed the stream before its end")
            except grpc.aio.AioRpcError as error:
                if ended(False):
                    return
                if error.code() is grpc.StatusCode.UNAUTHENTICATED and not renewed and self._token.renew(token):
                    renewed = True
                    continue
                failure = await self._failure(error)
                if error.code() not in _LOST and failure.reason not in _BUSY:
                    raise failure from None
            finally:
                call.cancel()
            if clock() - opened_at > _CONNECTED_AFTER:
                self._reached = True
                patience = ReconnectPatience(reconnect)
            if not await patience.pause():
                raise failure

    def _metadata(self, token: str) -> Metadata:
        return (*self._origin, ("authorization", f"Bearer {token}")) if token else self._origin

    async def _failure(self, error: grpc.aio.AioRpcError, within: float = 0) -> TobanError:
        """The exception for a failed call on this channel."""
        failure = from_rpc_error(error)
        if not isinstance(failure, Unreachable) or failure.reason:
            return failure
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unreachable(f"the daemon at {self.address.text} did not answer within {within or self._timeout:g} s")
        if self.address.host and error.code() is grpc.StatusCode.UNAVAILABLE:
            from toban.sdk.tls_probe import find_tls_problem  # rarely needed, and slow to load

            problem = await find_tls_problem(self.address, self._tls)
            if problem is not None:
                return problem
        return _no_answer(self.address, error)


# Reasons with which a busy daemon refuses a call for the moment.
_BUSY: Final = frozenset({"TOO_MANY_CALLS", "TOO_MANY_STREAMS"})

# Stream errors of a daemon that stops or is killed.
_LOST: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})


def _tls_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    ca = files.ca
    if not ca:
        from toban.sdk.tls_probe import system_ca  # slow to load

        ca = system_ca()
    return grpc.ssl_channel_credentials(ca or None, files.key or None, files.certificate or None)


def _no_answer(address: Address, error: grpc.aio.AioRpcError) -> TobanError:
    """With a short form of gRPC's long message."""
    path = address.path
    if path and os.path.exists(path) and not os.access(path, os.W_OK):
        return Refused(f"permission denied on the socket {path}")
    details = error.details() or ""
    if path and not os.path.exists(path):
        cause = "no such socket"
    elif "Connection refused" in details:
        cause = "nothing listens there"
    else:
        cause = details.rpartition(": ")[2] or "connection lost"
    return Unreachable(f"no daemon answers at {address.text}: {cause}")
