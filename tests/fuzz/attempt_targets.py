"""Readers of the files that attempts leave on disk: claim, log, end record, compressed logs, values."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from fuzz.mutation import mutated_bytes, mutated_frames, mutated_json, words_of
from fuzz.target import Check, Target, expect_type
from helpers.supervision import new_attempt
from toband.domain.attempt_model import Attempt, AttemptState, Orphans
from toband.domain.run_events import AttemptEnded, AttemptLost, AttemptStarted, AttemptVoided
from toband.engine.health.health_conditions import Health
from toband.ports import LogKind, OutputTooLargeError
from toband.supervise.artifacts.value_files import ValueFiles
from toband.supervise.files.run_files import RunFiles
from toband.supervise.host.run_archive import RunArchive
from toband.supervise.launch import end_record
from toband.supervise.launch.attempt_probe import AttemptProbe
from toband.supervise.launch.end_record import Claim, EndRecord
from toband.supervise.logs.compressed_log import SUFFIX, compress, encode_member
from toband.supervise.logs.log_reader import LogReader
from toband.supervise.shim import frames

BOOT = "7f2c9a52-1111-2222-3333-444455556666"
ATTEMPT = new_attempt(id="0123456789abcdef", token="fedcba9876543210")
LOST = replace(ATTEMPT, state=AttemptState.LOST)
NOW = 1_790_000_000_000_000

_CLAIM = {
    "format": frames.FORMAT,
    "attempt": ATTEMPT.id,
    "token": ATTEMPT.token,
    "pid": 4242,
    "start": 987654,
    "boot_id": BOOT,
    "seal": "5ea1",
}
_END = {
    "seal": "5ea1",
    "cause": "exited",
    "error": "",
    "pid": 4243,
    "started_at": NOW,
    "finished_at": NOW + 5,
    "exit_code": 0,
    "signal": None,
    "signals": ["TERM"],
    "leftovers": 1,
    "survivors": 1,
    "survivor_pids": [[4244, 1234]],
    "proved_empty": True,
    "limit": "",
    "cgroup": False,
    "took": 0.25,
    "stdout_bytes": 6,
    "stderr_bytes": 4,
    "dropped": 0,
    "user_time": 0.1,
    "system_time": 0.2,
    "max_rss": 4096000,
    "unsynced": False,
    "output": "a=1\nb<<E\nx\nE\n",
    "result": '{"k": [1, 2.5]}',
}


def _file(*parts: bytes) -> bytes:
    return b"".join(parts)


CLAIM = frames.encode_json(frames.CLAIM, NOW, _CLAIM)
STARTED = frames.encode_json(frames.STARTED, NOW + 1, {"pid": 4243, "at": NOW + 1})
OUTPUT = frames.encode(frames.STDOUT, NOW + 2, b"one\ntw") + frames.encode(frames.STDERR, NOW + 3, b"err\n")
NOTE = frames.encode(frames.NOTE, NOW + 4, b"5 bytes of output were dropped here: x\n")
END = frames.encode_end(NOW + 5, _END)
VOID = frames.encode_json(frames.CLAIM, NOW, {"format": 1, "attempt": ATTEMPT.id, "void": True})
FILES = (
    _file(CLAIM, STARTED, OUTPUT, NOTE, END),
    _file(CLAIM, STARTED, OUTPUT),
    _file(CLAIM),
    _file(VOID),
    _file(CLAIM, frames.encode_end(NOW, {**_END, "cause": "nostart", "error": "no such file"})),
    _file(CLAIM, STARTED, frames.encode_end(NOW, {**_END, "cause": "timeout", "signal": 9})),
)


class _StillDisk:
    """A machine that has no process and no cgroup of the claims it is shown: none of them is acted upon."""

    boot_id = BOOT

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDONLY)

    def claim(self, directory: str, name: str, facts: dict[str, Any], second: str) -> int | None:
        return None

    def holder(self, path: str) -> int | None:
        return None

    def locked(self, fd: int) -> bool:
        return False

    def shim(self, claim: Claim) -> int | None:
        return None

    def let_go(self, shim: int) -> None:
        return None

    def end_left(self, attempt: Attempt, claim: Claim | None) -> Orphans:
        return Orphans.UNKNOWN


class _Clock:
    def now(self) -> datetime:
        return end_record.time_of(NOW)

    def monotonic(self) -> float:
        return 0.0


def _prepared(work: Path) -> tuple[RunFiles, Path]:
    files = RunFiles(str(work / "runs"))
    os.makedirs(files.attempts(ATTEMPT.run_id))
    return files, Path(files.log(ATTEMPT))


@contextlib.contextmanager
def _lookup(work: Path) -> Iterator[Check]:
    files, path = _prepared(work)
    clock = _Clock()
    health = Health(clock)
    probe: AttemptProbe[int] = AttemptProbe(files, _StillDisk(), clock, health, "shim.log")

    def check(data: bytes) -> str:
        """An attempt file of any content gives the end of the attempt, or LOST."""
        path.write_bytes(data)
        started = probe.started(ATTEMPT)
        expect_type(started, AttemptStarted | None, "started")
        found = asyncio.run(probe.once(ATTEMPT))
        assert not isinstance(found, int)
        event = probe.event_of(ATTEMPT, found)
        expect_type(event, AttemptEnded | AttemptLost | AttemptVoided, "event")
        return f"{type(event).__name__} {getattr(event, 'error', '')}"

    yield check


@contextlib.contextmanager
def _reader(work: Path) -> Iterator[Check]:
    files, path = _prepared(work)
    logs = LogReader(files)
    archive = RunArchive(files)

    def check(data: bytes) -> str:
        """Whatever a log has become, its readers get on or stop; compressing it changes nothing."""
        path.write_bytes(data)
        plain = _read_through(logs, LOST)
        with path.open("rb") as file:
            compress(str(path), file.fileno())
        packed = Path(f"{path}{SUFFIX}")
        assert _unzipped(packed.read_bytes()) == data, "a compressed log is not the original"
        again = _read_through(logs, LOST)
        assert plain[0] == again[0], "a compressed log is read as another"
        packed.unlink()
        path.write_bytes(data)
        asyncio.run(archive.compress([LOST]))
        packed.unlink(missing_ok=True)
        return plain[1]

    try:
        yield check
    finally:
        asyncio.run(archive.close())
        logs.close()


def _unzipped(data: bytes) -> bytes:
    parts = []
    while data:
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        parts.append(unpacker.decompress(data))
        data = unpacker.unused_data
    return b"".join(parts)


def _read_through(logs: LogReader, attempt: Attempt) -> tuple[object, str]:
    """All that can be read, and how it ended. Each page goes forward."""
    pieces: list[tuple[int, LogKind, bytes]] = []
    offset = pages = 0
    while True:
        page = asyncio.run(logs.read(attempt, offset))
        pieces += [(piece.at, piece.kind, piece.data) for piece in page.pieces]
        pages += 1
        assert page.offset >= offset, "a page goes back"
        if page.over or page.damaged or page.missing or page.offset == offset:
            break
        offset = page.offset
    asyncio.run(logs.progress([attempt]))
    with contextlib.suppress(OutputTooLargeError):
        logs.printed(attempt, LogKind.STDOUT, 64 * 1024)
    return pieces, f"{min(pages, 3)} pages over={page.over} damaged={page.damaged}"


@contextlib.contextmanager
def _compressed(work: Path) -> Iterator[Check]:
    files, path = _prepared(work)
    logs = LogReader(files)
    packed = Path(f"{path}{SUFFIX}")

    def check(data: bytes) -> str:
        """A damaged compressed log is read up to the damage."""
        packed.write_bytes(data)
        return _read_through(logs, LOST)[1]

    try:
        yield check
    finally:
        logs.close()


@contextlib.contextmanager
def _values(work: Path) -> Iterator[Check]:
    files, _ = _prepared(work)
    values = ValueFiles(files)
    path = Path(files.values(ATTEMPT))

    def check(data: bytes) -> str:
        """Values are as they were kept, or cannot be read."""
        path.write_bytes(data)
        try:
            result, outputs = values.load(ATTEMPT)
        except OSError as error:
            return str(error.strerror)
        # Halves of surrogate pairs are escaped in answers: a step may print them.
        assert all(type(each) is str for pair in outputs.items() for each in pair)
        expect_type(result, Any, "result")
        return type(result).__name__

    yield check


@contextlib.contextmanager
def _side_files(work: Path) -> Iterator[Check]:
    files, path = _prepared(work)
    probe: AttemptProbe[int] = AttemptProbe(files, _StillDisk(), _Clock(), Health(_Clock()), "shim.log")

    def check(data: bytes) -> str:
        """A step may write anything to $TOBAN_OUTPUT and as its result: the rest of its end is known all the same."""
        # As the shim puts it into the record: see `_side_file`.
        text = data[: 1024 * 1024].decode(errors="replace")
        end = frames.encode_end(NOW, {**_END, "output": text, "result": text})
        path.write_bytes(CLAIM + STARTED + end)
        found = asyncio.run(probe.once(ATTEMPT))
        assert isinstance(found, EndRecord)
        event = probe.event_of(ATTEMPT, found)
        assert isinstance(event, AttemptEnded)
        assert event.exit_code == 0
        expect_type(event, AttemptEnded, "event")
        return f"{type(event.result).__name__} {len(event.outputs)}"

    yield check


def _mutated_compressed(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Half of the time a right compressed file of a wrong log."""
    if random.randrange(2):
        return mutated_bytes(random, data, others)
    return encode_member(
        mutated_frames(random, random.choice(FILES), FILES),
        last=True,
        whole=bool(random.randrange(2)),
    )


