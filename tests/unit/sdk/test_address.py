from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from toban.sdk import InvalidArgument, Unreachable
from toban.sdk.address import DEFAULT_PORT, SYSTEM_DIRECTORIES, find_local, parse
from toban.sdk.credentials import ClientCredentials
from toban.sdk.endpoint import resolve


@pytest.fixture(autouse=True)
def no_system_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toban.sdk.address.SYSTEM_DIRECTORIES", ())


def socket_in(directory: Path) -> Path:
    """A path is looked for; nothing is asked of it."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "toban.sock"
    path.touch()
    return path


@pytest.mark.parametrize("text", ["unix:///run/toban.sock", "unix:/run/toban.sock", "/run/toban.sock"])
def test_a_socket_in_all_its_spellings(text: str) -> None:
    address = parse(text)
    assert address.text == "unix:///run/toban.sock"
    assert address.path == "/run/toban.sock"
    assert address.local


def test_an_address_with_odd_characters_is_the_same_when_read_again() -> None:
    address = parse("/tmp/a b/当番/50%/toban.sock")
    assert address.path == "/tmp/a b/当番/50%/toban.sock"
    assert parse(address.text) == address
    assert address.target.isascii()


@pytest.mark.parametrize("text", ["127.0.0.1:7070", "localhost:7070", "[::1]:7070", "127.9.9.9:1"])
def test_loopback_needs_no_tls(text: str) -> None:
    address = parse(text)
    assert address.target == text
    assert not address.local


@pytest.mark.parametrize("text", ["example.com:7070", "10.0.0.1:7070", "0.0.0.0:7070", "[::]:7070"])
def test_another_machine_needs_tls(text: str) -> None:
    for written in (text, f"tcp://{text}"):
        with pytest.raises(InvalidArgument, match=r"without TLS only .*; use tls://") as caught:
            parse(written)
        assert parse(caught.value.message.rpartition(" ")[2]).tls


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("tls://toban.example.org:443", "tls://toban.example.org:443"),
        ("tls://toban.example.org", f"tls://toban.example.org:{DEFAULT_PORT}"),
        ("tls://10.0.0.7/", f"tls://10.0.0.7:{DEFAULT_PORT}"),
        ("tls://[fe80::1]", f"tls://[fe80::1]:{DEFAULT_PORT}"),
        ("tls://[::1]:1", "tls://[::1]:1"),
        ("tcp://127.0.0.1:7070", "127.0.0.1:7070"),
        ("tcp://localhost", f"localhost:{DEFAULT_PORT}"),
        ("tcp://[::1]:1", "[::1]:1"),
    ],
)
def test_addresses_with_a_scheme(text: str, same: str) -> None:
    address = parse(text)
    assert (address.text, address.tls, address.local) == (same, text.startswith("tls"), False)
    assert address.target == same.removeprefix("tls://")
    assert parse(address.text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("nonsense", "unix:", "host:", ":80", "http://host:80", "localhost:x", "localhost:０", "::1:80"),
        *("tls://", "tls://:80", "tls://host:x", "tls://a b", "tls://user@host", "tls://host/path", "tls://[x]:1"),
        *("tls://::1", "TLS://host", "tls://当番.example.org", "[localhost]:1"),
    ],
)
def test_what_is_no_address_is_said_to_be_none(text: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot use the address"):
        parse(text)


@pytest.mark.parametrize("port", ["0", "65536", "999999"])
def test_a_port_has_limits(port: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a port"):
        parse(f"127.0.0.1:{port}")


def test_a_path_that_no_socket_can_have_is_named() -> None:
    with pytest.raises(InvalidArgument, match="longer than"):
        parse("unix:///" + "x" * 120)


def test_the_given_address_wins_over_the_environment(tmp_path: Path) -> None:
    environ = {"TOBAN_SERVER": "127.0.0.1:1", "TOBAN_STATE_DIR": str(tmp_path)}
    socket_in(tmp_path)
    assert resolve("127.0.0.1:2", environ=environ).address.text == "127.0.0.1:2"
    assert resolve(environ=environ).address.text == "127.0.0.1:1"
    assert (
        resolve(
            environ={"TOBAN_STATE_DIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "APPDATA": str(tmp_path)}
        ).address.path
        == f"{tmp_path}/toban.sock"
    )


def test_the_users_own_daemon_is_found(tmp_path: Path) -> None:
    path = socket_in(tmp_path / "toban")
    assert find_local({"XDG_STATE_HOME": str(tmp_path)})[0].path == str(path)


def test_the_home_directory_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = socket_in(tmp_path / ".local" / "state" / "toban")
    assert find_local({})[0].path == str(path)


def test_the_systems_daemon_comes_before_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = socket_in(tmp_path / "run")
    socket_in(tmp_path / "user" / "toban")
    monkeypatch.setattr("toban.sdk.address.SYSTEM_DIRECTORIES", (str(tmp_path / "run"),))
    assert find_local({"XDG_STATE_HOME": str(tmp_path / "user")})[0].path == str(system)


@pytest.mark.skipif(os.access("/", os.W_OK), reason="everything is open to root")
def test_a_closed_daemon_gives_way_to_an_open_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket_in(tmp_path / "run").chmod(0)
    own = socket_in(tmp_path / "user" / "toban")
    monkeypatch.setattr("toban.sdk.address.SYSTEM_DIRECTORIES", (str(tmp_path / "run"),))
    assert find_local({"XDG_STATE_HOME": str(tmp_path / "user")})[0].path == str(own)


def test_a_state_directory_that_was_chosen_is_never_replaced_by_another(tmp_path: Path) -> None:
    socket_in(tmp_path / "user" / "toban")
    environ = {"TOBAN_STATE_DIR": str(tmp_path / "mine"), "XDG_STATE_HOME": str(tmp_path / "user")}
    with pytest.raises(Unreachable, match=r"mine/toban\.sock"):
        find_local(environ)


def test_the_daemons_own_record_tells_another_address(tmp_path: Path) -> None:
    record = tmp_path / "toband.json"
    record.write_text(json.dumps({"pid": 1, "listen": ["tls://0.0.0.0:7233", "tcp://127.0.0.1:4711"]}))
    environ = {"TOBAN_STATE_DIR": str(tmp_path)}
    address, token_file = find_local(environ)
    assert (address.text, token_file) == ("127.0.0.1:4711", "")
    (tmp_path / "admin.token").write_text("toban_x\n")
    assert resolve(environ=environ | {"XDG_CONFIG_HOME": str(tmp_path), "APPDATA": str(tmp_path)}).credentials == (
        ClientCredentials(token_file=str(tmp_path / "admin.token"))
    )


def test_the_admins_socket_is_preferred_if_it_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"TOBAN_STATE_DIR": str(tmp_path)}
    socket_in(tmp_path)
    admin = tmp_path / "admin.sock"
    admin.touch()
    assert find_local(environ)[0].path == str(admin)
    monkeypatch.setattr("os.access", lambda path, _: path != str(admin))
    assert find_local(environ)[0].path == f"{tmp_path}/toban.sock"
    monkeypatch.setattr("os.access", lambda *_: False)
    assert find_local(environ)[0].path == f"{tmp_path}/toban.sock"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"listen": []}',
        '{"listen": ["nonsense"]}',
        '{"listen": ["tls://localhost:1"]}',
        "é",
        pytest.param("[" * 20_000, id="deep"),
    ],
)
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "toband.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(Unreachable, match="no daemon found"):
        find_local({"TOBAN_STATE_DIR": str(tmp_path)})


def test_where_it_looked_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unreachable) as caught:
        find_local({"XDG_STATE_HOME": str(tmp_path)})
    assert f"{tmp_path}/toban/toban.sock" in caught.value.message
    assert SYSTEM_DIRECTORIES == ("/run/toban", "/var/lib/toban")
