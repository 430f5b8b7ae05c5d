"""Free space, ballast, and the probe write."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toband import failpoints
from toband.supervise.host.disk import LOG_AHEAD, PROBE, Ballast, StateDisk, space_of

SIZE = 256 * 1024


@pytest.fixture
def arm() -> Iterator[Callable[[str], None]]:
    yield failpoints.arm
    failpoints.arm("")


def test_space_is_what_the_file_system_says(tmp_path: Path) -> None:
    space = space_of(str(tmp_path))
    assert space.path == str(tmp_path)
    assert 0 < space.free <= space.total


def test_ballast_takes_real_blocks_and_gives_them_back(tmp_path: Path) -> None:
    ballast = Ballast(f"{tmp_path}/ballast", SIZE)
    assert ballast.held() == 0
    assert not ballast.shed(0)
    ballast.take()
    found = (tmp_path / "ballast").stat()
    assert (found.st_size, found.st_mode & 0o777) == (SIZE, 0o600)
    assert found.st_blocks * 512 >= SIZE
    assert ballast.shed(SIZE // 2)
    assert ballast.held() == SIZE // 2
    assert not ballast.shed(SIZE // 2)
    ballast.take()
    assert (tmp_path / "ballast").stat().st_blocks * 512 >= SIZE
    assert ballast.shed(0)
    assert (tmp_path / "ballast").stat().st_blocks == 0


def test_ballast_of_another_size_is_made_to_fit(tmp_path: Path) -> None:
    (tmp_path / "ballast").write_bytes(bytes(2 * SIZE))
    Ballast(f"{tmp_path}/ballast", SIZE).take()
    assert (tmp_path / "ballast").stat().st_size == SIZE


def test_ballast_that_cannot_be_taken_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ballast = Ballast(f"{tmp_path}/ballast", SIZE)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="full"):
        ballast.take()
    assert ballast.held() == 0


def test_a_ballast_that_cannot_be_reached_frees_nothing() -> None:
    assert not Ballast("/nowhere/ballast", SIZE).shed(0)


def test_one_file_system_is_watched_once(tmp_path: Path) -> None:
    disk = StateDisk(str(tmp_path), f"{tmp_path}/not/made/yet/toban.db")
    assert [space.path for space in disk.spaces()] == [str(tmp_path)]
    assert 0 < disk.ballast <= 16 * 1024 * 1024
    disk.take_ballast()
    assert disk.ballast_held() == disk.ballast == (tmp_path / "ballast").stat().st_size
    assert disk.shed_half()
    assert disk.ballast_held() == disk.ballast // 2
    assert not disk.shed_half()
    pieces = 0
    while disk.shed_piece():
        pieces += 1
    assert disk.ballast_held() == 0
    assert pieces == 8


def test_a_write_that_works_leaves_nothing(tmp_path: Path, arm: Callable[[str], None]) -> None:
    disk = StateDisk(str(tmp_path))
    disk.try_write()
    assert not (tmp_path / PROBE).exists()
    arm("disk.probe=EROFS")
    with pytest.raises(OSError, match="Read-only") as refused:
        disk.try_write()
    assert refused.value.errno == errno.EROFS


@pytest.mark.skipif(sys.platform != "linux", reason="allocates as Linux does")
def test_the_log_of_a_database_has_blocks_ahead_of_its_growth(tmp_path: Path) -> None:
    log = tmp_path / "toban.db-wal"
    disk = StateDisk(str(tmp_path), str(tmp_path / "toban.db"))
    disk.reach_ahead()
    assert not log.exists(), "it is not ours to make"
    log.write_bytes(bytes(100_000))
    for _ in range(3):
        disk.reach_ahead()
    facts = log.stat()
    assert facts.st_size == 100_000
    assert LOG_AHEAD // 2 <= facts.st_blocks * 512 - 100_000 <= LOG_AHEAD + 2 * 4096
    with log.open("ab") as file:
        file.write(bytes(LOG_AHEAD * 3 // 4))
    disk.reach_ahead()
    facts = log.stat()
    assert facts.st_blocks * 512 - facts.st_size >= LOG_AHEAD // 2


@pytest.mark.skipif(sys.platform != "linux", reason="POSIX locks")
def test_nothing_here_gives_up_the_locks_of_a_database(tmp_path: Path) -> None:
    """A process that closes any descriptor of a file loses all of its locks on it, SQLite's too."""
    database = tmp_path / "toban.db"
    ours = sqlite3.connect(database, isolation_level=None)
    ours.execute("PRAGMA journal_mode=DELETE")
    ours.execute("CREATE TABLE t (x)")
    disk = StateDisk(str(tmp_path), str(database))
    ours.execute("BEGIN IMMEDIATE")
    disk.take_ballast()
    disk.reach_ahead()
    disk.try_write()
    script = (
        "import sqlite3, sys; other = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None); "
        "other.execute('BEGIN IMMEDIATE')"
    )
    command = [sys.executable, "-c", script, str(database)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "database is locked" in done.stderr
    ours.close()
