"""Runs `toban` against a daemon of the test's own: in this process where possible, else as a program."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.cli.command_line import main

from ..sdk.conftest import daemon, socket_dir  # noqa: TID252
from .terminal import Terminal

__all__ = ["daemon", "socket_dir"]


@dataclass(frozen=True)
class Result:
    """How a command ended and what it wrote."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def data(self) -> Any:
        return json.loads(self.raw)

    @property
    def objects(self) -> list[Any]:
        return [json.loads(line) for line in self.raw.splitlines()]


Cli = Callable[..., Result]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing of the machine's own: no daemon, no colours, and a time zone that is not UTC."""
    for name in list(os.environ):
        if name.startswith("TOBAN_"):
            monkeypatch.delenv(name)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no-daemon-here"))
    for name in ("XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "config"))
    monkeypatch.setattr("toban.sdk.address.SYSTEM_DIRECTORIES", ())
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    if sys.platform != "win32":
        time.tzset()
    yield
    monkeypatch.undo()
    if sys.platform != "win32":
        time.tzset()


@pytest.fixture
def bare(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs `toban` in this process."""

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsysbinary.readouterr()
        code = main(arguments)
        captured = capsysbinary.readouterr()
        return Result(int(code), captured.out, captured.err.decode())

    return run


@pytest.fixture
def cli(bare: Cli, daemon: FakeDaemon) -> Cli:
    """Runs `toban` in this process with the test's daemon."""

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        return bare("--server", daemon.address, *arguments, stdin=stdin)

    return run


Program = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def program() -> Iterator[Program]:
    """Starts `toban` as a program of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        *arguments: str, env: Mapping[str, str] | None = None, stdout: Any = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "toban.cli", *arguments],
            env={**os.environ, **(env or {})},
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        _end(process)


OnTerminal = Callable[..., Terminal]


@pytest.fixture
def on_terminal() -> Iterator[OnTerminal]:
    """Starts `toban` on a terminal."""
    started: list[Terminal] = []

    def start(*arguments: str, **options: Any) -> Terminal:
        started.append(Terminal(*arguments, **options))
        return started[-1]

    yield start
    for terminal in started:
        _end(terminal.program)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
