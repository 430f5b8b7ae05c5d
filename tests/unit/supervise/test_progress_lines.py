"""Progress is found in the raw bytes of an attempt file."""

from __future__ import annotations

import pytest

from toband.domain.run_model import Progress
from toband.supervise.logs.progress_lines import MESSAGE_MOST, last_progress
from toband.supervise.shim import frames


def log(*printed: bytes, kind: int = frames.STDOUT) -> bytes:
    return b"".join(frames.encode(kind, 1, each) for each in printed)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ([b"::progress 5/20 rows\n"], Progress(current=5, total=20, message="rows")),
        ([b"::progress 0.5\n"], Progress(current=0.5)),
        ([b"hello\n::progress 1/2\r\nbye\n"], Progress(current=1, total=2)),
        ([b"::progress 1/3 a\n::progress 2/3 b\n", b"other\n"], Progress(current=2, total=3, message="b")),
        (["::progress 1 行\n".encode()], Progress(current=1, message="行")),
        ([b"::progress 1 " + b"x" * 500 + b"\n"], Progress(current=1, message="x" * MESSAGE_MOST)),
        # Not at the beginning of a line, without a number, or not complete yet.
        ([b"say ::progress 1/2\n"], None),
        ([b"::progress many\n"], None),
        ([b"::progress -1\n"], None),
        ([b"::progress 1/2 half"], None),
        ([b"::progress 1/9\n", b"::progress 2", b"3/90\n"], Progress(current=1, total=9)),
        ([b"nothing\n"], None),
        ([], None),
    ],
)
def test_the_last_line_counts(printed: list[bytes], expected: Progress | None) -> None:
    assert last_progress(log(*printed)) == expected


def test_it_is_found_in_any_part_of_a_log() -> None:
    data = log(b"x" * 100 + b"\n", b"::progress 7/8 done\n", b"y" * 50)
    for start in range(len(data)):
        found = last_progress(data[start:])
        assert found in (None, Progress(current=7, total=8, message="done"))
