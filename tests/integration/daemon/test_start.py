"""Starting: one daemon for each state directory and address, and the leftovers of a dead daemon are no obstacle."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from helpers.daemon import Daemon, run_state, running_daemon
from helpers.refusal import refused
from helpers.small_disk import read_only
from toban.v1 import system_pb2, system_pb2_grpc


def refused_start(*arguments: str, **environment: str) -> tuple[int, str]:
    """Starts a daemon that must not serve; its exit code and the one line that it says."""
    done = subprocess.run(
        [sys.executable, "-m", "toband", *arguments],
        env={**os.environ, "TOBAN_LOG_LEVEL": "error", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("toband: ")
    return done.returncode, line


@pytest.fixture(scope="module")
def notified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[socket.socket]:
    """What systemd would listen on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"{tmp_path_factory.mktemp('n')}/notify")
        sock.settimeout(30)
        yield sock


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, notified: socket.socket) -> Iterator[Daemon]:
    state_dir = tmp_path_factory.mktemp("d") / "a %41#?日本" / "s"
    arguments = ("--listen", f"unix://{state_dir}/toban.sock", "--listen", "127.0.0.1:0")
    log_file = ("--log-file", f"{state_dir.parent}/toband.jsonl")
    environment = {
        "NOTIFY_SOCKET": notified.getsockname(),
        "TOBAN_DEFAULT_RUN_TIMEOUT": "300ms",
        "TOBAN_LOG_FORMAT": "console",
    }
    state_dir.parent.mkdir()
    with running_daemon(state_dir, *arguments, *log_file, environment=environment) as running:
        yield running


def announced(daemon: Daemon) -> dict[str, object]:
    facts = json.loads((daemon.state_dir / "toband.json").read_text())
    assert isinstance(facts, dict)
    return facts


def next_with(notified: socket.socket, state: str) -> list[str]:
    """The states of the next datagram with this one; the socket has a timeout."""
    while True:
        states = notified.recv(4096).decode().split("\n")
        if state in states:
            return states


def test_readiness_is_told_when_it_serves(daemon: Daemon, notified: socket.socket) -> None:
    assert f"MAINPID={daemon.pid}" in next_with(notified, "READY=1")


def test_the_real_port_is_announced_and_served(daemon: Daemon) -> None:
    facts = announced(daemon)
    assert facts["pid"] == daemon.pid
    listen = facts["listen"]
    assert isinstance(listen, list)
    assert listen[0] == daemon.socket
    host, _, port = listen[1].rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0
    assert f"127.0.0.1:{port}" in daemon.log.read_text(), "it is printed too"
    token = (daemon.state_dir / "admin.token").read_text().strip()
    with grpc.insecure_channel(listen[1]) as channel:
        system = system_pb2_grpc.SystemServiceStub(channel)
        refusal = refused(lambda: system.GetInfo(system_pb2.GetInfoRequest(), timeout=20))
        metadata = (("authorization", f"Bearer {token}"),)
        info = system.GetInfo(system_pb2.GetInfoRequest(), timeout=20, metadata=metadata)
    assert refusal.reason == "CREDENTIAL_REQUIRED"
    assert info.pid == daemon.pid
    assert list(info.listen) == listen
    assert facts["doors"] == [{"address": listen[0], "role": "admin"}, {"address": listen[1], "role": "none"}]


def test_only_the_owner_can_come_near(daemon: Daemon) -> None:
    def mode(name: str) -> int:
        return stat.S_IMODE((daemon.state_dir / name).stat().st_mode)

    assert mode("toban.sock") == 0o600
    assert mode("admin.token") == 0o600
    assert mode("toban.db") == 0o600
    assert mode("runs") == 0o700
    assert mode("") & 0o007 == 0


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(daemon: Daemon) -> None:
    before = announced(daemon)
    code, line = refused_start("--state-dir", str(daemon.state_dir))
    assert code == 1
    assert f"another toband (pid {daemon.pid}) has it" in line
    assert announced(daemon) == before, "the first one can still be found"
    assert daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).pid == daemon.pid


def test_an_address_that_is_served_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    for address in (daemon.socket, str(announced(daemon)["listen"][1])):  # type: ignore[index]
        code, line = refused_start("--state-dir", str(tmp_path / "s"), "--listen", address)
        assert code == 1
        assert f"cannot listen on {address}" in line
    assert daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).pid == daemon.pid


