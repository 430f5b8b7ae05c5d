"""Secrets through a real daemon: what is stored, who may use it, and what a lost key or a crash leaves behind."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from helpers.command import Toban
from helpers.daemon import Daemon, running_daemon
from helpers.wait import wait_until
from toban.v1 import secret_pb2, secret_pb2_grpc, system_pb2

VALUE = "s3cret of the database"
POINTS = (
    "secrets.key_added",
    "secrets.reencrypted",
    "secrets.key_dropped",
    "secrets.key_written@1",
    "secrets.key_written@2",
)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration with external stores, which are small programs."""
    home = tmp_path_factory.mktemp("config")
    (home / "files").mkdir()
    (home / "files" / "db").write_text(f"{VALUE} in a file\n")
    (home / "files" / "db").chmod(0o600)
    show = script(home / "show", 'printf "%s for %s:%s:%s\\n" "$PREFIX" "$1" "${TOBAN_LOG_FORMAT-clean}" "$2"')
    fail = script(home / "fail", f"echo {VALUE} >&2; exit 3")
    slow = script(home / "slow", "sleep 100 & sleep 100")
    large = script(home / "large", "head -c 100000 /dev/zero | tr '\\0' x")
    binary = script(home / "binary", "printf '\\377\\376abcdefgh'")
    providers = {
        "show": f'command = ["{show}", "{{key}}", "{{name}}"]\nenv = {{PREFIX = "value"}}\ncache = "1h"',
        "fail": f'command = ["{fail}", "{{key}}"]',
        "slow": f'command = ["{slow}", "{{key}}"]\ntimeout = "300ms"',
        "large": f'command = ["{large}", "{{key}}"]',
        "binary": f'command = ["{binary}", "{{key}}"]',
        "gone": 'command = ["/nowhere/vault", "{key}"]',
        "files": f'directory = "{home}/files"',
    }
    file = home / "toband.toml"
    file.write_text("\n".join(f"[secrets.providers.{name}]\n{text}\n" for name, text in providers.items()))
    return file


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, config: Path) -> Iterator[Daemon]:
    credentials = tmp_path_factory.mktemp("credentials")
    (credentials / "api").write_text(f"{VALUE} of the unit")
    environment = {"CREDENTIALS_DIRECTORY": str(credentials)}
    state = tmp_path_factory.mktemp("d") / "s"
    with running_daemon(state, "--config", str(config), environment=environment) as running:
        yield running


@pytest.fixture
def toban(daemon: Daemon) -> Toban:
    return Toban(daemon)


def secrets(daemon: Daemon) -> secret_pb2_grpc.SecretServiceStub:
    return secret_pb2_grpc.SecretServiceStub(daemon.channel)


def condition(daemon: Daemon) -> str:
    health = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=60).health
    return next((each.detail for each in health.conditions if each.name == "secrets"), "")


def places_of(value: str, directory: Path) -> list[str]:
    """Files below the directory that contain the value, as it is or in base64."""
    forms = [value.encode(), base64.b64encode(value.encode()).rstrip(b"=")[:-1]]
    return [
        str(path)
        for path in directory.rglob("*")
        if path.is_file() and any(form in path.read_bytes() for form in forms)
    ]


def test_people_set_show_grant_and_delete_secrets(daemon: Daemon, toban: Toban, tmp_path: Path) -> None:
    said = toban("secrets", "set", "cli_db", stdin=f"{VALUE}\n")
    assert said.out == "created cli_db (for no workflow)\n"
    assert "toban secrets grant cli_db" in said.err
    file = tmp_path / "value"
    file.write_text(f"{VALUE} two\n")
    assert toban("secrets", "set", "cli_db", "--file", str(file), "--workflows", "night-*").out.startswith(
        "set version 2 of cli_db"
    )
    assert (
        toban("secrets", "grant", "cli_db", "report", "import-*").out
        == "granted cli_db (for import-*, night-*, report)\n"
    )
    assert "nobody had no grant" in toban("secrets", "revoke", "cli_db", "report", "nobody").err
    shown = toban("secrets", "show", "cli_db", "-o", "json").data
    assert (shown["version"], shown["workflows"], shown["provider"]) == (2, ["import-*", "night-*"], "")
    assert "value" not in shown
    assert [each["name"] for each in toban("secrets", "list", "-o", "json").data] == ["cli_db"]
    assert VALUE not in toban("secrets", "show", "cli_db").out
    assert toban("secrets", "delete", "cli_db").out == "deleted cli_db\n"
    assert "there is no secret 'cli_db'" in toban("secrets", "show", "cli_db", code=5).err
    assert places_of(VALUE, daemon.state_dir) == []
    assert VALUE not in daemon.log.read_text()