_mutated_output = words_of("=", "<<", "END", "\n", "\r\n", "[", "{", '"', "\\ud83d", "NaN", "1e999")


def _mutated_side_file(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return random.choice((mutated_json, _mutated_output))(random, data, others)


TARGETS = (
    Target(
        name="attempt-file",
        reads="the attempt file, after a restart and when its shim has ended",
        samples=FILES,
        mutate=mutated_frames,
        opened=_lookup,
    ),
    Target(
        name="log",
        reads="the attempt file as a log, plain and compressed",
        samples=FILES,
        mutate=mutated_frames,
        opened=_reader,
    ),
    Target(
        name="compressed-log",
        reads="the compressed attempt file",
        samples=(
            encode_member(FILES[0], last=True, whole=True),
            encode_member(b"\0" * 1024 * 1024) + encode_member(FILES[1], last=True),
        ),
        mutate=_mutated_compressed,
        opened=_compressed,
    ),
    Target(
        name="values",
        reads="the .values of an attempt",
        samples=(json.dumps({"result": [1, {"a": "b"}], "outputs": {"k": "v"}}).encode(),),
        mutate=mutated_json,
        opened=_values,
    ),
    Target(
        name="side-files",
        reads="the .out and .result that a step writes",
        samples=(b"a=1\nb<<END\ntwo\nlines\nEND\n", b'{"a": [1, 2.5, null, "x"]}', b"[]"),
        mutate=_mutated_side_file,
        opened=_side_files,
    ),
)
