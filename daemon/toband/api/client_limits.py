"""Limits of what clients may take: connections, calls per second, failed logins, and the patience with slow clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from toband.api.request_errors import SlowClientError
from toband.config import ServerLimits
from toband.domain.identity import Identity, IdentityKind
from toband.engine.access.call_rates import CallRates
from toband.engine.access.failed_logins import FailedLogins, source_of
from toband.engine.errors import CredentialReason, InvalidCredentialError

PENDING_MOST = 20_000
"""Beyond its own limit gRPC ends calls with a bare CANCELLED; only `Lanes` should refuse calls."""
_KEEPALIVE_ANSWER = 20.0
T = TypeVar("T")
_GUESSES = frozenset({CredentialReason.INVALID, CredentialReason.EXPIRED, CredentialReason.REVOKED})


class ClientLimits:
    """Belongs to the event loop."""

    def __init__(self, limits: ServerLimits, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._logins = FailedLogins(limits.failed_logins)
        self._rates = CallRates(rate=limits.request_rate, burst=limits.request_burst)
        self._limits = limits

    def use(self, limits: ServerLimits) -> None:
        """Replaces the limits. Failed logins are not forgotten."""
        self._logins.free = limits.failed_logins
        if (limits.request_rate, limits.request_burst) != (self._limits.request_rate, self._limits.request_burst):
            self._rates = CallRates(rate=limits.request_rate, burst=limits.request_burst)
        self._limits = limits

    @property
    def failed_logins(self) -> int:
        """Failures of a source that have no consequences."""
        return self._limits.failed_logins

    async def identified(self, peer: str, presented: bool, identify: Callable[[], Awaitable[Identity]]) -> Identity:
        """The identity of a caller. `presented`: it has a credential, which the source may not guess.

        A source that has to wait gets no answer to further guesses, but a valid credential is served: many
        clients may have one address, and none can lock out the others.
        A local socket is no source: its callers have proved that they may open it.
        Raises TooManyFailuresError, RateExceededError, and what `identify` raises.
        """
        source = source_of(peer) if presented else ""
        try:
            identity = await identify()
        except InvalidCredentialError as error:
            if source and error.reason in _GUESSES:
                self._logins.check(source, self._monotonic())
                self._logins.failed(source, self._monotonic())
            raise
        # Callers of a socket without a credential are many under one name.
        if identity.kind is not IdentityKind.SOCKET:
            self._rates.check(identity.name, self._monotonic())
        return identity

    async def sent(self, reading: Awaitable[T]) -> T:
        """What the client sends of its call. Raises SlowClientError."""
        try:
            async with asyncio.timeout(self._limits.client_time):
                return await reading
        except TimeoutError:
            raise SlowClientError(self._limits.client_time) from None

    def taking(self, task: asyncio.Task[Any]) -> None:
        """Ends the task of a call whose client does not take its answer in time."""
        timer = asyncio.get_running_loop().call_later(self._limits.client_time, task.cancel)
        task.add_done_callback(lambda _: timer.cancel())


def server_options(limits: ServerLimits) -> list[tuple[str, int]]:
    """Options of a gRPC server. gRPC limits connections by address of the daemon, not by that of the client."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.message_size),
        ("grpc.server.max_pending_requests", PENDING_MOST),
        ("grpc.http2.write_buffer_size", 1024),
        ("grpc.server.max_pending_requests_hard_limit", PENDING_MOST),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.server_handshake_timeout_ms", _ms(limits.handshake_time)),
        ("grpc.max_connection_idle_ms", _ms(limits.connection_idle)),
        ("grpc.keepalive_time_ms", _ms(limits.keepalive)),
        ("grpc.keepalive_timeout_ms", _ms(min(limits.keepalive, _KEEPALIVE_ANSWER))),
        ("grpc.http2.ping_timeout_ms", _ms(min(limits.keepalive, _KEEPALIVE_ANSWER))),
    ]


def _ms(seconds: float) -> int:
    return min(2**31 - 1, max(1, round(seconds * 1000)))
