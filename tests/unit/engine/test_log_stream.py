"""Log streams over real attempt files: the default view and the raw one, from any position, and the last lines."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.logs import WrittenLog, joined
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.run_model import Run, RunState
from toband.domain.structured_lines import LineFilter, LogLevel, LogMessage
from toband.engine.errors import BadPositionError
from toband.engine.run_notifier import RunNotifier
from toband.engine.runs.log_stream import LogEnd, LogStreams
from toband.engine.runs.log_view import LEVELS, LogPlace
from toband.engine.runs.run_log import LogChunk, LogQuery
from toband.ports import LogKind
from toband.supervise.files.run_files import RunFiles
from toband.supervise.logs.log_reader import LogReader

OUT, ERR, NOTE = LogKind.STDOUT, LogKind.STDERR, LogKind.SYSTEM
STREAMS = (OUT, ERR)
RUN = Run(id="r", workflow="w", version=1, created_at=datetime.now(UTC), launches=1)
Pieces = list[tuple[LogKind, bytes]]

parts = st.sampled_from(
    [
        b"::progress 1/2 row\n",
        b"::progress 1",
        b"::pro",
        b"gress 2\n",
        b"::log level=warning disk\r\n",
        b"::log level=debug x",
        b"text",
        b"\n",
        b"\n",
        b"\xff\r\n",
        b"more\nlines\n",
    ]
)
texts_of = st.lists(parts, min_size=1, max_size=6).map(b"".join)
notes = st.tuples(st.just(NOTE), st.just(b"a note\n"))
pieces = st.lists(st.tuples(st.sampled_from(STREAMS), texts_of) | notes, max_size=10)
pages = st.sampled_from([40, 200, 32 * 1024])
some = settings(max_examples=50, deadline=None)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


class NoRuns:
    def run(self, run_id: str) -> None:
        return None


class Scene:
    """The attempts of one run, whose files a test writes."""

    def __init__(self, runner: asyncio.Runner, files: RunFiles, *logs: WrittenLog) -> None:
        self.log = logs[0]
        self.logs = logs
        self.attempts = [
            replace(log.attempt, ordinal=ordinal, state=AttemptState.RUNNING, pid=1) for ordinal, log in enumerate(logs)
        ]
        self.run = replace(RUN, state=RunState.RUNNING, launches=len(logs))
        self._runner = runner
        self._streams = LogStreams(
            store=cast(Any, self),
            logs=LogReader(files),
            active=cast(Any, NoRuns()),
            launches=cast(Any, self),
            notifier=RunNotifier(),
        )

    async def run_attempts(self, run_id: str, *, from_ordinal: int, limit: int) -> list[Attempt]:
        return self.attempts[from_ordinal : from_ordinal + limit]

    async def get_run_page(self, run_id: str, *, limit: int) -> Run:
        return self.run

    def waits(self, token: str) -> bool:
        return False

    def end(self) -> None:
        for log in self.logs:
            log.end()
        self.attempts = [replace(attempt, state=AttemptState.COMPLETED) for attempt in self.attempts]
        self.run = replace(self.run, state=RunState.SUCCEEDED)

    def read(self, position: str = "", **how: Any) -> list[LogChunk | LogEnd]:
        async def collect() -> list[LogChunk | LogEnd]:
            query = LogQuery(run_id="r", position=position, **how)
            return [item async for item in self._streams.stream(query)]

        return self._runner.run(collect())


@contextmanager
def scene(runner: asyncio.Runner, written: Pieces, page: int = 32 * 1024) -> Iterator[Scene]:
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as root,
        WrittenLog(RunFiles(root)) as log,
    ):
        patch.setattr("toband.engine.runs.log_stream.PAGE", page)
        log.print(*written)
        yield Scene(runner, RunFiles(root), log)


@contextmanager
def ended(runner: asyncio.Runner, written: Pieces, page: int = 32 * 1024) -> Iterator[Scene]:
    with scene(runner, written, page) as made:
        made.end()
        yield made


def texts(items: Sequence[LogChunk | LogEnd]) -> dict[LogKind, bytes]:
    found = dict.fromkeys(LogKind, b"")
    for item in items:
        if isinstance(item, LogChunk):
            for record in item.records:
                found[record.kind] += record.data
    return found


def shown(data: bytes, *, in_text: bool = False) -> bytes:
    """What the default view has of the rest of a stream."""
    lines = LineFilter(in_text=in_text)
    text = b""
    for segment in (*lines.feed(data), *lines.finish()):
        if segment.line is None:
            text += segment.data
        elif isinstance(segment.line, LogMessage):
            text += segment.line.message.encode() + b"\n"
    return text


def within_line(data: bytes) -> bool:
    return bool(data) and not data.endswith(b"\n")


def stored(written: Pieces) -> dict[LogKind, bytes]:
    return {kind: joined(written, [kind]) for kind in LogKind}


def default_view(written: Pieces) -> dict[LogKind, bytes]:
    raw = stored(written)
    return {OUT: shown(raw[OUT]), ERR: shown(raw[ERR]), NOTE: raw[NOTE]}


class Times:
    """The clock of all shims of a run: each piece comes so many microseconds after the one before."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now


