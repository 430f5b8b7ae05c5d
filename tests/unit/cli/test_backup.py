from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.v1 import system_pb2

from .conftest import Cli

SUMMARY = system_pb2.BackupResponse(
    summary=system_pb2.BackupSummary(runs=3, files=2, bytes=2048, left_out=["/x: permission denied"], files_left_out=3)
)


def parts(*data: bytes) -> list[system_pb2.BackupResponse | None]:
    progress = system_pb2.BackupResponse(progress=system_pb2.BackupProgress(rows=1, rows_total=2))
    return [progress, *(system_pb2.BackupResponse(data=each) for each in data)]


def test_a_backup_is_written_and_what_is_missing_is_named(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.backup = [*parts(b"abc", b"def"), SUMMARY]
    file = tmp_path / "backup"
    result = cli("backup", str(file))
    assert result.code == 0
    assert result.out == f"wrote {file}: 6 B, with 3 runs, 2 files of 2 KiB\n"
    assert result.err.splitlines() == [
        "toban: warning: not in the backup: /x: permission denied",
        "toban: warning: and 2 more files",
    ]
    assert file.read_bytes() == b"abcdef"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_backup_that_breaks_off_leaves_the_one_before(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    file.write_text("before")
    for daemon.backup in ([*parts(b"abc"), None], parts(b"abc")):
        result = cli("backup", str(file))
        assert result.code != 0
        assert result.err.startswith("toban: cannot make a backup: ")
        assert file.read_text() == "before"
        assert os.listdir(tmp_path) == ["backup"]


@pytest.mark.skipif(sys.platform == "win32", reason="os.mkfifo")
def test_no_device_or_pipe_is_replaced(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    """Root could, and would then have a file named /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    daemon.backup = [*parts(b"abc"), SUMMARY]
    result = cli("backup", str(tmp_path / "pipe"))
    assert (result.code, result.out) == (2, "")
    assert "pipe: it is no regular file\nhint: - writes to standard output" in result.err
    assert (tmp_path / "pipe").is_fifo()


def test_a_directory_that_is_not_there_is_named(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.backup = [*parts(b"abc"), SUMMARY]
    result = cli("backup", str(tmp_path / "absent/backup"))
    assert (result.code, result.out) == (2, "")
    assert "absent/backup: No such file or directory" in result.err
