"""Compressed logs: the same bytes at the same offsets, also of damaged files."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.logs import WrittenLog, joined
from toband import failpoints
from toband.ports import LogKind, LogPage, StoppedError
from toband.supervise.files.run_files import RunFiles
from toband.supervise.logs import compressed_log
from toband.supervise.logs.compressed_log import (
    MEMBER,
    CompressedLog,
    Indexes,
    compress,
    encode_member,
    read_index,
)
from toband.supervise.logs.log_reader import LogReader
from toband.supervise.shim import frames

Pieces = list[tuple[LogKind, bytes]]

few = settings(max_examples=40)


@pytest.fixture
def small_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few bytes are many members."""
    monkeypatch.setattr(compressed_log, "MEMBER", 64)


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(str(tmp_path))


@pytest.fixture
def logs(files: RunFiles) -> LogReader:
    return LogReader(files)


def packed(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        compress(path, fd)
    finally:
        os.close(fd)


@pytest.fixture
def opened() -> Iterator[Callable[[str], CompressedLog]]:
    fds = []

    def open_log(path: str) -> CompressedLog:
        fds.append(os.open(path, os.O_RDONLY))
        return CompressedLog(fds[-1], read_index(fds[-1]))

    yield open_log
    for fd in fds:
        os.close(fd)


def content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def put(path: str, data: bytes | bytearray) -> None:
    with open(path, "wb") as file:
        file.write(data)


def text_of(page: LogPage) -> bytes:
    return b"".join(piece.data for piece in page.pieces)


@few
@given(
    st.lists(st.binary(max_size=150), min_size=1, max_size=12).map(b"".join),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 2000)), max_size=20),
)
def test_any_range_is_as_it_was(data: bytes, ranges: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as root:
        patch.setattr(compressed_log, "MEMBER", 64)
        path = f"{root}/a.log"
        Path(path).write_bytes(data)
        packed(path)
        if not data:
            return
        assert os.listdir(root) == ["a.log.gz"]
        assert gzip.decompress(Path(f"{path}.gz").read_bytes()) == data
        fd = os.open(f"{path}.gz", os.O_RDONLY)
        try:
            log = CompressedLog(fd, read_index(fd))
            assert (log.size, log.torn) == (len(data), False)
            for offset, size in ranges:
                assert log.read(size, offset) == data[offset : offset + size]
        finally:
            os.close(fd)


def test_members_of_the_real_size(tmp_path: Path, opened: Callable[[str], CompressedLog]) -> None:
    data = os.urandom(MEMBER) + b"line\n" * MEMBER
    path = str(tmp_path / "a.log")
    Path(path).write_bytes(data)
    packed(path)
    log = opened(f"{path}.gz")
    assert log.size == len(data)
    for offset in (0, MEMBER - 7, MEMBER, 3 * MEMBER - 1, len(data) - 5):
        assert log.read(100_000, offset) == data[offset : offset + 100_000]
    assert log.read(len(data), 0) == data
    with gzip.open(f"{path}.gz") as file:
        assert file.read() == data


@pytest.mark.usefixtures("small_members")
async def test_a_log_reads_on_at_the_same_offsets(files: RunFiles, logs: LogReader) -> None:
    with WrittenLog(files) as log:
        log.print(*[(LogKind.STDOUT, b"%d\n" % number) for number in range(200)])
        log.end(exit_code=0)
        whole = await logs.read(log.attempt, 0)
        size = log.size()
        at_end = await logs.read(log.attempt, size)
        places = [frame.offset for frame in frames.scan(content(log.path)).frames]
        before = [await logs.read(log.attempt, offset) for offset in places]
        packed(log.path)

        assert await logs.read(log.attempt, 0) == whole
        assert await logs.read(log.attempt, size) == at_end
        assert [await logs.read(log.attempt, offset) for offset in places] == before
        assert at_end.over
        printed = logs.printed(log.attempt, LogKind.STDOUT, 1 << 20)
        assert printed == b"".join(b"%d\n" % number for number in range(200))
        with pytest.raises(ValueError, match="behind the end"):
            await logs.read(log.attempt, size + 1)


async def test_a_large_log_comes_in_the_same_pages(files: RunFiles, logs: LogReader) -> None:
    written: Pieces = [(LogKind.STDOUT, os.urandom(50_000) + b"\n" * 150_000) for _ in range(30)]

    async def pages() -> list[LogPage]:
        found = [await logs.read(log.attempt, 0)]
        while not found[-1].over:
            found.append(await logs.read(log.attempt, found[-1].offset, found[-1].skip))
        return found

    with WrittenLog(files) as log:
        log.print(*written)
        log.end()
        before = await pages()
        packed(log.path)
        assert await pages() == before
        assert len(before) > 5
        assert b"".join(map(text_of, before)) == joined(written, [LogKind.STDOUT])


async def test_a_stream_goes_on_where_the_file_was_compressed_under_it(files: RunFiles, logs: LogReader) -> None:
    with WrittenLog(files) as log:
        log.print(*[(LogKind.STDOUT, os.urandom(100_000)) for _ in range(40)])
        log.end()
        expected = logs.printed(log.attempt, LogKind.STDOUT, 1 << 30)
        page = await logs.read(log.attempt, 0)
        found = text_of(page)
        packed(log.path)
        while not page.over:
            page = await logs.read(log.attempt, page.offset, page.skip)
            found += text_of(page)
        assert found == expected


@pytest.mark.usefixtures("small_members")
async def test_the_log_of_what_was_lost_is_not_over(files: RunFiles, logs: LogReader) -> None:
    with WrittenLog(files) as log:
        log.print((LogKind.STDOUT, b"x" * 300))
        os.pwrite(log.fd, b"\x20\0\0", log.size())  # half a frame
        packed(log.path)
        first = await logs.read(log.attempt, 0)
        again = await logs.read(log.attempt, first.offset)
    assert text_of(first) == b"x" * 300
    assert (first.over, first.damaged) == (False, False)
    assert (list(again.pieces), again.offset, again.over) == ([], first.offset, False)


@pytest.mark.usefixtures("small_members")
async def test_a_torn_file_is_read_as_far_as_it_goes(files: RunFiles, logs: LogReader) -> None:
    with WrittenLog(files) as log:
        log.print(*[(LogKind.STDOUT, b"%03d" % number) for number in range(100)])
        log.end()
        whole = await logs.read(log.attempt, 0)
        size = log.size()
        packed(log.path)
        data = content(f"{log.path}.gz")
        for cut in range(len(data) - 1, 0, -23):
            put(f"{log.path}.gz", data[:cut])
            page = await logs.read(log.attempt, 0)
            assert page.damaged
            assert whole.pieces[: len(page.pieces)] == page.pieces
            # Only the checksum of gzip may be missing from what is complete.
            assert page.over == (cut > len(data) - 8)
            # A position that was given before is not a wrong one.
            assert (await logs.read(log.attempt, size)).damaged
            await logs.progress([log.attempt])
        put(f"{log.path}.gz", b"")
        nothing = await logs.read(log.attempt, 0)
        assert (list(nothing.pieces), nothing.damaged) == ([], True)


@pytest.mark.usefixtures("small_members")
async def test_a_damaged_member_spoils_nothing_else(files: RunFiles, logs: LogReader) -> None:
    with WrittenLog(files) as log:
        log.print(*[(LogKind.STDOUT, b"%03d" % number) for number in range(100)])
        log.end()
        whole = await logs.read(log.attempt, 0)
        places = [frame.offset for frame in frames.scan(content(log.path)).frames]
        size = log.size()
        packed(log.path)
        data = content(f"{log.path}.gz")
        fd = os.open(f"{log.path}.gz", os.O_RDONLY)
        starts = read_index(fd).starts
        os.close(fd)
        victim = 10
        behind = next(place for place in places if place >= (victim + 1) * 64)
        rest = len(places) - places.index(behind) - 1
        for place in range(starts[victim] + 25, starts[victim + 1]):
            broken = bytearray(data)
            broken[place] ^= 0x55
            put(f"{log.path}.gz", broken)
            page = await logs.read(log.attempt, 0)
            assert page.pieces == whole.pieces[: len(page.pieces)]
            if page.over:
                # Only the checksum of gzip itself was hit.
                assert page == whole
            else:
                # A length that points behind the end looks like a frame that is not complete.
                assert 20 <= len(page.pieces) <= 40
                assert page.damaged or not (await logs.read(log.attempt, page.offset)).pieces
            later = await logs.read(log.attempt, behind)
            assert later.pieces == whole.pieces[-rest:]
            assert later.over
            assert (await logs.read(log.attempt, size)).over


def test_what_is_no_gzip_of_ours_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    for data in (b"", b"text", gzip.compress(b"text"), encode_member(b"abc"), os.urandom(200)):
        path.write_bytes(data)
        fd = os.open(path, os.O_RDONLY)
        index = read_index(fd)
        os.close(fd)
        assert index.torn
        assert not index.whole


async def test_a_header_that_tells_too_few_bytes_is_damage(files: RunFiles, logs: LogReader) -> None:
    """The log continued behind the end in its header, so the position of the next page was refused."""
    with WrittenLog(files) as log:
        log.print(*[(LogKind.STDOUT, b"%03d" % number) for number in range(100)])
        log.end()
        whole = await logs.read(log.attempt, 0)
        packed(log.path)
        data = bytearray(content(f"{log.path}.gz"))
        told = int.from_bytes(data[20:24], "little")
        for fewer in (1, 30, told - 1):
            data[20:24] = (told - fewer).to_bytes(4, "little")
            put(f"{log.path}.gz", data)
            page = await logs.read(log.attempt, 0)
            assert page.damaged
            assert page.pieces == whole.pieces[: len(page.pieces)]
            assert page.offset <= told - fewer
            assert (await logs.read(log.attempt, page.offset)).damaged


def test_indexes_are_remembered_and_not_mixed_up(tmp_path: Path) -> None:
    indexes = Indexes()
    fds = []
    for number in range(40):
        path = tmp_path / f"{number}.log"
        path.write_bytes(b"x" * (number + 1))
        packed(str(path))
        fds.append(os.open(f"{path}.gz", os.O_RDONLY))
    for _ in range(2):
        for number, fd in enumerate(fds):
            assert indexes.of(fd).size == number + 1
    assert indexes.of(fds[-1]) is indexes.of(fds[-1])
    for fd in fds:
        os.close(fd)


def test_a_file_that_grows_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 10)
    fd = os.open(path, os.O_RDWR)

    def growing() -> bool:
        os.pwrite(fd, b"y", 10)
        return True

    with pytest.raises(OSError, match="still grows"):
        compress(str(path), fd, go_on=growing)
    os.close(fd)
    assert os.listdir(tmp_path) == ["a.log"]


def test_work_that_is_broken_off_leaves_all_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 10)
    fd = os.open(path, os.O_RDONLY)
    with pytest.raises(StoppedError):
        compress(str(path), fd, go_on=lambda: False)
    os.close(fd)
    assert os.listdir(tmp_path) == ["a.log"]
    assert path.read_bytes() == b"x" * 10


@pytest.mark.parametrize("place", ["compress.written", "compress.renamed"])
def test_an_error_at_any_point_leaves_the_log_readable(tmp_path: Path, place: str) -> None:
    path = tmp_path / "a.log"
    data = b"x" * 10_000
    path.write_bytes(data)
    failpoints.arm(f"{place}=EIO")
    with pytest.raises(OSError, match="failpoint"):
        packed(str(path))
    failpoints.arm("")
    assert path.read_bytes() == data
    # And once more, over what may be there already.
    packed(str(path))
    assert os.listdir(tmp_path) == ["a.log.gz"]
    assert gzip.decompress((tmp_path / "a.log.gz").read_bytes()) == data
