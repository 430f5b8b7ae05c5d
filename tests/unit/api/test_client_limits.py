"""Limits of clients: rates, failed logins, and clients that do not send or take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from toband.api.client_limits import ClientLimits, server_options
from toband.api.request_errors import SlowClientError
from toband.config import ServerLimits
from toband.domain.identity import Identity, IdentityKind, Role
from toband.engine.errors import CredentialReason, InvalidCredentialError, RateExceededError, TooManyFailuresError

REMOTE = "ipv4:10.0.0.7:4711"
ELSEWHERE = "ipv4:10.0.0.8:4711"
TOKEN = Identity(name="token:ci", kind=IdentityKind.TOKEN, role=Role.VIEWER)
SOCKET = Identity(name="socket:toban.sock", kind=IdentityKind.SOCKET, role=Role.EDITOR)
Identify = Callable[[], Awaitable[Identity]]


def proving(identity: Identity) -> Identify:
    async def identify() -> Identity:
        return identity

    return identify


def failing(reason: CredentialReason) -> Identify:
    async def identify() -> Identity:
        raise InvalidCredentialError("no", reason)

    return identify


async def guess(limits: ClientLimits, peer: str, reason: CredentialReason = CredentialReason.INVALID) -> None:
    with pytest.raises(InvalidCredentialError):
        await limits.identified(peer, True, failing(reason))


async def test_a_source_that_guesses_has_to_wait_and_valid_credentials_do_not() -> None:
    now = [0.0]
    limits = ClientLimits(ServerLimits(failed_logins=3), monotonic=lambda: now[0])
    for _ in range(4):
        await guess(limits, REMOTE)
    for reason in (CredentialReason.INVALID, CredentialReason.EXPIRED, CredentialReason.REVOKED):
        with pytest.raises(TooManyFailuresError, match="try again in 1 s"):
            await limits.identified(REMOTE, True, failing(reason))
    await guess(limits, ELSEWHERE)
    assert await limits.identified(REMOTE, True, proving(TOKEN)) is TOKEN
    # Which gives the source no more guesses.
    with pytest.raises(TooManyFailuresError):
        await limits.identified(REMOTE, True, failing(CredentialReason.INVALID))
    now[0] = 1.0
    await guess(limits, REMOTE)
    with pytest.raises(TooManyFailuresError, match="try again in 2 s"):
        await limits.identified(REMOTE, True, failing(CredentialReason.INVALID))


async def test_a_local_socket_and_a_missing_credential_are_no_guesses() -> None:
    limits = ClientLimits(ServerLimits(failed_logins=1))
    for _ in range(10):
        await guess(limits, "unix:")
        await guess(limits, REMOTE, CredentialReason.REQUIRED)
    assert await limits.identified("unix:", True, proving(TOKEN)) is TOKEN
    assert await limits.identified(REMOTE, True, proving(TOKEN)) is TOKEN


async def test_the_rate_of_an_identity() -> None:
    limits = ClientLimits(ServerLimits(request_rate=10, request_burst=5), monotonic=lambda: 7.0)
    for _ in range(5):
        await limits.identified(REMOTE, True, proving(TOKEN))
    with pytest.raises(RateExceededError, match="more than 10 calls per second"):
        await limits.identified(ELSEWHERE, True, proving(TOKEN))
    for _ in range(20):
        await limits.identified("unix:", False, proving(SOCKET))


async def test_a_client_that_sends_nothing() -> None:
    limits = ClientLimits(ServerLimits(client_time=0.01))
    with pytest.raises(SlowClientError):
        await limits.sent(asyncio.Event().wait())
    assert await limits.sent(proving(TOKEN)()) is TOKEN


async def test_a_client_that_takes_nothing() -> None:
    limits = ClientLimits(ServerLimits(client_time=0.01))
    task = asyncio.create_task(asyncio.Event().wait())
    limits.taking(task)
    with pytest.raises(asyncio.CancelledError):
        await task


def test_times_have_a_range_that_grpc_takes() -> None:
    options = dict(server_options(ServerLimits(connection_idle=1e9, handshake_time=1e-9)))
    assert options["grpc.max_connection_idle_ms"] == 2**31 - 1
    assert options["grpc.server_handshake_timeout_ms"] == 1
