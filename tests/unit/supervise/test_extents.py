"""Sparse files: hashed and copied without reading their holes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from toband.ports import StoppedError
from toband.supervise.files import file_extents
from toband.supervise.files.file_budget import Budget, FileLimits, TooMuchError

KIB = 1024
TIB = 1024**4
HUGE = 10 * TIB
sparse = pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="needs SEEK_DATA")


def digest(path: Path, budget: Budget | None = None) -> bytes:
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        return file_extents.digest(fd, budget or Budget(None))
    finally:
        os.close(fd)


def copy(path: Path, to: Path, budget: Budget | None = None, durable: bool = False) -> int:
    binary = getattr(os, "O_BINARY", 0)
    source = os.open(path, os.O_RDONLY | binary)
    target = os.open(to, os.O_RDWR | os.O_CREAT | os.O_EXCL | binary)
    try:
        return file_extents.copy(source, target, budget or Budget(None), durable=durable)
    finally:
        os.close(source)
        os.close(target)


def write_at(path: Path, size: int, **pieces: bytes) -> Path:
    """A file of that size with pieces of data in it: `at_4096=b"x"`."""
    with path.open("wb") as file:
        file.truncate(size)
        for name, data in pieces.items():
            file.seek(int(name.removeprefix("at_")))
            file.write(data)
    return path


def huge(path: Path, **pieces: bytes) -> Path:
    """Ten terabytes, nearly all of them a hole. Skips where the file system does not take that."""
    try:
        return write_at(path, HUGE, **pieces)
    except OSError as error:
        pytest.skip(f"no file of 10 TiB here: {error}")


@sparse
def test_ten_terabytes_of_holes_take_no_time(tmp_path: Path) -> None:
    """The attack: `truncate -s 10T`, and a fingerprint that reads zeros for hours."""
    source = huge(tmp_path / "huge", at_0=b"begin", at_5000000000000=b"middle")
    began = time.monotonic()
    found = digest(source)
    assert copy(source, tmp_path / "copy", durable=True) == HUGE
    assert digest(tmp_path / "copy") == found
    assert time.monotonic() - began < 5
    facts = (tmp_path / "copy").stat()
    assert facts.st_size == HUGE
    assert facts.st_blocks * 512 <= 256 * KIB, "the holes were written out"
    with (tmp_path / "copy").open("rb") as file:
        file.seek(5_000_000_000_000)
        assert file.read(7) == b"middle\0"
    assert digest(huge(tmp_path / "other", at_0=b"begin", at_5000000000001=b"middle")) != found


@pytest.mark.parametrize(
    "pieces",
    [
        {},
        {"at_0": b"x"},
        {"at_70000": b"y" * 10},
        {"at_65535": b"ab"},
        {"at_0": b"x" * 200_000, "at_299999": b"z"},
        {"at_131072": b"\1" + bytes(65_535), "at_262144": bytes(9_000)},
    ],
)
def test_contents_count_and_not_how_they_are_stored(tmp_path: Path, pieces: dict[str, bytes]) -> None:
    with_holes = write_at(tmp_path / "holes", 300_000, **pieces)
    written_out = tmp_path / "written"
    written_out.write_bytes(with_holes.read_bytes())
    found = digest(with_holes)
    assert found == digest(written_out)
    assert copy(with_holes, tmp_path / "copy") == 300_000
    assert (tmp_path / "copy").read_bytes() == with_holes.read_bytes()
    longer = tmp_path / "longer"
    longer.write_bytes(with_holes.read_bytes() + b"\0")
    assert digest(longer) != found
    changed = bytearray(with_holes.read_bytes())
    changed[150_000] ^= 1
    (tmp_path / "changed").write_bytes(changed)
    assert digest(tmp_path / "changed") != found


def test_the_same_data_elsewhere_is_another_content(tmp_path: Path) -> None:
    found = {
        digest(write_at(tmp_path / f"{offset}", 1_000_000, **{f"at_{offset}": b"data"}))
        for offset in (0, 1, 65_536, 131_072, 999_996)
    }
    assert len(found) == 5


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert digest(tmp_path / "empty") == file_extents.NO_CONTENTS
    assert copy(tmp_path / "empty", tmp_path / "copy") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="copy_file_range is of Linux")
@pytest.mark.parametrize("how", ["by the kernel", "by reading", "by reading after a while"])
def test_every_way_to_copy_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    real, calls = os.copy_file_range, 0

    def refuse(*arguments: int) -> int:
        nonlocal calls
        calls += 1
        if how == "by reading" or (how == "by reading after a while" and calls > 2):
            raise OSError(18, "Invalid cross-device link")
        return real(*arguments)

    monkeypatch.setattr(os, "copy_file_range", refuse)
    monkeypatch.setattr(file_extents, "_cloned", lambda *_: False)
    source = write_at(tmp_path / "source", 9_000_000, at_0=os.urandom(3_000_000), at_8000000=os.urandom(100_000))
    assert copy(source, tmp_path / "copy", durable=True) == 9_000_000
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    assert (tmp_path / "copy").stat().st_blocks <= source.stat().st_blocks + 64
    assert calls


def counted(answers: int) -> Callable[[], bool]:
    """Says so many times to go on."""
    left = iter(range(answers))
    return lambda: next(left, None) is not None


def test_copies_and_digests_stop_at_the_next_megabyte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_extents, "_cloned", lambda *_: False)
    source = write_at(tmp_path / "source", 8_000_000, at_0=os.urandom(8_000_000))
    with pytest.raises(StoppedError):
        digest(source, Budget(None, counted(3)))
    with pytest.raises(StoppedError):
        copy(source, tmp_path / "copy", Budget(None, counted(3)))
    assert (tmp_path / "copy").stat().st_size <= 3 * file_extents.CHUNK


def test_data_beyond_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_extents, "_cloned", lambda *_: False)
    source = write_at(tmp_path / "source", 8_000_000, at_0=os.urandom(8_000_000))
    limits = FileLimits(bytes=4 * file_extents.CHUNK)
    with pytest.raises(TooMuchError, match=r"more than 4MiB of data \(limits.artifact_bytes\)"):
        digest(source, Budget(limits))
    with pytest.raises(TooMuchError, match=r"limits.artifact_bytes"):
        copy(source, tmp_path / "copy", Budget(limits))


def test_a_file_that_grows_meanwhile_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that a step left behind may append for ever."""
    monkeypatch.setattr(file_extents, "_cloned", lambda *_: False)
    source = write_at(tmp_path / "source", 3_000_000, at_0=os.urandom(3_000_000))

    def grow() -> bool:
        with source.open("ab") as file:
            file.write(bytes(2_000_000))
        return True

    digest(source, Budget(None, grow))
    before = source.stat().st_size
    assert copy(source, tmp_path / "copy", Budget(None, grow)) == before
    assert (tmp_path / "copy").stat().st_size == before
