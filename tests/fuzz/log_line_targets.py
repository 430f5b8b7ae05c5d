"""Readers of lines by their numbers: of logs with any content, and with any index beside them. Paths of hooks."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fuzz.attempt_targets import ATTEMPT, CLAIM, END, FILES, NOW
from fuzz.mutation import mutated_bytes, mutated_frames
from fuzz.target import Check, Target, expect_type
from toband.domain.hook_model import found_at, is_missing, parse_condition, parse_path
from toband.ports import LinePage, LineQuery, TextQuery
from toband.supervise.files.run_files import RunFiles
from toband.supervise.logs import line_index
from toband.supervise.logs.line_reader import LineReader
from toband.supervise.shim import frames

_LINES = 40
_BODY = {"body": {"a": [{"b": 1}], "x y": "z"}, "headers": {"x-event": "push"}}


def _log() -> bytes:
    """With lines in several frames, of both streams."""
    parts = [CLAIM]
    for number in range(_LINES):
        kind = frames.STDERR if number % 3 else frames.STDOUT
        parts.append(frames.encode(kind, NOW + number, b"line %d\n::progress 1/2\nbegun " % number))
    return b"".join((*parts, END))


def _prepared(work: Path) -> tuple[RunFiles, Path]:
    files = RunFiles(str(work / "runs"))
    os.makedirs(files.attempts(ATTEMPT.run_id))
    # Small ones, so that there are checkpoints at all.
    line_index.SPACING = 64
    return files, Path(files.log(ATTEMPT))


def _page(files: RunFiles, *, raw: bool) -> LinePage:
    return LineReader(files).read(ATTEMPT, LineQuery(count=10_000, line_bytes=4096, raw=raw))


@contextlib.contextmanager
def _logs(work: Path) -> Iterator[Check]:
    files, path = _prepared(work)
    index = Path(f"{path}{line_index.SUFFIX}")

    def check(data: bytes) -> str:
        """Lines have their numbers, are found by their text, and are the same with and without an index."""
        path.write_bytes(data)
        index.unlink(missing_ok=True)
        page = _page(files, raw=True)
        for raw in (True, False):
            page = _page(files, raw=raw)
            expect_type(page.total, int, "total")
            assert [line.number for line in page.lines] == list(range(1, len(page.lines) + 1))
            assert page == _page(files, raw=raw), "with an index the lines are others"
            wanted = [line.number for line in page.lines if b"e" in line.data]
            query = TextQuery(text="e", count=10_000, line_bytes=4096, raw=raw)
            found = [line.number for line in LineReader(files).search(ATTEMPT, query).lines]
            assert set(wanted) <= set(found), "a line was not found"
        last = _page(files, raw=False)
        return f"{last.over} {last.damaged}"

    yield check


@contextlib.contextmanager
def _indexes(work: Path) -> Iterator[Check]:
    files, path = _prepared(work)
    path.write_bytes(_log())
    right = _page(files, raw=False)
    index = Path(f"{path}{line_index.SUFFIX}")

    def check(data: bytes) -> str:
        """Whatever an index has become, the lines are those of the log."""
        index.write_bytes(data)
        assert _page(files, raw=False) == right, "the lines are others"
        return str(len(index.read_bytes()) > len(data))

    yield check


def _index(work: Path) -> bytes:
    files, path = _prepared(work)
    path.write_bytes(_log())
    _page(files, raw=False)
    return Path(f"{path}{line_index.SUFFIX}").read_bytes()


@contextlib.contextmanager
def _paths(_work: Path) -> Iterator[Check]:
    def check(data: bytes) -> str:
        text = data.decode(errors="replace")
        with contextlib.suppress(ValueError):
            parse_condition(text)
        try:
            path = parse_path(text)
        except ValueError:
            return "refused"
        return "missing" if is_missing(found_at(path, _BODY)) else "found"

    yield check


def _sample_index() -> bytes:
    spacing = line_index.SPACING
    try:
        with tempfile.TemporaryDirectory() as directory:
            return _index(Path(directory))
    finally:
        line_index.SPACING = spacing


TARGETS = (
    Target(
        name="log-lines",
        reads="the attempt file, by lines",
        mutate=mutated_frames,
        opened=_logs,
        samples=(*FILES, _log()),
    ),
    Target(
        name="line-index",
        reads="the line index beside an attempt file",
        mutate=mutated_bytes,
        opened=_indexes,
        samples=(_sample_index(),),
    ),
    Target(
        name="hook-paths",
        reads="paths and conditions of hooks",
        mutate=mutated_bytes,
        opened=_paths,
        samples=(b"body.a[0].b", b'headers["x-event"]=push', b'body["x y"]'),
    ),
)