@contextmanager
def parallel(runner: asyncio.Runner, count: int, page: int, at_once: int) -> Iterator[tuple[Scene, Times]]:
    """Several attempts, each a step of its own."""
    times = Times()
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as root,
        ExitStack() as stack,
    ):
        patch.setattr("toband.engine.runs.log_stream.PAGE", page)
        patch.setattr("toband.engine.runs.run_log.ATTEMPTS_AT_ONCE", at_once)
        patch.setattr("toband.supervise.shim.attempt_file.now_us", times)
        files = RunFiles(root)
        logs = [stack.enter_context(WrittenLog(files, f"s{number}")) for number in range(count)]
        made = Scene(runner, files, *logs)
        began = datetime.fromtimestamp(times.now / 1_000_000, UTC)
        made.attempts = [replace(attempt, created_at=began, started_at=began) for attempt in made.attempts]
        yield made, times


Printed = tuple[str, LogKind, bytes]


def together(printed: Iterable[Printed]) -> list[Printed]:
    """With neighbours of one stream put together."""
    found: list[Printed] = []
    for step, kind, data in printed:
        if found and found[-1][:2] == (step, kind):
            found[-1] = (step, kind, found[-1][2] + data)
        else:
            found.append((step, kind, data))
    return found


def order(items: Sequence[LogChunk | LogEnd]) -> list[Printed]:
    """The text as it comes."""
    chunks = [item for item in items if isinstance(item, LogChunk)]
    return together((chunk.attempt.step, record.kind, record.data) for chunk in chunks for record in chunk.records)


apart = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(STREAMS), texts_of, st.integers(0, 2)), min_size=1, max_size=30
)


@some
@given(apart, pages, st.sampled_from([1, 3, 100]))
def test_steps_come_in_the_order_in_which_they_printed(
    runner: asyncio.Runner, written: list[tuple[int, LogKind, bytes, int]], page: int, at_once: int
) -> None:
    """A follower of the live run and a reader of the ended one get the same order, from every position on."""
    with parallel(runner, 4, page, at_once) as (run, times):
        expected: list[tuple[int, int, str, LogKind, bytes]] = []
        live: list[LogChunk | LogEnd] = []
        position = ""
        for number, kind, data, later in written:
            if later:
                # Everything of one moment is there before the follower looks.
                live += run.read(position, raw=True)
                position = live[-1].position
            times.now += later
            run.logs[number].print((kind, data))
            expected.append((times.now, number, f"s{number}", kind, data))
        times.now += 1
        run.end()
        live += run.read(position, raw=True)
        expected.sort(key=lambda each: each[:2])
        printed = together(each[2:] for each in expected)
        assert order(live) == printed
        assert order(run.read(raw=True)) == printed
        for raw in (False, True):
            items = run.read(raw=raw)
            for number, item in enumerate(items):
                rest = run.read(item.position, raw=raw)
                assert order(rest) == order(items[number + 1 :])
                assert rest[-1] == items[-1]


