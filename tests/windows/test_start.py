"""Configuration on Windows: the default paths."""

from __future__ import annotations

import sys

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows: scripts/test-windows", allow_module_level=True)

import os
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from toban.sdk.address import find_local
from toband.config import load
from toband.state_dir import StateDir, StateDirError
from toband.supervise.shim.windows import win32


def test_defaults() -> None:
    config = load(None, {"PROGRAMDATA": r"D:\Data"}, {})
    assert config.state_dir == r"D:\Data\Toban"
    assert [each.address for each in config.listen] == ["127.0.0.1:0"]
    assert unquote(config.database) == r"sqlite:///D:\Data\Toban/toban.db"


def test_the_client_looks_where_the_daemon_is_by_default(tmp_path: Path) -> None:
    place = tmp_path / "Toban"
    place.mkdir()
    (place / "toband.json").write_text('{"listen": ["127.0.0.1:7"]}')
    assert find_local({"PROGRAMDATA": str(tmp_path)})[0].text == "127.0.0.1:7"


def test_the_announcement_waits_for_a_reader(tmp_path: Path) -> None:
    """Whoever reads the file keeps others from replacing it."""
    from datetime import UTC, datetime
    from threading import Timer

    state = StateDir(str(tmp_path))
    state.acquire()
    with pytest.raises(StateDirError, match=str(os.getpid())):
        StateDir(str(tmp_path)).acquire()
    state.announce([("127.0.0.1:1", "none")], datetime.now(UTC), "1")
    reader = (tmp_path / "toband.json").open()
    closing = Timer(0.2, reader.close)
    closing.start()
    state.announce([("127.0.0.1:2", "none")], datetime.now(UTC), "1")
    closing.join()
    assert "127.0.0.1:2" in (tmp_path / "toband.json").read_text()
    state.release()


def test_the_token_of_the_administrator_is_closed_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wine's icacls changes nothing, so that only the command can be seen here."""
    made: list[tuple[list[str], int]] = []

    def run(command: list[str], **how: Any) -> Any:
        made.append((command, os.path.getsize(command[1])))
        return done(command, **how)

    done = subprocess.run
    monkeypatch.setattr(subprocess, "run", run)
    state = StateDir(str(tmp_path))
    for text in ("first", "second"):
        state.write_admin_token(text)
        assert (tmp_path / "admin.token").read_text() == text
    owner, system, administrators = "*S-1-3-4:F", "*S-1-5-18:F", "*S-1-5-32-544:F"
    granted = ["/grant:r", owner, "/grant:r", system, "/grant:r", administrators]
    closed = ["icacls", str(tmp_path / "admin.token.new"), "/inheritance:r", *granted]
    assert made == [(closed, 0)] * 2
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 5))
    with pytest.raises(PermissionError, match="icacls exited with code 5"):
        state.write_admin_token("third")
    assert (tmp_path / "admin.token").read_text() == "second"


def test_the_boot_can_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert win32.boot_id() == win32.boot_id()
    assert win32.boot_id() != "services-0"
    monkeypatch.setenv("TOBAN_BOOT_ID", "another")
    assert win32.boot_id() == "another"


def test_a_job_may_have_limits() -> None:
    """That they are kept is Windows' affair; here they are only handed over and taken."""
    job = win32.JobObject(memory=64 << 20, pids=3, nice=10)
    assert job.active() == 0
    job.close()
    assert [win32.priority_class(nice) for nice in (19, 5, 0, -5, -20)] == [
        0x40,
        0x4000,
        0x20,
        0x8000,
        0x80,
    ]
