"""Structured lines: the grammar, and exactly the same lines however the bytes are divided."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toband.domain.attempt_model import Progress
from toband.domain.structured_lines import (
    MESSAGE_BYTES,
    PROGRESS_MESSAGE_MOST,
    LineFilter,
    LogLevel,
    LogMessage,
    Segment,
)

LONG = b"x" * MESSAGE_BYTES

LINES = [
    (b"::progress 5/20 rows\n", Progress(current=5, total=20, message="rows")),
    (b"::progress 0.5\n", Progress(current=0.5)),
    (b"::progress 0/0\n", Progress(current=0)),
    (b"::progress 1/2\r\n", Progress(current=1, total=2)),
    (b"::progress 1/2  two  words \n", Progress(current=1, total=2, message="two  words")),
    (b"::progress 1 \n", Progress(current=1)),
    (b"::progress 1 / 2\n", Progress(current=1, message="/ 2")),
    ("::progress 5/20 量子コンピュータ\n".encode(), Progress(current=5, total=20, message="量子コンピュータ")),
    (b"::progress 1 a\xff\n", Progress(current=1, message="a\ufffd")),
    (b"::progress 1 " + LONG + b"\r\n", Progress(current=1, message="x" * PROGRESS_MESSAGE_MOST)),
    (b"::log level=debug a\n", LogMessage(LogLevel.DEBUG, "a")),
    (b"::log level=info a\tb\r\n", LogMessage(LogLevel.INFO, "a\tb")),
    (b"::log level=warning disk: 91% \xff\n", LogMessage(LogLevel.WARNING, "disk: 91% \ufffd")),
    (b"::log level=error " + LONG + b"\n", LogMessage(LogLevel.ERROR, LONG.decode())),
]

TEXTS = [
    b"::progress\n",
    b"::progress \n",
    b"::progress many\n",
    b"::progress -1\n",
    b"::progress +1\n",
    b"::progress 1e3\n",
    b"::progress .5\n",
    b"::progress 1/\n",
    b"::progress 1/2rows\n",
    b"::progress  1/2\n",
    b"::progress 1/2/3\n",
    b"::progress 1234567890123456\n",
    b"::progress 1\tmessage\n",
    b"::progress 1 a\x1b[1m\n",
    b"::progress 1 a\x00\n",
    b"::progress 1 a\rb\n",
    b"::progress 1 " + LONG + b"x\n",
    b"::Progress 1/2\n",
    b" ::progress 1/2\n",
    b"say ::progress 1/2\n",
    b":progress 1/2\n",
    "：：progress 1/2\n".encode(),
    "::progress １/２\n".encode(),
    b"::log warning a\n",
    b"::log level=warn a\n",
    b"::log level=WARNING a\n",
    b"::log level=warning\n",
    b"::log level=warning \n",
    b"::log level=warning  \t\r\n",
    b"::log level=info" + b" x" * MESSAGE_BYTES + b"\n",
    b"::log  level=info a\n",
    b"::log level=info a\x07\n",
    b"::error a\n",
    b"\n",
    b"\r\n",
]


@pytest.mark.parametrize(("line", "meaning"), LINES)
def test_these_are_structured_lines(line: bytes, meaning: Progress | LogMessage) -> None:
    assert LineFilter().feed(line) == [Segment(line, meaning)]
    assert LineFilter().feed(b"text\n" + line + b"more\n") == [
        Segment(b"text\n"),
        Segment(line, meaning),
        Segment(b"more\n"),
    ]
    unended = line.rstrip(b"\r\n")
    lines = LineFilter()
    assert (lines.feed(unended), lines.held) == ([], unended)
    assert lines.finish() == [Segment(unended)]


@pytest.mark.parametrize("line", TEXTS)
def test_everything_else_is_ordinary_text(line: bytes) -> None:
    assert LineFilter().feed(line) == [Segment(line)]


def single(segments: list[Segment]) -> list[Segment]:
    """Progress lines in a row as one segment each."""
    found: list[Segment] = []
    for segment in segments:
        if not isinstance(segment.line, Progress):
            found.append(segment)
            continue
        lines = [each for line in segment.data.splitlines(keepends=True) for each in LineFilter().feed(line)]
        assert lines[-1].line == segment.line
        found += lines
    return found


def merged(segments: list[Segment]) -> list[Segment]:
    """Neighbouring ordinary text as one segment."""
    found: list[Segment] = []
    for segment in segments:
        if segment.line is None and found and found[-1].line is None:
            found[-1] = Segment(found[-1].data + segment.data)
        else:
            found.append(segment)
    return found


known = st.sampled_from([line for line, _ in LINES] + TEXTS)
parts = st.sampled_from(
    [
        b"\n",
        b"\r",
        b"::",
        b":",
        b"progress ",
        b"::progress ",
        b"1",
        b"/2",
        b" row",
        b"::log level=",
        b"info ",
        b"x",
        b"\xe9",
        b"\0",
    ]
)
streams = st.lists(known | parts, max_size=12).map(b"".join)


@given(streams, st.lists(st.integers(0, 10_000), max_size=8))
def test_the_same_lines_are_found_however_the_bytes_are_divided(data: bytes, cuts: list[int]) -> None:
    whole = LineFilter()
    expected = merged(single(whole.feed(data) + whole.finish()))
    lines = LineFilter()
    found: list[Segment] = []
    places = sorted(min(cut, len(data)) for cut in cuts)
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        found += lines.feed(data[start:end])
        assert len(lines.held) < MESSAGE_BYTES + 100
        assert b"".join(each.data for each in found) + lines.held == data[:end]
    assert merged(single(found + lines.finish())) == expected


@given(streams)
def test_each_line_is_judged_by_itself(data: bytes) -> None:
    whole = LineFilter()
    segments = single(whole.feed(data) + whole.finish())
    of_lines = []
    for line in data.split(b"\n"):
        alone = LineFilter()
        of_lines += [each.line for each in alone.feed(line + b"\n") if each.line is not None]
    if not data.endswith(b"\n"):
        last = LineFilter().feed(data.rpartition(b"\n")[2] + b"\n")
        of_lines = of_lines[: len(of_lines) - sum(each.line is not None for each in last)]
    assert [each.line for each in segments if each.line is not None] == of_lines


def test_a_line_that_began_as_text_stays_text() -> None:
    lines = LineFilter(in_text=True)
    assert lines.feed(b"::progress 1/2\n::progress 2/2\n") == [
        Segment(b"::progress 1/2\n"),
        Segment(b"::progress 2/2\n", Progress(current=2, total=2)),
    ]
    lines.feed(b"::prog")
    assert lines.settle() == b"::prog"
    assert lines.feed(b"ress 1/2\n") == [Segment(b"ress 1/2\n")]


def test_many_progress_lines_cost_little() -> None:
    data = b"".join(b"::progress %d/9 rows\n" % number for number in range(100_000)) + b"text\n"
    assert LineFilter().feed(data) == [
        Segment(data[:-5], Progress(current=99_999, total=9, message="rows")),
        Segment(b"text\n"),
    ]
