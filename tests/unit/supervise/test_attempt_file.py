"""Writing an attempt file: the claim leaves no other file, and output that the disk refuses is counted."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from helpers.logs import WrittenLog
from toband import failpoints
from toband.ports import LogKind
from toband.supervise.files.run_files import RunFiles
from toband.supervise.logs.log_reader import LogReader
from toband.supervise.shim import frames
from toband.supervise.shim.attempt_file import RESERVE, claim
from toband.supervise.shim.output_limit import amount

OUT = LogKind.STDOUT


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(str(tmp_path))


def notes_of(log: WrittenLog) -> list[bytes]:
    return [bytes(each.payload) for each in frames.frames_of(log.fd) if each.kind == frames.NOTE]


def ended(log: WrittenLog) -> dict[str, Any]:
    record = frames.read_end(log.fd)
    assert record is not None
    return record


def test_a_claim_is_whole_locked_and_private(tmp_path: Path) -> None:
    fd = claim(str(tmp_path), "claim", {"format": 1})
    assert fd is not None
    with open(tmp_path / "claim", "rb") as file:
        assert frames.read_claim(file.fileno()) == {"format": 1}
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
        assert os.fstat(file.fileno()).st_nlink == 1
        assert not os.get_inheritable(fd)
        os.close(fd)
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_who_comes_second_leaves_nothing_behind(tmp_path: Path) -> None:
    fd = claim(str(tmp_path), "claim", {"who": "first"})
    assert fd is not None
    assert claim(str(tmp_path), "claim", {"who": "second"}) is None
    assert os.listdir(tmp_path) == ["claim"]
    assert frames.read_claim(fd) == {"who": "first"}
    os.close(fd)


def test_a_claim_that_fails_holds_no_lock_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    failpoints.arm("claim.linked=EIO")
    with pytest.raises(OSError, match="failpoint"):
        claim(str(tmp_path), "claim", {"format": 1})
    assert os.listdir(tmp_path) == ["claim"]
    with open(tmp_path / "claim", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_claim_that_cannot_be_written_leaves_nothing_at_all(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        claim(str(tmp_path), "claim", {"format": object()})
    assert os.listdir(tmp_path) == []


def test_a_claim_in_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        claim(str(tmp_path / "nowhere"), "claim", {"format": 1})


def test_a_refused_write_is_a_gap_with_a_note_in_its_place(files: RunFiles) -> None:
    with WrittenLog(files) as log:
        log.print((OUT, b"one"))
        failpoints.arm("log.write=EIO")
        log.print((OUT, b"lost"), (LogKind.STDERR, b"lost too"))
        failpoints.arm("")
        log.print((OUT, b"two"))
        failpoints.arm("log.write=ENOSPC@1")
        log.print((OUT, b"again"))
        log.end(dropped=log.file.dropped)

        found = [bytes(each.payload) for each in frames.frames_of(log.fd)][1:-1]
        reason = b" bytes of output were dropped here: the disk would not take them"
        assert found == [b"one", b"12" + reason, b"two", b"5" + reason]
        assert ended(log)["dropped"] == 17
        assert log.file.written == {frames.STDOUT: 6, frames.STDERR: 0}


def test_a_refused_end_record_is_an_error_and_no_half_of_it_stays(files: RunFiles) -> None:
    with WrittenLog(files) as log:
        log.print((OUT, b"one"))
        size = log.size()
        failpoints.arm("log.write=ENOSPC")
        with pytest.raises(OSError, match="end record"):
            log.end()
        failpoints.arm("")
        assert log.size() == size
        assert frames.read_end(log.fd) is None
        assert LogReader(files).printed(log.attempt, OUT, 10) == b"one"


def test_what_is_allocated_ahead_is_not_part_of_the_file_and_is_given_back(
    files: RunFiles,
) -> None:
    with WrittenLog(files) as log:
        start = os.fstat(log.fd)
        assert start.st_size < 200
        log.print(*[(OUT, b"x" * 100_000)] * 10)
        assert notes_of(log) == []
        log.end()
        stat = os.fstat(log.fd)
        assert stat.st_blocks * 512 < stat.st_size + 64 * 1024
        assert ended(log) == {"seal": "seal"}


def test_an_end_without_space_for_the_outputs_goes_without_them(files: RunFiles) -> None:
    """The first write of the end is refused, as by a full disk; the second is smaller, and fits."""
    with WrittenLog(files) as log:
        log.print((OUT, b"one"))
        failpoints.arm("log.write=ENOSPC@1")
        log.end(output="a=1\n", result="2", exit_code=0)
        failpoints.arm("")
        assert ended(log) == {"seal": "seal", "exit_code": 0, "outputs_lost": True}


def test_an_end_without_outputs_says_nothing_of_them(files: RunFiles) -> None:
    with WrittenLog(files) as log:
        failpoints.arm("log.write=ENOSPC@1")
        log.end(exit_code=0)
        failpoints.arm("")
        assert ended(log) == {"seal": "seal", "exit_code": 0}


@pytest.mark.parametrize("length", [0, 100, 100_000])
def test_an_end_that_is_not_synced_is_marked_in_its_place(files: RunFiles, length: int) -> None:
    with WrittenLog(files) as log:
        log.print((OUT, b"one"))
        failpoints.arm("end.written=EIO")
        log.end(output="x" * length, unsynced=False)
        failpoints.arm("")
        assert ended(log) == {"seal": "seal", "output": "x" * length, "unsynced": True}
        kinds = [each.kind for each in frames.frames_of(log.fd)]
        assert kinds == [frames.CLAIM, frames.STDOUT, frames.END]


def test_a_refused_write_keeps_the_space_for_the_end(files: RunFiles) -> None:
    with WrittenLog(files) as log:
        log.print((OUT, b"one"))
        failpoints.arm("log.write=EIO@1")
        log.print((OUT, b"two"))
        failpoints.arm("")
        assert os.fstat(log.fd).st_blocks * 512 >= RESERVE


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (700, "700 bytes"),
        (1024, "1KiB"),
        (64 << 20, "64MiB"),
        (int(80.3 * (1 << 20)), "80.3MiB"),
        (3 << 30, "3GiB"),
    ],
)
def test_amounts_for_people(size: int, text: str) -> None:
    assert amount(size) == text
