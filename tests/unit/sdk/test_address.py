from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from toban.sdk import InvalidArgument, Unreachable
from toban.sdk.address import SYSTEM_DIRECTORIES, find_local, parse, resolve


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


@pytest.mark.parametrize("text", ["example.com:7070", "10.0.0.1:7070", "0.0.0.0:7070", "[::]:70"])
def test_another_machine_needs_tls_which_is_not_there(text: str) -> None:
    with pytest.raises(InvalidArgument, match="TLS is not available yet"):
        parse(text)


@pytest.mark.parametrize("text", ["nonsense", "unix:", "host:", ":80", "http://host:80", "localhost:x", "localhost:０"])
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
    assert resolve("127.0.0.1:2", environ=environ).text == "127.0.0.1:2"
    assert resolve(environ=environ).text == "127.0.0.1:1"
    assert (
        resolve(
            environ={"TOBAN_STATE_DIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "APPDATA": str(tmp_path)}
        ).path
        == f"{tmp_path}/toban.sock"
    )


def test_the_users_own_daemon_is_found(tmp_path: Path) -> None:
    path = socket_in(tmp_path / "toban")
    assert find_local({"XDG_STATE_HOME": str(tmp_path)}).path == str(path)


def test_the_home_directory_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = socket_in(tmp_path / ".local" / "state" / "toban")
    assert find_local({}).path == str(path)


def test_the_systems_daemon_comes_before_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = socket_in(tmp_path / "run")
    socket_in(tmp_path / "user" / "toban")
    monkeypatch.setattr("toban.sdk.address.SYSTEM_DIRECTORIES", (str(tmp_path / "run"),))
    assert find_local({"XDG_STATE_HOME": str(tmp_path / "user")}).path == str(system)


@pytest.mark.skipif(os.access("/", os.W_OK), reason="everything is open to root")
def test_a_closed_daemon_gives_way_to_an_open_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket_in(tmp_path / "run").chmod(0)
    own = socket_in(tmp_path / "user" / "toban")
    monkeypatch.setattr("toban.sdk.address.SYSTEM_DIRECTORIES", (str(tmp_path / "run"),))
    assert find_local({"XDG_STATE_HOME": str(tmp_path / "user")}).path == str(own)


def test_a_state_directory_that_was_chosen_is_never_replaced_by_another(tmp_path: Path) -> None:
    socket_in(tmp_path / "user" / "toban")
    environ = {"TOBAN_STATE_DIR": str(tmp_path / "mine"), "XDG_STATE_HOME": str(tmp_path / "user")}
    with pytest.raises(Unreachable, match=r"mine/toban\.sock"):
        find_local(environ)


def test_the_daemons_own_record_tells_another_address(tmp_path: Path) -> None:
    record = tmp_path / "toband.json"
    record.write_text(json.dumps({"pid": 1, "listen": ["127.0.0.1:4711"]}))
    assert find_local({"TOBAN_STATE_DIR": str(tmp_path)}).text == "127.0.0.1:4711"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"listen": []}',
        '{"listen": ["nonsense"]}',
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