def test_an_attempt_is_read_when_its_turn_comes(runner: asyncio.Runner) -> None:
    """A run of 400 attempts, two of them at a time: a stream reads few logs at the same time."""
    with parallel(runner, 400, 32 * 1024, 100) as (run, times):
        expected = []
        for number in range(0, 400, 2):
            pair = (number, number + 1)
            for each in pair:
                began = datetime.fromtimestamp(times.now / 1_000_000, UTC)
                run.attempts[each] = replace(run.attempts[each], created_at=began, started_at=began)
            for word in (b"one\n", b"two\n"):
                for each in pair:
                    times.now += 1
                    run.logs[each].print((OUT, word))
                    expected.append((f"s{each}", OUT, word))
            times.now += 10
        run.end()
        items = run.read()
        assert order(items) == expected
        assert max(len(item.position) for item in items) < 60


def test_a_clock_that_is_set_back_does_not_mix_steps(runner: asyncio.Runner) -> None:
    with parallel(runner, 2, 32 * 1024, 100) as (run, times):
        run.logs[0].print((OUT, b"first\n"))
        times.now -= 500_000
        began = datetime.fromtimestamp(times.now / 1_000_000, UTC)
        run.attempts[1] = replace(run.attempts[1], created_at=began, started_at=began)
        run.logs[1].print((OUT, b"second\n"))
        run.end()
        assert order(run.read()) == [("s0", OUT, b"first\n"), ("s1", OUT, b"second\n")]


def test_the_tail_of_parallel_steps_goes_on_from_every_position(runner: asyncio.Runner) -> None:
    with parallel(runner, 3, 40, 100) as (run, times):
        for line in range(20):
            for log in run.logs:
                times.now += 1
                log.print((OUT, b"line %d\n" % line))
        run.logs[0].end()
        run.attempts[0] = replace(run.attempts[0], state=AttemptState.COMPLETED)
        items = run.read(tail=2)
        for log in run.logs[1:]:
            times.now += 1
            log.print((OUT, b"more\n"), (OUT, b"and more\n"))
        run.end()
        late = run.read(items[-1].position)
        assert order(items)[0] == ("s0", OUT, b"line 18\n")
        assert texts(items)[OUT].count(b"\n") == 6
        for number, item in enumerate(items):
            assert order(run.read(item.position)) == order([*items[number + 1 :], *late])


@some
@given(pieces, pages)
def test_structured_lines_are_left_out_unless_raw(runner: asyncio.Runner, written: Pieces, page: int) -> None:
    with ended(runner, written, page) as log:
        assert texts(log.read()) == default_view(written)
        assert texts(log.read(raw=True)) == stored(written)


@some
@given(pieces, pages)
def test_every_position_gives_exactly_the_rest_in_both_views(
    runner: asyncio.Runner, written: Pieces, page: int
) -> None:
    raw = stored(written)
    with ended(runner, written, page) as log:
        items = log.read()
        for number, item in enumerate(items):
            rest = texts(items[number + 1 :])
            assert texts(log.read(item.position)) == rest
            # The raw view continues with the lines that were held back.
            stored_rest = texts(log.read(item.position, raw=True))
            for kind in STREAMS:
                assert raw[kind].endswith(stored_rest[kind])
                before = raw[kind].removesuffix(stored_rest[kind])
                assert shown(stored_rest[kind], in_text=within_line(before)) == rest[kind]
        items = log.read(raw=True)
        for number, item in enumerate(items):
            rest = texts(items[number + 1 :])
            assert texts(log.read(item.position, raw=True)) == rest
            # Of a line whose beginning was returned, the rest is returned too.
            returned = texts(items[: number + 1])
            expected = {kind: shown(rest[kind], in_text=within_line(returned[kind])) for kind in STREAMS}
            assert texts(log.read(item.position)) == {**expected, NOTE: rest[NOTE]}


@some
@given(pieces, pieces, pages)
def test_a_line_that_is_not_complete_waits_for_its_rest(
    runner: asyncio.Runner, first: Pieces, second: Pieces, page: int
) -> None:
    with scene(runner, first, page) as log:
        before = log.read()
        log.log.print(*second)
        log.end()
        after = log.read(before[-1].position)
        early, late = texts(before), texts(after)
        assert {kind: early[kind] + late[kind] for kind in LogKind} == default_view(first + second)


