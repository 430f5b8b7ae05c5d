"""Where a token comes from, how it is sent, and that it is shown nowhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.sdk import Client, InvalidArgument, Refused
from toban.sdk.credentials import ClientCredentials, TlsFiles, of_environment
from toban.sdk.token_source import LoginSocket
from toban.v1 import event_pb2

SECRET = "toban_0123456789abcdef_secret"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("TOBAN_SERVER", "TOBAN_TOKEN", "TOBAN_TOKEN_FILE", "TOBAN_RUN_ID", "TOBAN_ATTEMPT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield
    LoginSocket._known.clear()


def restart(daemon: FakeDaemon) -> None:
    daemon.stop()
    daemon.start()


async def test_a_given_token_is_sent(daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    ways: list[dict[str, Any]] = [{"token": SECRET}, {"token_file": str(file)}]
    for given in ways:
        async with Client(daemon.address, **given) as client:
            await client.get_info()
        assert daemon.metadata["authorization"] == f"Bearer {SECRET}"
    monkeypatch.setenv("TOBAN_TOKEN", SECRET)
    daemon.metadata.clear()
    async with Client(daemon.address) as client:
        await client.get_info()
        assert daemon.metadata["authorization"] == f"Bearer {SECRET}"
    monkeypatch.delenv("TOBAN_TOKEN")
    async with Client(daemon.address) as client:
        await client.get_info()
    assert "authorization" not in daemon.metadata


async def test_a_token_file_is_read_again_when_its_token_is_refused(daemon: FakeDaemon, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    daemon.access.accepted = {"old"}
    async with Client(daemon.address, token_file=str(file)) as client:
        await client.get_info()
        daemon.access.accepted = {"new"}
        with pytest.raises(Refused):
            await client.get_info()
        file.write_text("new")
        await client.get_info()
        file.unlink()
        await client.get_info()


async def test_a_login_token_is_fetched_once_and_again_when_it_is_refused(daemon: FakeDaemon) -> None:
    access = daemon.access
    access.logins, access.accepted = ["first", "second"], {"first"}
    restart(daemon)
    for _ in range(2):
        async with Client(daemon.address) as client:
            await client.get_info()
    assert access.logged_in == 1
    access.accepted = {"second"}
    async with Client(daemon.address) as client:
        await client.get_info()
        assert access.logged_in == 2
        access.accepted = set()
        calls = daemon.calls["GetInfo"]
        with pytest.raises(Refused) as caught:
            await client.get_info()
    # One further try only.
    assert (access.logged_in, daemon.calls["GetInfo"] - calls) == (3, 2)
    assert caught.value.reason == "CREDENTIAL_INVALID"


async def test_a_login_token_is_replaced_before_it_expires(daemon: FakeDaemon) -> None:
    daemon.access.logins = ["short"]
    daemon.access.login_lives = timedelta(seconds=10)
    restart(daemon)
    async with Client(daemon.address) as client:
        await client.get_info()
        await client.get_info()
    assert daemon.access.logged_in == 2


async def test_a_stream_continues_with_a_new_login_token(daemon: FakeDaemon) -> None:
    daemon.access.logins, daemon.access.accepted = ["first", "second"], {"first"}
    restart(daemon)
    seen: list[event_pb2.WatchEventsResponse] = []
    async with Client(daemon.address, retry_for=30) as client:
        async for message in client.watch_events():
            seen.append(message)
            if len(seen) == 1:
                # The daemon comes back and knows none of the tokens that it gave.
                daemon.access.accepted = {"second"}
                restart(daemon)
                daemon.add_event("X")
            elif message.HasField("event"):
                break
    assert daemon.access.logged_in == 2


async def test_a_login_socket_costs_little(daemon: FakeDaemon) -> None:
    daemon.access.logins = ["x"]
    restart(daemon)
    login = LoginSocket(str(daemon.path))
    took = []
    for _ in range(50):
        LoginSocket._known.clear()
        begun = time.perf_counter()
        assert await login.token() == "x"
        took.append(time.perf_counter() - begun)
    assert min(took) < 0.002


async def test_a_step_is_its_attempt_and_no_user(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.access.logins = ["x"]
    restart(daemon)
    for name, value in (("SERVER", daemon.address), ("RUN_ID", "r"), ("ATTEMPT_TOKEN", "t")):
        monkeypatch.setenv(f"TOBAN_{name}", value)
    async with Client() as client:
        await client.get_info()
        assert daemon.metadata["toban-origin"] == "r/t"
        record = daemon.add_run("nightly")
        async for _ in client.watch_run(record.run.id):
            assert daemon.metadata["toban-origin"] == "r/t"
            break
    assert daemon.access.logged_in == 0
    assert "authorization" not in daemon.metadata


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED])
async def test_a_refusal_is_not_repeated_for_a_given_token(daemon: FakeDaemon, code: grpc.StatusCode) -> None:
    daemon.fail["GetInfo"] = (code, "no", ())
    async with Client(daemon.address, token=SECRET) as client:
        with pytest.raises(Refused) as caught:
            await client.get_info()
    assert daemon.calls["GetInfo"] == 1
    assert SECRET not in str(caught.value)


def test_a_secret_is_in_no_representation() -> None:
    credentials = ClientCredentials(token=SECRET, ca=b"ca", certificate=SECRET, key=SECRET.encode())
    assert repr(credentials) == "ClientCredentials(token, ca, certificate, key)"
    assert SECRET not in repr(TlsFiles(key=SECRET.encode()))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"token": f"{SECRET} x"}, "cannot use the token that was given: expected one line without blanks"),
        ({"token": "é"}, "expected one line"),
        ({"token_file": "/nowhere"}, "cannot read the token in /nowhere: No such file"),
        ({"token_file": "{empty}"}, "it is empty"),
        ({"token_file": "/dev/zero"}, "too large"),
        ({"ca": "/nowhere"}, "cannot use certificates for 127.0.0.1:1: only tls://HOST:PORT has them"),
    ],
)
async def test_unusable_credentials(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    given = {key: value.replace("{empty}", str(tmp_path / "empty")) for key, value in given.items()}
    with pytest.raises(InvalidArgument, match=message) as caught:
        async with Client("127.0.0.1:1", **given) as client:
            await client.get_info()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ca": "/nowhere"}, "cannot read the CA certificates in /nowhere"),
        ({"ca": "{text}"}, "expected PEM with a CERTIFICATE"),
        ({"certificate": "{text}"}, "its key is missing"),
        ({"key": "{text}"}, "its certificate is missing"),
        ({"ca": b"text"}, "cannot use the CA certificates: expected PEM"),
    ],
)
def test_unusable_certificates(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    named: dict[str, Any] = {
        key: str(tmp_path / "text") if value == "{text}" else value for key, value in given.items()
    }
    with pytest.raises(InvalidArgument, match=message):
        Client("tls://127.0.0.1:1", **named)


def test_two_tokens_in_the_environment_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="both TOBAN_TOKEN and TOBAN_TOKEN_FILE"):
        of_environment({"TOBAN_TOKEN": "a", "TOBAN_TOKEN_FILE": "b"})
