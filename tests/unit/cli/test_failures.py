"""Nothing that a user can cause ends in a traceback; each has its exit code, one line and a hint."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from doubles.daemon.fake_daemon import DEADLINE, FakeDaemon
from doubles.daemon.fake_errors import info
from toban.v1 import run_pb2

from .conftest import Cli, Program


def test_no_daemon_is_found(bare: Cli, tmp_path: Path) -> None:
    result = bare("workflows", "list")
    assert result.code == 3
    first, second = result.err.splitlines()
    assert first.startswith("toban: cannot list workflows: no daemon found on this machine (looked for ")
    assert "toban.sock" in first
    assert "`toband`" in second
    assert "`toban dev`" in second


def test_the_daemon_is_down(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.stop()
    result = cli("run", "nightly")
    assert result.code == 3
    assert result.err.splitlines()[0] == (
        f"toban: cannot start a run of nightly: no daemon answers at {daemon.address}: no such socket"
    )


@pytest.mark.parametrize("server", ["example.com:443", "nonsense", "localhost:99999"])
def test_an_address_that_cannot_be_used(bare: Cli, server: str) -> None:
    result = bare("--server", server, "system", "info")
    assert result.code == 2
    assert result.err.startswith(f"toban: cannot use the address {server!r}")


def test_the_address_may_come_from_the_environment(
    bare: Cli, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOBAN_SERVER", daemon.address)
    assert bare("system", "info").code == 0


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, 4),
        (grpc.StatusCode.UNAUTHENTICATED, 4),
        (grpc.StatusCode.NOT_FOUND, 5),
        (grpc.StatusCode.ABORTED, 6),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 6),
        (grpc.StatusCode.INVALID_ARGUMENT, 2),
        (grpc.StatusCode.INTERNAL, 70),
        (grpc.StatusCode.UNIMPLEMENTED, 70),
        (grpc.StatusCode.UNAVAILABLE, 3),
    ],
)
def test_what_the_daemon_refuses(cli: Cli, daemon: FakeDaemon, code: grpc.StatusCode, exit_code: int) -> None:
    daemon.fail["GetInfo"] = (code, "because of that", (info("REASON"),))
    result = cli("system", "info")
    assert result.code == exit_code
    assert result.out == ""
    first = result.err.splitlines()[0]
    assert first.startswith("toban: cannot show the daemon: ")
    assert "because of that" in first


def test_the_daemons_own_words_are_not_said_twice(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    daemon.add_run("nightly")
    result = cli("run", "nightly")
    assert result.code == 6
    assert result.err.splitlines() == [
        "toban: cannot start a run of nightly: one is active",
        "hint: `toban runs show nightly#1` shows the active run, `toban runs cancel nightly#1` ends it",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "nightyl"],
        ["workflows", "show", "nightyl"],
        ["workflows", "show", "nightyl", "--version", "1"],
        ["workflows", "versions", "nightyl"],
        ["workflows", "delete", "nightyl"],
        ["workflows", "enable", "nightyl"],
        ["workflows", "disable", "nightyl"],
        ["runs", "show", "nightyl"],
        ["logs", "nightyl"],
    ],
)
def test_an_unknown_workflow_may_have_been_meant_otherwise(cli: Cli, daemon: FakeDaemon, arguments: list[str]) -> None:
    daemon.add_workflow("nightly")
    daemon.add_workflow("other")
    result = cli(*arguments)
    assert result.code == 5
    first, second = result.err.splitlines()
    assert first.startswith("toban: cannot ")
    assert "no workflow 'nightyl'" in first
    assert second == "hint: did you mean nightly?"


def test_an_unknown_workflow_that_is_like_no_other(cli: Cli, daemon: FakeDaemon) -> None:
    assert "`toban apply FILE` stores one" in cli("run", "x").err
    daemon.add_workflow("other")
    assert "hint: `toban workflows list`" in cli("run", "x").err


@pytest.mark.parametrize("name", ["00000000-0000-7000-8000-000000000000", "nightly#7"])
def test_an_unknown_run(cli: Cli, daemon: FakeDaemon, name: str) -> None:
    daemon.add_workflow("nightly")
    daemon.add_run("nightly")
    result = cli("runs", "show", name)
    assert result.code == 5
    assert result.err.startswith("toban: cannot ")


def test_a_workflow_that_never_ran(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    result = cli("logs", "nightly")
    assert result.code == 5
    assert result.err == "toban: cannot find a run of nightly: nightly has no run\n"


def test_an_internal_error_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch, daemon: FakeDaemon) -> None:
    monkeypatch.setattr("toban.cli.commands.system.emit_one", lambda *_, **__: 1 / 0)
    monkeypatch.setattr("toban.sdk.SyncClient.get_info", lambda self: None)
    result = cli("system", "info")
    assert result.code == 70
    assert result.err.splitlines() == [
        "toban: internal error: ZeroDivisionError: division by zero",
        "hint: please report this, with the output of toban -v …",
    ]
    with_place = cli("-v", "system", "info")
    assert with_place.code == 70
    assert "Traceback" in with_place.err


def test_escape_sequences_of_others_do_not_reach_the_terminal(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.fail["GetInfo"] = (grpc.StatusCode.NOT_FOUND, "evil\x1b[2Jtext\nnext", ())
    assert cli("system", "info").err == "toban: cannot show the daemon: evil\\x1b[2Jtext next\n"


def test_a_reader_who_leaves_is_no_error(program: Program, daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", state=run_pb2.RUN_STATE_SUCCEEDED)
    daemon.add_workflow("x")
    daemon.write(record, "one", *(b"x" * 65536 + b"\n" for _ in range(64)))
    toban = program("--server", daemon.address, "logs", "x")
    assert toban.stdout is not None
    assert toban.stderr is not None
    assert toban.stdout.read(10) == b"x" * 10
    toban.stdout.close()
    assert toban.stderr.read() == b""
    toban.stderr.close()
    assert toban.wait(DEADLINE) == 0


def test_a_reader_who_leaves_a_followed_run_detaches(program: Program, daemon: FakeDaemon) -> None:
    daemon.add_workflow("x")

    def write() -> None:
        record = next(iter(daemon.runs.values()))
        daemon.write(record, "one", *(b"x" * 65536 + b"\n" for _ in range(64)))

    daemon.on_call["StreamLogs"] = write
    toban = program("--server", daemon.address, "-q", "run", "x", "--follow")
    assert toban.stdout is not None
    assert toban.stderr is not None
    assert toban.stdout.read(6) == b"one | "
    toban.stdout.close()
    assert toban.stderr.read() == b""
    toban.stderr.close()
    assert toban.wait(DEADLINE) == 131


def test_a_full_disk_is_told(program: Program, daemon: FakeDaemon) -> None:
    daemon.add_workflow("x")
    with open("/dev/full", "wb") as full:
        toban = program("--server", daemon.address, "workflows", "list", stdout=full)
        _, errors = toban.communicate(timeout=DEADLINE)
    assert toban.returncode == 70
    assert os.strerror(errno.ENOSPC) in errors.decode()
    assert "Traceback" not in errors.decode()


def test_ctrl_c_is_no_traceback(program: Program, daemon: FakeDaemon) -> None:
    daemon.add_workflow("x")
    record = daemon.add_run("x")
    toban = program("--server", daemon.address, "logs", "x", "-f")
    daemon.wait_for("StreamLogs")
    daemon.write(record, "one", b"hello\n")
    assert toban.stdout is not None
    assert toban.stdout.read(6) == b"hello\n"
    toban.send_signal(signal.SIGINT)
    output, errors = toban.communicate(timeout=DEADLINE)
    assert (toban.returncode, output, errors) == (131, b"", b"")


def test_closed_streams_are_no_traceback(daemon: FakeDaemon) -> None:
    daemon.add_workflow("x")
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            '"$0" -m toban.cli --server "$1" workflows list >&- 2>&-',
            sys.executable,
            daemon.address,
        ],
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0


def test_an_argument_that_is_no_text(cli: Cli) -> None:
    result = cli("run", os.fsdecode(b"caf\xe9"))
    assert result.code == 2
    assert result.err.startswith("toban: cannot read the command line: an argument is not UTF-8\n")


def test_a_poor_encoding_still_shows_something(program: Program, daemon: FakeDaemon) -> None:
    daemon.add_workflow("x").title = "夜間レポート"
    toban = program("--server", daemon.address, "workflows", "list", env={"PYTHONIOENCODING": "ascii"})
    output, errors = toban.communicate(timeout=DEADLINE)
    assert toban.returncode == 0
    assert b"\\u591c" in output
    assert errors == b""