@some
@given(pieces, pages, st.integers(1, 6), st.booleans(), st.sampled_from([None, *LogLevel]))
def test_the_last_lines_are_exact(
    runner: asyncio.Runner, written: Pieces, page: int, lines: int, raw: bool, level: LogLevel | None
) -> None:
    how: dict[str, Any] = {"raw": raw} if raw else {"level": level}
    with ended(runner, written, page) as log:
        whole = b"".join(record.data for item in log.read(**how)[:-1] for record in cast(LogChunk, item).records)
        items = log.read(tail=lines, **how)
        found = b"".join(record.data for item in items[:-1] for record in cast(LogChunk, item).records)
        # A line ends with a newline and nothing else; the last one may have no end.
        assert found == b"".join(_last(whole, lines))
        for number, item in enumerate(items):
            assert texts(log.read(item.position, **how)) == texts(items[number + 1 :])


def _last(text: bytes, lines: int) -> list[bytes]:
    found = [line + b"\n" for line in text.split(b"\n")]
    found[-1] = found[-1][:-1]
    return [line for line in found if line][-lines:]


def test_records_have_levels(runner: asyncio.Runner) -> None:
    written: Pieces = [
        (OUT, b"text\n::log level=debug a\n::log level=error b"),
        (ERR, b"trouble\n::log level=info c\n"),
        (OUT, b" b\n::progress 1\n"),
        (NOTE, b"a note\n"),
    ]
    with ended(runner, written) as log:
        records = [record for item in log.read()[:-1] for record in cast(LogChunk, item).records]
        assert [(record.kind, record.level, record.message, record.data) for record in records] == [
            (OUT, None, "", b"text\n"),
            (OUT, LogLevel.DEBUG, "a", b"a\n"),
            (ERR, None, "", b"trouble\n"),
            (ERR, LogLevel.INFO, "c", b"c\n"),
            (OUT, LogLevel.ERROR, "b b", b"b b\n"),
            (NOTE, LogLevel.WARNING, "a note", b"a note\n"),
        ]
        times = [record.at for record in records]
        assert times[4] == times[0], "a line has the time of its beginning"
        for level in LogLevel:
            wanted = [record for record in records if (record.level or LEVELS[record.kind]) >= level]
            found = [record for item in log.read(level=level)[:-1] for record in cast(LogChunk, item).records]
            assert found == wanted
        assert texts(log.read(level=LogLevel.WARNING)) == {OUT: b"b b\n", ERR: b"trouble\n", NOTE: b"a note\n"}


def test_a_large_log_of_structured_lines_has_only_the_others(runner: asyncio.Runner) -> None:
    lines = [b"".join(b"::progress %d/9\n" % n for n in range(5000)) for _ in range(60)]
    written: Pieces = [(OUT, data) for data in lines] + [(OUT, b"::log level=info done\n"), (ERR, b"end\n")]
    with ended(runner, written) as log:
        assert texts(log.read()) == {OUT: b"done\n", ERR: b"end\n", NOTE: b""}
        assert texts(log.read(tail=1)) == {OUT: b"", ERR: b"end\n", NOTE: b""}
        assert texts(log.read(tail=2)) == texts(log.read())
        assert texts(log.read(tail=1, raw=True, kinds=[OUT]))[OUT] == b"::log level=info done\n"


@pytest.mark.parametrize(
    "position", ["1.0.0-5lo7", "1.0.0-5l+", "1.0.0-5lx", "1.0.0-5o", "1.0.0-1l1", "1.0.0-0+1le0+2"]
)
def test_a_position_that_no_stream_returned_is_refused(runner: asyncio.Runner, position: str) -> None:
    with ended(runner, [(OUT, b"text\n")]) as log, pytest.raises(BadPositionError):
        log.read(position)


@pytest.mark.parametrize("text", ["0", "7+3", "7+3l", "7lo", "7loe", "7lo5e5+1", "9+1lo9e"])
def test_a_place_has_one_text(text: str) -> None:
    assert str(LogPlace.parse(text)) == text
