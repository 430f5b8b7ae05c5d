"""TLS to a real server on loopback: what connects, and what is said when nothing does."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.certificate_authority import CertificateAuthority, KeyPair
from toban.sdk import Client, Refused, TobanError, Unreachable

DAY = timedelta(days=1)
OURS = CertificateAuthority.create("Ours", lifetime=DAY)
FOREIGN = CertificateAuthority.create("Foreign", lifetime=DAY)
SERVER = OURS.server(["127.0.0.1", "localhost"], lifetime=DAY)


@pytest.fixture
def ca(tmp_path: Path) -> str:
    path = tmp_path / "ca.crt"
    path.write_bytes(OURS.pair.certificate)
    return str(path)


@pytest.fixture
def serve(daemon: FakeDaemon) -> Any:
    def start(pair: KeyPair | None, client_ca: bytes = b"") -> str:
        daemon.stop()
        daemon.access.pair, daemon.access.client_ca, daemon.access.plain = pair, client_ca, pair is None
        daemon.start()
        return daemon.access.address

    return start


async def failure(address: str, **given: Any) -> TobanError:
    async with Client(address, **given, connect_for=0) as client:
        with pytest.raises((Unreachable, Refused)) as caught:
            await client.get_info()
    return caught.value


async def test_a_verified_server_and_a_token(serve: Any, daemon: FakeDaemon, ca: str) -> None:
    address = serve(SERVER)
    by_name = address.replace("127.0.0.1", "localhost")
    for server, trusted in ((address, ca), (by_name, ca), (address, OURS.pair.certificate)):
        async with Client(server, ca=trusted, token="x") as client:
            assert (await client.get_info()).version == "9.9.9"
        assert daemon.metadata["authorization"] == "Bearer x"


async def test_a_client_certificate(serve: Any) -> None:
    address = serve(SERVER, client_ca=OURS.pair.certificate)
    trusted = OURS.pair.certificate
    own, strange = OURS.client("laptop", lifetime=DAY), FOREIGN.client("laptop", lifetime=DAY)
    async with Client(address, ca=trusted, certificate=own.certificate, key=own.key) as client:
        await client.get_info()
    missing = await failure(address, ca=trusted)
    assert missing.message == f"{address} requires a client certificate"
    refused = await failure(address, ca=trusted, certificate=strange.certificate, key=strange.key)
    assert refused.reason == "TLS_CLIENT_CERTIFICATE_REFUSED"
    old = OURS.client("laptop", start=datetime.now(UTC) - 2 * DAY, lifetime=DAY)
    expired = await failure(address, ca=trusted, certificate=old.certificate, key=old.key)
    assert expired.reason == "TLS_CLIENT_CERTIFICATE_REFUSED"
    mixed = await failure(address, ca=trusted, certificate=own.certificate, key=strange.key)
    assert mixed.message == f"cannot use the certificates for {address}: key values mismatch"


@pytest.mark.parametrize(
    ("pair", "trusts", "reason", "message"),
    [
        (
            OURS.server(["127.0.0.1"], start=datetime(2026, 1, 1, tzinfo=UTC), lifetime=DAY),
            OURS,
            "TLS_CERTIFICATE_EXPIRED",
            "the server's certificate has expired (at 2026-01-02 00:00:00 UTC)",
        ),
        (
            OURS.server(["127.0.0.1"], start=datetime(2098, 1, 1, 0, 10, tzinfo=UTC), lifetime=DAY),
            OURS,
            "TLS_CERTIFICATE_NOT_YET_VALID",
            "the server's certificate is not valid yet (only from 2098-01-01 00:00:00 UTC)",
        ),
        (
            OURS.server(["toban.example.org", "10.0.0.7"], lifetime=DAY),
            OURS,
            "TLS_HOST_NAME",
            "the server's certificate is for toban.example.org, 10.0.0.7, not for 127.0.0.1",
        ),
        (SERVER, FOREIGN, "TLS_UNKNOWN_CA", "the server's certificate is not signed by the given CA"),
        (SERVER, None, "TLS_UNKNOWN_CA", "the server's certificate is not signed by a CA that this machine trusts"),
    ],
    ids=["expired", "early", "host", "foreign", "unknown"],
)
async def test_a_server_that_cannot_be_trusted(
    serve: Any, daemon: FakeDaemon, pair: KeyPair, trusts: CertificateAuthority | None, reason: str, message: str
) -> None:
    address = serve(pair)
    found = await failure(address, ca=trusts.pair.certificate if trusts else b"", token="secret")
    assert isinstance(found, Unreachable)
    assert found.reason == reason
    assert found.message == f"cannot trust {address}: {message}"
    assert not daemon.calls


async def test_both_kinds_of_servers_are_told_from_each_other(serve: Any, ca: str) -> None:
    plain = serve(None)
    found = await failure(f"tls://{plain}", ca=ca)
    assert found.message == f"cannot connect to tls://{plain}: the server there speaks no TLS"
    encrypted = serve(SERVER).removeprefix("tls://")
    found = await failure(encrypted, token="x")
    assert found.message == f"no daemon answers at {encrypted} without TLS: the server expects TLS"
    encrypted = serve(SERVER, client_ca=OURS.pair.certificate).removeprefix("tls://")
    assert (await failure(encrypted)).reason == "TLS_REQUIRED"


async def test_what_is_not_there(ca: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    found = await failure(f"tls://127.0.0.1:{port}", ca=ca)
    assert found.message == f"no daemon answers at tls://127.0.0.1:{port}: nothing listens there"
    found = await failure("tls://nowhere.invalid", ca=ca)
    assert re.search(r"no such host nowhere\.invalid", found.message)


async def test_a_server_that_hangs_up(ca: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        over = threading.Event()

        def hang_up() -> None:
            while not over.is_set():
                connection, _ = server.accept()
                with connection:
                    connection.recv(4096)

        thread = threading.Thread(target=hang_up)
        thread.start()
        host, port = server.getsockname()
        address = f"tls://{host}:{port}"
        found = await failure(address, ca=ca)
        over.set()
        socket.create_connection((host, port)).close()
        thread.join()
    assert found.message.startswith(f"cannot connect to {address}: ")
