"""Reading logs: from any position, the last lines exactly, and waking up for new output."""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.logs import WrittenLog, joined
from helpers.supervision import RUN, new_attempt
from toband.ports import PAGE, LogKind, LogPiece, OutputEnd, OutputTooLargeError
from toband.supervise.artifacts.artifact_store import ArtifactFiles
from toband.supervise.files.run_files import RunFiles
from toband.supervise.logs.log_reader import LogReader

Pieces = list[tuple[LogKind, bytes]]
SOON = 30.0

few = settings(max_examples=60)
text = st.lists(st.sampled_from([b"\n", b"\n", b"a", b"bc", b"\r", b"\xff"]), max_size=6)
pieces = st.lists(st.tuples(st.sampled_from(LogKind), text.map(b"".join)), max_size=12)


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(str(tmp_path))


@pytest.fixture
def logs(files: RunFiles) -> LogReader:
    return LogReader(files)


def out(data: bytes) -> tuple[LogKind, bytes]:
    return LogKind.STDOUT, data


def data_of(pieces: list[LogPiece]) -> list[bytes]:
    return [piece.data for piece in pieces]


async def test_what_an_attempt_printed_can_be_compared(files: RunFiles) -> None:
    artifacts = ArtifactFiles(files)
    seen = []
    for out, err in ((b"a", b""), (b"a", b"b"), (b"ab", b""), (b"", b"a")):
        with WrittenLog(files, "build[3].check") as log:
            log.print((LogKind.STDOUT, out[:1]), (LogKind.STDERR, err), (LogKind.STDOUT, out[1:]))
            seen.append(await artifacts.fingerprint_output(log.attempt))
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3
    missing = await artifacts.fingerprint_output(new_attempt())
    assert missing not in seen
    await artifacts.close()


async def test_a_log_is_read_on_from_where_it_was_left(files: RunFiles, logs: LogReader) -> None:
    with WrittenLog(files) as log:
        log.print(out(b"one"), (LogKind.STDERR, b"two"))
        first = await logs.read(log.attempt, 0)
        nothing = await logs.read(log.attempt, first.offset)
        log.print(out(b"three"))
        second = await logs.read(log.attempt, nothing.offset)
        log.end()
        third = await logs.read(log.attempt, second.offset)
        last = await logs.read(log.attempt, third.offset)

        assert [(each.kind, each.data) for each in first.pieces] == [
            (LogKind.STDOUT, b"one"),
            (LogKind.STDERR, b"two"),
        ]
        assert (list(nothing.pieces), nothing.offset) == ([], first.offset)
        assert data_of(list(second.pieces)) == [b"three"]
        assert [page.over for page in (first, nothing, second)] == [False] * 3
        assert (list(third.pieces), third.over, third.offset) == ([], True, log.size())
        assert (list(last.pieces), last.over, last.offset) == ([], True, log.size())
        assert [page.damaged for page in (first, nothing, second, third, last)] == [False] * 5


async def test_a_log_that_is_not_there_yet_is_empty(logs: LogReader) -> None:
    page = await logs.read(new_attempt(), 0)
    assert (list(page.pieces), page.offset, page.over, page.damaged) == ([], 0, False, False)


async def test_half_a_frame_is_not_there_yet(files: RunFiles, logs: LogReader) -> None:
    with WrittenLog(files) as log:
        log.print(out(b"whole"))
        before = log.size()
        log.print(out(b"half"))
        for size in range(before, log.size()):
            with WrittenLog(files) as other:
                os.ftruncate(other.fd, 0)
                os.pwrite(other.fd, os.pread(log.fd, size, 0), 0)
                page = await logs.read(other.attempt, 0)
            assert data_of(list(page.pieces)) == [b"whole"]
            assert (page.offset, page.over, page.damaged) == (before, False, False)


async def test_damage_is_said_and_what_stands_before_it_is_read(files: RunFiles, logs: LogReader) -> None:
    with WrittenLog(files) as log:
        log.print(out(b"good"))
        place = log.size()
        log.print(out(b"bad"), out(b"behind"))
        log.end()
        os.pwrite(log.fd, b"?", place + 18)
        page = await logs.read(log.attempt, 0)

        assert data_of(list(page.pieces)) == [b"good"]
        assert (page.offset, page.over, page.damaged) == (place, False, True)


async def test_a_position_behind_the_end_is_refused(files: RunFiles, logs: LogReader) -> None:
    with WrittenLog(files) as log:
        log.print(out(b"text"))
        with pytest.raises(ValueError, match="behind the end"):
            await logs.read(log.attempt, log.size() + 1)


@pytest.mark.parametrize("size", [1000, PAGE, 300_000, 1 << 20])
async def test_a_long_log_comes_in_pages(files: RunFiles, logs: LogReader, size: int) -> None:
    written = [os.urandom(count) for count in (200_000, 10, 300_000, PAGE, PAGE + 1, 50_000)]
    with WrittenLog(files) as log:
        log.print(*map(out, written))
        log.end()
        found = b""
        place, over = (0, 0), False
        while not over:
            page = await logs.read(log.attempt, *place, size)
            assert (page.offset, page.skip) > place
            place, over = (page.offset, page.skip), page.over
            data = b"".join(data_of(list(page.pieces)))
            assert len(data) <= size
            found += data
    assert found == b"".join(written)


async def test_a_page_of_tiny_pieces_is_not_large_by_their_number(files: RunFiles, logs: LogReader) -> None:
    with WrittenLog(files) as log:
        log.print(*[out(b"x")] * 3000)
        log.end()
        place, over, found = 0, False, 0
        while not over:
            page = await logs.read(log.attempt, place)
            assert len(page.pieces) <= PAGE // 128
            place, over, found = page.offset, page.over, found + len(page.pieces)
    assert found == 3000