def test_the_log_file_holds_json_lines_and_the_console_does_not(daemon: Daemon) -> None:
    lines = (daemon.state_dir.parent / "toband.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    serving = next(event for event in events if event.get("action") == "serving")
    assert serving["pid"] == daemon.pid
    assert serving["level"] == "info"
    assert serving["timestamp"].endswith("Z")
    assert not any(line.startswith("{") for line in daemon.log.read_text().splitlines())


def test_the_default_run_timeout_is_for_runs_that_have_none(daemon: Daemon) -> None:
    steps = "steps: [{{name: only, run: sleep {}}}]".format
    daemon.apply(f"name: without\ndescription: x\n{steps(600)}\n")
    daemon.apply(f"name: with-own\ndescription: x\ntimeout: 60s\n{steps(0.6)}\n")
    own = daemon.start_run("with-own")
    assert run_state(daemon.run("without")) == "TIMED_OUT"
    assert run_state(daemon.wait_run(own)) == "SUCCEEDED"


# -- the last tests of this daemon: it dies


def test_what_a_killed_daemon_left_is_no_obstacle(daemon: Daemon) -> None:
    daemon.kill()
    for name in ("toban.sock", "toband.json", "toband.lock"):
        assert (daemon.state_dir / name).exists(), "a killed daemon cleans up nothing"
    # A pid means nothing: this one is of somebody who lives.
    (daemon.state_dir / "toband.lock").write_text(f"{os.getpid()}\n")
    daemon.start()
    assert announced(daemon)["pid"] == daemon.pid
    assert daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).pid == daemon.pid
    assert (daemon.state_dir / "toband.lock").read_text() == f"{daemon.pid}\n"


def test_a_clean_stop_is_told_and_leaves_neither_socket_nor_announcement(
    daemon: Daemon, notified: socket.socket
) -> None:
    next_with(notified, "READY=1")
    assert daemon.stop() == 0
    next_with(notified, "STOPPING=1")
    assert not (daemon.state_dir / "toban.sock").exists()
    assert not (daemon.state_dir / "toband.json").exists()


def test_a_database_of_a_newer_release_is_refused(daemon: Daemon) -> None:
    assert daemon.process is not None
    assert daemon.process.poll() is not None
    path = daemon.state_dir / "toban.db"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        (known,) = database.execute("SELECT version_num FROM toban_revision").fetchone()
        database.execute("UPDATE toban_revision SET version_num = '9999'")
    code, line = refused_start("--state-dir", str(daemon.state_dir))
    assert code == 1
    assert "a newer release of toband made it" in line
    assert "9999" in line
    assert not (daemon.state_dir / "toband.json").exists()
    assert not (daemon.state_dir / "toban.sock").exists(), "nothing is left of the attempt"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE toban_revision SET version_num = ?", (known,))


# -- places that cannot be used


def test_a_state_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    code, line = refused_start("--state-dir", "/proc/toban")
    assert code == 1
    assert "cannot use the state directory /proc/toban" in line


def test_a_socket_path_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    state = ("--state-dir", str(tmp_path / "s"))
    code, line = refused_start(*state, "--listen", f"unix://{file}")
    assert (code, file.read_text()) == (1, "mine"), "a file is not a stale socket"
    assert f"cannot listen on unix://{file}" in line
    code, line = refused_start(*state, "--listen", f"unix://{tmp_path}/none/s.sock")
    assert code == 1
    assert f"directory {tmp_path}/none does not exist" in line


def test_a_log_file_or_database_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    state = ("--state-dir", str(tmp_path / "s"))
    code, line = refused_start(*state, "--log-file", f"{tmp_path}/none/log")
    assert code == 1
    assert f"{tmp_path}/none/log" in line
    (tmp_path / "garbage").write_bytes(b"this is not a database, and long enough to be seen as none")
    code, line = refused_start(*state, "--database", f"sqlite:///{tmp_path}/garbage")
    assert code == 1
    assert "cannot open the database" in line


def test_a_read_only_state_directory_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "s"
    state.mkdir()
    with read_only(state):
        code, line = refused_start("--state-dir", str(state))
    assert code == 1
    assert f"cannot use the state directory {state}: Read-only file system" in line


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "s") as daemon:
        assert daemon.stop() == 0
        path = tmp_path / "s" / "toban.db"
        whole = path.read_bytes()
        # The first page is that of the schema; what follows its header is of no use any more.
        path.write_bytes(whole[:100] + bytes(4000) + whole[4100:])
        code, line = refused_start("--state-dir", str(tmp_path / "s"))
    assert code == 1
    assert "cannot open the database" in line
    assert "malformed" in line
