"""Lines of logs by their numbers, and the text in them: compared with a plain reading of the same output."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from toband.domain.structured_lines import LogLevel
from toband.ports import LineQuery, LogKind, NumberedLine, TextQuery
from toband.supervise.logs import line_index
from toband.supervise.logs.compressed_log import compress
from toband.supervise.logs.line_reader import PAGE_BYTES, LineReader
from toband.supervise.shim import frames

ATTEMPT: Any = None


@dataclass
class Files:
    """Of one log."""

    path: str

    def log(self, attempt: object) -> str:
        return self.path


@dataclass
class Written:
    """A log as its shim writes it."""

    path: Path
    at: int = 1_000_000
    pieces: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path.write_bytes(frames.encode_json(frames.CLAIM, self.at, {"format": 1, "seal": self.path.name}))

    def add(self, kind: int, data: bytes) -> None:
        self.at += 1
        self.pieces.append((kind, data))
        with self.path.open("ab") as file:
            file.write(frames.encode(kind, self.at, data))

    def end(self) -> None:
        with self.path.open("ab") as file:
            file.write(frames.encode_end(self.at, {"seal": self.path.name}))

    @property
    def lines(self) -> list[tuple[int, bytes]]:
        """In the order in which they end, and then those that have not ended."""
        found: list[tuple[int, bytes]] = []
        open_lines = {frames.STDOUT: b"", frames.STDERR: b""}
        for kind, data in self.pieces:
            if kind == frames.NOTE:
                found += [(kind, line) for line in data.removesuffix(b"\n").split(b"\n")]
                continue
            *whole, open_lines[kind] = (open_lines[kind] + data).split(b"\n")
            found += [(kind, line) for line in whole]
        return found + [(kind, line) for kind, line in open_lines.items() if line]

    @property
    def shown(self) -> list[tuple[int, bytes]]:
        return [
            (kind, line.removeprefix(b"::log level=error "))
            for kind, line in self.lines
            if not line.startswith(b"::progress 1/2")
        ]


def reader(path: Path) -> LineReader:
    return LineReader(Files(str(path)))  # type: ignore[arg-type]


def read(path: Path, first: int = 1, count: int = 10_000, *, with_reader: LineReader | None = None, **how: Any) -> Any:
    query = LineQuery(first=first, count=count, **{"line_bytes": 2**20, **how})
    return (with_reader or reader(path)).read(ATTEMPT, query)


def found(path: Path, text: str, *, with_reader: LineReader | None = None, **how: Any) -> list[int]:
    """The numbers of the lines with a text, page by page."""
    one, after, numbers = with_reader or reader(path), 0, list[int]()
    while True:
        query = TextQuery(text=text, after=after, **{"count": 7, "line_bytes": 100, **how})
        page = one.search(ATTEMPT, query)
        numbers += [line.number for line in page.lines]
        if page.resume is None:
            return numbers
        after = page.resume


def texts(lines: Iterable[NumberedLine]) -> Sequence[tuple[int, bytes]]:
    codes = {LogKind.STDOUT: frames.STDOUT, LogKind.STDERR: frames.STDERR, LogKind.SYSTEM: frames.NOTE}
    return [(codes[line.kind], line.data) for line in lines]


WORDS = (b"a", b"needle", b"NEEDLE", b"nee", b"dle", b"\n", b"\n", b"\n", b" ", b"\xff\xfe", "日本".encode())
LINES = (b"::progress 1/2 needle\n", b"::log level=error needle was lost\n", b"::progress\n", b"::log level=no\n")


@pytest.mark.parametrize("seed", range(24))
def test_any_output_is_read_as_it_was_written(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_index, "SPACING", random.Random(seed).choice([1, 50, 400]))
    choice = random.Random(seed)
    log = Written(tmp_path / "x.log")
    kept = reader(log.path)
    for number in range(400):
        kind = choice.choice([frames.STDOUT, frames.STDOUT, frames.STDERR, frames.NOTE])
        data = b"".join(choice.choices(WORDS, k=choice.randrange(1, 9)))
        if choice.random() < 0.2 and kind != frames.NOTE:
            data += b"\n" + choice.choice(LINES)
        if choice.random() < 0.02:
            data += b"x" * 9000
        if kind == frames.NOTE:
            data = b"a note of toban\n"
        log.add(kind, data)
        if number % 100 == 50:
            read(log.path, with_reader=kept)  # while it grows
    if seed % 2:
        log.end()
    # Windows replaces no file that is open.
    if seed % 3 == 1 and sys.platform != "win32":
        fd = os.open(log.path, os.O_RDONLY)
        compress(str(log.path), fd)
        os.close(fd)
    for one in (kept, reader(log.path)):
        for raw, right in ((True, log.lines), (False, log.shown)):
            page = read(log.path, with_reader=one, raw=raw)
            assert texts(page.lines) == right
            assert [line.number for line in page.lines] == list(range(1, len(right) + 1))
            assert page.total == len(right) - sum(line.unfinished for line in page.lines)
            assert page.over is bool(seed % 2)
            first = choice.randrange(1, len(right))
            part = read(log.path, first, 5, with_reader=one, raw=raw)
            assert texts(part.lines) == right[first - 1 : first + 4]
            again = read(log.path, 1, 1, with_reader=one, raw=raw, offset=part.lines[0].offset)
            assert again.lines[0].offset >= part.lines[0].offset
            assert texts(read(log.path, -3, 3, with_reader=one, raw=raw).lines) == right[page.total - 3 : page.total]
            for text, ignores in (
                ("needle", False),
                ("NEEdle", True),
                ("本", False),
                ("xxxx", False),
                ("\ufffd", False),
            ):
                wanted = text.lower().encode() if ignores else text.encode()
                numbers = [
                    number
                    for number, (_, line) in enumerate(right, start=1)
                    if wanted in (line.lower() if ignores else line)
                ]
                assert found(log.path, text, with_reader=one, raw=raw, ignore_case=ignores) == numbers, text


def test_a_structured_line_is_its_message(tmp_path: Path) -> None:
    log = Written(tmp_path / "x.log")
    log.add(frames.STDOUT, b"::progress 1/2\n::log level=error it fell\nover\n")
    (one, two) = read(log.path).lines
    assert (one.number, one.data, one.level, two.data, two.level) == (1, b"it fell", LogLevel.ERROR, b"over", None)
    assert read(log.path, raw=True).lines[0].data == b"::progress 1/2"


def test_a_line_of_ten_megabytes(tmp_path: Path) -> None:
    log = Written(tmp_path / "x.log")
    log.add(frames.STDOUT, b"before\n")
    for number in range(160):
        log.add(frames.STDOUT, b"x" * 65_535 + (b"N" if number == 100 else b"y"))
        log.add(frames.STDERR, b"beside %d\n" % number)
    log.add(frames.STDOUT, b"eedle\nafter\x1b[2J\xff\n")
    log.add(frames.STDOUT, b"and " + b"Ne")
    log.add(frames.STDOUT, b"edle")
    log.end()
    first = read(log.path, 162, 2, line_bytes=100)
    assert [(line.number, line.size, line.data[:3]) for line in first.lines] == [
        (162, 10_485_765, b"xxx"),
        (163, 10, b"aft"),
    ]
    assert len(read(log.path, 162, 1).lines[0].data) == 2**20
    assert first.lines[1].data == b"after\x1b[2J\xff"
    assert read(log.path).total == 164
    assert (found(log.path, "Nx"), found(log.path, "yeedle"), found(log.path, "Needle")) == ([162], [162], [164])
    assert found(log.path, "beside 159") == [161]
    assert sum(len(line.data) for line in read(log.path).lines) <= PAGE_BYTES


def test_an_index_that_is_lost_or_damaged_is_made_again(tmp_path: Path) -> None:
    log = Written(tmp_path / "x.log")
    for number in range(20_000):
        log.add(frames.STDOUT, b"line %d of the log, with some more text behind it\n" % number)
    right = read(log.path, 19_000, 3)
    index = Path(f"{log.path}.lines")
    whole = index.read_bytes()
    assert len(whole) < log.path.stat().st_size / 1000
    damages = [
        b"",
        whole[:-5],
        whole[: len(whole) // 2],
        whole[:200] + b"x" + whole[201:],
        b"x" * len(whole),
        whole * 2,
    ]
    for damage in (*damages, whole.replace(whole[8:12], b"abcd")):
        index.write_bytes(damage)
        assert read(log.path, 19_000, 3) == right
        assert index.read_bytes().startswith(whole)
    index.unlink()
    index.mkdir()
    assert read(log.path, 19_000, 3) == right, "it is not written, and not needed"
    index.rmdir()
    index.symlink_to(tmp_path / "elsewhere")
    assert read(log.path, 19_000, 3) == right
    assert not (tmp_path / "elsewhere").exists()
    log.path.unlink()
    assert read(log.path).missing


def test_a_damaged_log_ends_there(tmp_path: Path) -> None:
    log = Written(tmp_path / "x.log")
    log.add(frames.STDOUT, b"one\ntwo\n")
    size = log.path.stat().st_size
    log.add(frames.STDOUT, b"three\n")
    data = bytearray(log.path.read_bytes())
    data[size + 20] ^= 1
    log.path.write_bytes(data)
    page = read(log.path)
    assert ([line.data for line in page.lines], page.damaged, page.over) == ([b"one", b"two"], True, False)
    assert found(log.path, "t") == [2]
