"""The last progress is found from the end of an attempt file."""

from __future__ import annotations

import itertools
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toband.domain.attempt_model import Progress
from toband.supervise.logs.progress_tail import TAIL, progress_before
from toband.supervise.shim import frames

AT = 1_790_000_000_000_000
OUT, ERR = frames.STDOUT, frames.STDERR


def log(*printed: bytes | tuple[int, bytes]) -> bytes:
    pieces = [(OUT, each) if isinstance(each, bytes) else each for each in printed]
    return b"".join(frames.encode(kind, AT, data) for kind, data in pieces)


def found_in(data: bytes) -> Progress | None:
    return progress_before(len(data), lambda size, offset: data[offset : offset + size])


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ([b"::progress 5/20 rows\n"], Progress(current=5, total=20, message="rows")),
        ([b"::progress 1/3 a\n::progress 2/3 b\n", b"other\n"], Progress(current=2, total=3, message="b")),
        # A line may come in several pieces, with the other stream between them.
        ([b"::progress 1/9\n", b"::progress 2", b"3/90\n"], Progress(current=23, total=90)),
        ([b"::prog", (ERR, b"text\n"), b"ress 1/2\n"], Progress(current=1, total=2)),
        ([b"text", b"::progress 1/2\n"], None),
        ([b"text", (ERR, b"::progress 1/2\n"), b"\n"], Progress(current=1, total=2)),
        # Of both streams, the line that ends last counts.
        ([b"::progress 1\n", (ERR, b"::progress 2\n")], Progress(current=2)),
        ([(ERR, b"::progress 2\n"), b"::progress 1\n"], Progress(current=1)),
        ([b"::progress 1/2 half"], None),
        ([b"nothing\n"], None),
        ([(frames.NOTE, b"::progress 1/2\n")], None),
        ([], None),
    ],
)
def test_the_last_line_counts(printed: list[bytes | tuple[int, bytes]], expected: Progress | None) -> None:
    assert found_in(log(*printed)) == expected


@pytest.mark.parametrize("piece", [30, 4096, 256 * 1024])
def test_it_is_found_near_the_end_of_a_large_log(piece: int) -> None:
    noise = os.urandom(piece).replace(b"\n", b" ")
    many = itertools.repeat(noise, 3 * TAIL // piece + 2)
    end = (noise[:-1] + b"\n", b"::progress 7/8 done\n", noise[: TAIL // 4])
    assert found_in(log(*many, *end)) == Progress(current=7, total=8, message="done")
    assert found_in(log(*end, *itertools.repeat(noise, 2 * 1024 * 1024 // piece))) is None


def test_a_report_in_the_middle_of_one_large_piece_is_found() -> None:
    lines = b"".join(b"::progress %d/100000\n" % n for n in range(100_000))
    pieces = [lines[start : start + 256 * 1024] for start in range(0, len(lines), 256 * 1024)]
    assert found_in(log(*pieces)) == Progress(current=99_999, total=100_000)


@settings(max_examples=100)
@given(st.binary(max_size=3000))
def test_any_bytes_have_some_last_progress_or_none(data: bytes) -> None:
    assert found_in(data) is None or b"::progress" in data