def test_bad_values_are_refused_with_the_reason(toban: Toban, tmp_path: Path) -> None:
    for name, stdin, reason in (
        ("short", "12345\n", "fewer than 6 characters"),
        ("large", "x" * 70000, "more than 64 KiB"),
        ("a-b", VALUE, "a letter or _, then up to 63 letters"),
    ):
        assert reason in toban("secrets", "set", name, stdin=stdin, code=2).err
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\xfe secret")
    assert "not UTF-8" in toban("secrets", "set", "binary", "--file", str(file), code=2).err
    assert "cannot read" in toban("secrets", "set", "none", "--file", str(tmp_path / "no"), code=2).err
    assert (
        "--provider-key needs --provider"
        in toban("secrets", "set", "none", "--provider-key", "x", stdin=VALUE, code=2).err
    )
    assert "known: binary, credential" in toban("secrets", "set", "x", "--provider", "nowhere", code=2).err
    assert "begin with '-'" in toban("secrets", "set", "x", "--provider", "show", "--provider-key=-x", code=2).err
    assert (
        "name of a file" in toban("secrets", "set", "x", "--provider", "files", "--provider-key", "../db", code=2).err
    )
    assert (
        "name of a file"
        in toban("secrets", "set", "x", "--provider", "credential", "--provider-key", "toban-secrets-key", code=2).err
    )


def test_the_configuration_is_shown_without_values(toban: Toban) -> None:
    said = toban("system", "config", "-o", "json").out
    assert "secrets.providers.show" in said
    (found,) = (each for each in json.loads(said) if each["key"] == "secrets.providers.show")
    assert json.loads(found["value_json"])["env"] == {"PREFIX": "***"}
    assert found["source"] == "file"


def test_a_lost_key_makes_secrets_unavailable_and_nothing_else(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "s") as daemon:
        toban = Toban(daemon)
        toban("secrets", "set", "db", stdin=VALUE)
        key = daemon.state_dir / "secrets.key"
        kept = key.read_bytes()
        assert key.stat().st_mode & 0o777 == 0o600
        daemon.stop()
        key.unlink()
        daemon.start()
        found = wait_until(lambda: condition(daemon), "the daemon does not report the lost key")
        assert str(key) in found
        assert "does not exist" in found
        failed = toban("secrets", "set", "other", stdin=VALUE, code=6).err
        assert "restore that file" in failed
        assert [each["name"] for each in toban("secrets", "list", "-o", "json").data] == ["db"]
        assert not key.exists()
        key.write_bytes(kept)
        key.chmod(0o600)
        toban("secrets", "set", "other", stdin=VALUE)
        assert condition(daemon) == ""


def test_rotation_survives_a_kill_at_each_point(tmp_path: Path) -> None:
    """Whatever remains in the key file, it opens the database."""
    with running_daemon(tmp_path / "s") as daemon:
        toban = Toban(daemon)
        toban("secrets", "set", "db", stdin=VALUE)
        key = daemon.state_dir / "secrets.key"
        for point in POINTS:
            daemon.stop()
            daemon.start({"TOBAN_FAILPOINTS": f"{point}=kill" if "@" not in point else point.replace("@", "=kill@")})
            with pytest.raises(grpc.RpcError):
                secrets(daemon).RotateSecretsKey(secret_pb2.RotateSecretsKeyRequest(), timeout=60)
            daemon.wait()
            daemon.start()
            # Only who has the key can store another secret, and read this one for it again.
            toban("secrets", "set", "other", stdin=VALUE)
            assert condition(daemon) == "", point
        toban("secrets", "rotate-key")
        assert len([line for line in key.read_text().splitlines() if not line.startswith("#")]) == 1
        assert places_of(VALUE, daemon.state_dir) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no terminals there")
def test_a_prompt_asks_twice_and_shows_nothing(daemon: Daemon) -> None:
    import pty

    for second, code in ((VALUE, 0), ("different", 2)):
        pid, terminal = pty.fork()
        if pid == 0:
            arguments = [sys.executable, "-m", "toban.cli", "--server", daemon.socket, "secrets", "set", "typed"]
            os.execv(sys.executable, arguments)
        said = b""
        for prompt, answer in ((b"value: ", VALUE), (b"again: ", second)):
            while prompt not in said:
                said += os.read(terminal, 1000)
            os.write(terminal, f"{answer}\n".encode())
        while True:
            try:
                said += os.read(terminal, 1000)
            except OSError:
                break
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
        assert VALUE.encode() not in said