async def test_a_position_behind_the_end_of_a_piece_is_refused(files: RunFiles, logs: LogReader) -> None:
    with WrittenLog(files) as log:
        log.print(out(b"x" * 10))
        first = await logs.read(log.attempt, 0)
        start = first.offset - 27
        assert data_of(list((await logs.read(log.attempt, start, 4)).pieces)) == [b"x" * 6]
        with pytest.raises(ValueError, match="end of a piece"):
            await logs.read(log.attempt, start, 11)


@few
@given(pieces, st.sampled_from(LogKind))
def test_what_a_stream_printed_is_joined(written: Pieces, kind: LogKind) -> None:
    with tempfile.TemporaryDirectory() as root, WrittenLog(RunFiles(root)) as log:
        log.print(*written)
        log.end()
        expected = joined(written, [kind])
        logs = LogReader(RunFiles(root))
        assert logs.printed(log.attempt, kind, len(expected)) == expected
        if expected:
            with pytest.raises(OutputTooLargeError):
                logs.printed(log.attempt, kind, len(expected) - 1)


def test_nothing_was_printed_where_no_log_is(logs: LogReader) -> None:
    assert logs.printed(new_attempt(), LogKind.STDOUT, 10) == b""


async def test_a_watcher_is_woken_by_new_output(files: RunFiles, logs: LogReader) -> None:
    event = asyncio.Event()
    with WrittenLog(files) as log:
        with logs.watching(RUN, event):
            for _ in range(3):
                log.print(out(b"text"))
                await asyncio.wait_for(event.wait(), SOON)
                event.clear()
        logs.close()


async def test_a_watcher_is_woken_by_a_new_attempt(files: RunFiles, logs: LogReader) -> None:
    event = asyncio.Event()
    os.makedirs(files.attempts(RUN))
    with logs.watching(RUN, event), WrittenLog(files):
        await asyncio.wait_for(event.wait(), SOON)
    logs.close()


async def test_many_watchers_share_and_come_and_go(files: RunFiles, logs: LogReader) -> None:
    events = [asyncio.Event() for _ in range(3)]
    with WrittenLog(files) as log:
        with logs.watching(RUN, events[0]), logs.watching(RUN, events[1]):
            with logs.watching(RUN, events[2]):
                log.print(out(b"a"))
                for event in events:
                    await asyncio.wait_for(event.wait(), SOON)
                    event.clear()
            log.print(out(b"b"))
            for event in events[:2]:
                await asyncio.wait_for(event.wait(), SOON)
        assert not events[2].is_set()
        events[0].clear()
        with logs.watching(RUN, events[0]):
            log.print(out(b"c"))
            await asyncio.wait_for(events[0].wait(), SOON)
        logs.close()


async def test_a_watcher_before_the_run_has_a_directory_is_woken_all_the_same(files: RunFiles, logs: LogReader) -> None:
    event = asyncio.Event()
    with logs.watching(RUN, event):
        with WrittenLog(files) as log:
            log.print(out(b"text"))
        await asyncio.wait_for(event.wait(), SOON)
    logs.close()


async def test_a_watcher_is_woken_where_the_system_gives_no_watch(files: RunFiles, logs: LogReader) -> None:
    event = asyncio.Event()
    with WrittenLog(files) as log:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            watch = logs.watching(RUN, event)
            watch.__enter__()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        log.print(out(b"text"))
        await asyncio.wait_for(event.wait(), SOON)
        watch.__exit__(None, None, None)
        logs.close()


async def test_an_error_of_who_watches_is_passed_on(files: RunFiles, logs: LogReader) -> None:
    os.makedirs(files.attempts(RUN))
    with (
        pytest.raises(FileNotFoundError),
        logs.watching(RUN, asyncio.Event()),
    ):
        raise FileNotFoundError(2, "not there", files.attempts(RUN))
    logs.close()


async def test_progress_of_a_log_that_cannot_be_read_is_unknown(files: RunFiles, logs: LogReader) -> None:
    """Progress is a hint: an error of the disk must not fail the call that shows the run."""
    attempt = new_attempt("step")
    assert await logs.progress([attempt]) == [None]
    os.makedirs(files.log(attempt))
    assert await logs.progress([attempt]) == [None]


@few
@given(pieces, st.integers(1, 8))
def test_the_end_of_each_stream_is_exact(written: Pieces, limit: int) -> None:
    with tempfile.TemporaryDirectory() as root, WrittenLog(RunFiles(root)) as log:
        log.print(*written)
        found = asyncio.run(LogReader(RunFiles(root)).ends(log.attempt, limit))
    for kind in LogKind:
        whole = b"".join(data for of, data in written if of is kind)
        end = found.get(kind, OutputEnd())
        assert (end.data, end.truncated) == (whole[-limit:], len(whole) > limit)


async def test_structured_lines_are_not_part_of_what_a_stream_printed(files: RunFiles, logs: LogReader) -> None:
    lines = b"".join(b"::progress %d/9\n" % number for number in range(10_000))
    with WrittenLog(files) as log:
        log.print(out(b"a\n::prog"), (LogKind.STDERR, b"::log level=error bad\n"), out(b"ress 1\n" + lines + b"b\n"))
        log.end()
        ends = await logs.ends(log.attempt, 4)
    assert logs.printed(log.attempt, LogKind.STDOUT, 4) == b"a\nb\n"
    assert logs.printed(log.attempt, LogKind.STDERR, 0) == b""
    assert ends == {LogKind.STDOUT: OutputEnd(b"a\nb\n", False), LogKind.STDERR: OutputEnd(b"bad\n", False)}
