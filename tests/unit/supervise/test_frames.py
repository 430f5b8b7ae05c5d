"""Frames of the attempt file: everything before a truncation or damage is readable."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toband.supervise.shim import frames

Piece = tuple[int, int, bytes]

pieces = st.lists(
    st.tuples(
        st.sampled_from([frames.STDOUT, frames.STDERR, frames.NOTE]),
        st.integers(min_value=-(2**63), max_value=2**63 - 1),
        st.binary(max_size=200),
    ),
    max_size=8,
)
few = settings(max_examples=60)
short = st.text(max_size=10)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | short,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(short, inner, max_size=3),
    max_leaves=8,
)
records = st.dictionaries(short, values, max_size=5)

CLAIM = {"format": frames.FORMAT, "attempt": "a", "token": "t", "pid": 7, "seal": "s"}
END = {"seal": "s", "exit_code": 0}


@pytest.fixture
def fd() -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        yield file.fileno()


def encoded(found: Sequence[Piece]) -> list[bytes]:
    return [frames.encode(kind, at, payload) for kind, at, payload in found]


def taken(scan: frames.Scan) -> list[Piece]:
    return [(frame.kind, frame.at, bytes(frame.payload)) for frame in scan.frames]


def put(fd: int, *parts: bytes) -> int:
    """Makes the file consist of these parts; its size."""
    os.ftruncate(fd, 0)
    return _write(fd, b"".join(parts), 0)


def _write(fd: int, data: bytes, offset: int) -> int:
    # Not pwrite, which Windows has not.
    os.lseek(fd, offset, os.SEEK_SET)
    return os.write(fd, data)


def claim_frame(facts: dict[str, Any] = CLAIM) -> bytes:
    return frames.encode_json(frames.CLAIM, 1, facts)


@few
@given(pieces, st.integers(min_value=0, max_value=2**40))
def test_what_is_written_is_read(written: list[Piece], base: int) -> None:
    data = b"".join(encoded(written))
    found = frames.scan(data, base)

    assert taken(found) == written
    assert (found.end, found.damaged) == (base + len(data), False)
    ends = [base, *(frame.end for frame in found.frames)]
    assert [frame.offset for frame in found.frames] == ends[:-1]


@few
@given(pieces)
def test_every_prefix_holds_whole_frames_only(written: list[Piece]) -> None:
    parts = encoded(written)
    data = b"".join(parts)
    ends = [sum(map(len, parts[:count])) for count in range(len(parts) + 1)]
    for size in range(len(data)):
        whole = sum(end <= size for end in ends[1:])
        found = frames.scan(data[:size])
        assert taken(found) == written[:whole]
        assert (found.end, found.damaged) == (ends[whole], False)


@few
@given(pieces.filter(bool), st.data())
def test_a_flipped_byte_stops_at_its_frame(written: list[Piece], data: st.DataObject) -> None:
    parts = encoded(written)
    victim = data.draw(st.integers(0, len(parts) - 1), label="victim")
    place = data.draw(st.integers(0, len(parts[victim]) - 1), label="place")
    flip = data.draw(st.integers(1, 255), label="flip")
    broken = bytearray(parts[victim])
    broken[place] ^= flip
    start = sum(map(len, parts[:victim]))
    found = frames.scan(b"".join([*parts[:victim], broken, *parts[victim + 1 :]]))

    assert taken(found) == written[:victim]
    assert found.end == start
    # A length that now points behind the end looks like a frame that is not complete yet.
    in_length = place < 4 and int.from_bytes(broken[:4], "little") > len(written[victim][2])
    assert found.damaged or in_length


def test_a_length_that_no_frame_has_is_damage() -> None:
    frame = frames.HEADER.pack(frames.MAX_PAYLOAD + 1, 0, 0, frames.STDOUT)
    assert frames.scan(frame) == frames.Scan([], 0, True)


def test_a_hole_is_damage() -> None:
    """What a power cut leaves of blocks that were allocated and never written."""
    good = frames.encode(frames.STDOUT, 5, b"out")
    found = frames.scan(good + bytes(4096))

    assert [bytes(frame.payload) for frame in found.frames] == [b"out"]
    assert (found.end, found.damaged) == (len(good), True)


@few
@given(records)
def test_a_claim_is_read_with_anything_behind_it(facts: dict[str, Any]) -> None:
    with tempfile.TemporaryFile() as file:
        put(file.fileno(), claim_frame(facts), frames.encode(frames.STDOUT, 2, b"x" * 100_000))
        assert frames.read_claim(file.fileno()) == json.loads(json.dumps(facts))
        assert frames.read_started(file.fileno()) is None


def test_what_was_started_stands_behind_the_claim(fd: int) -> None:
    started = frames.encode_json(frames.STARTED, 2, {"pid": 8, "at": 2})
    put(fd, claim_frame(), started, frames.encode(frames.STDOUT, 3, b"x" * 100_000))
    assert frames.read_started(fd) == {"pid": 8, "at": 2}
    put(fd, claim_frame(), frames.encode(frames.STDOUT, 3, b"x"), started)
    assert frames.read_started(fd) is None


def test_no_prefix_of_a_claim_is_one(fd: int) -> None:
    frame = claim_frame()
    for size in range(len(frame)):
        put(fd, frame[:size])
        assert frames.read_claim(fd) is None
        assert frames.read_started(fd) is None
        assert frames.read_end(fd) is None
    put(fd, frames.encode(frames.STDOUT, 1, b"{}"))
    assert frames.read_claim(fd) is None


@few
@given(records, pieces)
def test_the_end_record_is_found_behind_anything(record: dict[str, Any], log: list[Piece]) -> None:
    record = {**json.loads(json.dumps(record)), "seal": CLAIM["seal"]}
    with tempfile.TemporaryFile() as file:
        put(file.fileno(), claim_frame(), *encoded(log), frames.encode_end(9, record))
        assert frames.read_end(file.fileno()) == record
        found = list(frames.frames_of(file.fileno()))
        assert found[-1].kind == frames.END
        assert len(found) == len(log) + 2


def test_the_end_record_of_a_large_file_is_found_without_reading_it(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    end = frames.encode_end(9, END)
    size = 3 * 1024 * 1024 * 1024
    put(fd, claim_frame())
    _write(fd, end, size)
    read: list[int] = []
    pread = frames.pread

    def counted(fd: int, size: int, offset: int) -> bytes:
        read.append(size)
        return pread(fd, size, offset)

    monkeypatch.setattr(frames, "pread", counted)
    assert frames.read_end(fd) == END
    assert sum(read) < 2 * frames.MAX_CLAIM


def test_a_torn_end_record_is_none(fd: int) -> None:
    start = claim_frame() + frames.encode(frames.STDOUT, 3, b"out")
    end = frames.encode_end(9, END)
    for size in range(len(end)):
        put(fd, start, end[:size])
        assert frames.read_end(fd) is None
    for place in range(len(end)):
        broken = bytearray(end)
        broken[place] ^= 0x10
        put(fd, start, bytes(broken))
        assert frames.read_end(fd) is None


def test_an_end_record_must_be_the_last_thing(fd: int) -> None:
    put(fd, claim_frame(), frames.encode_end(9, END), frames.encode(frames.STDOUT, 10, b"x"))
    assert frames.read_end(fd) is None


@pytest.mark.parametrize("record", [{**END, "seal": "other"}, {"exit_code": 0}])
def test_an_end_record_without_the_seal_of_the_claim_is_none(fd: int, record: dict[str, Any]) -> None:
    put(fd, claim_frame(), frames.encode_end(9, record))
    assert frames.read_end(fd) is None


def test_an_end_record_inside_of_what_was_printed_is_none(fd: int) -> None:
    printed = claim_frame({**CLAIM, "seal": "other"}) + frames.encode_end(9, {**END, "seal": "other"})
    put(fd, claim_frame(), frames.encode(frames.STDOUT, 3, printed))
    assert frames.read_end(fd) is None


@few
@given(pieces, st.integers(min_value=frames.HEADER.size, max_value=300))
def test_frames_are_read_in_chunks_of_any_size(written: list[Piece], chunk: int) -> None:
    with tempfile.TemporaryFile() as file:
        put(file.fileno(), *encoded(written), b"\1\2\3")
        found = list(frames.frames_of(file.fileno(), chunk=chunk))
        assert [(frame.kind, frame.at, bytes(frame.payload)) for frame in found] == written
        for frame in found:
            rest = list(frames.frames_of(file.fileno(), start=frame.offset, chunk=chunk))
            assert rest[0] == frame


def test_reading_stops_before_what_is_damaged(fd: int) -> None:
    parts = encoded([(frames.STDOUT, at, b"%d" % at) for at in range(5)])
    parts[3] = parts[3][:-1] + b"?"
    put(fd, *parts)
    assert [bytes(frame.payload) for frame in frames.frames_of(fd)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("payload", [b"[]", b"7", b'"x"', b"null", b"{", b"\xff", b'{"pid": NaN}', b"[" * 3000])
def test_what_is_no_json_object_is_no_record(fd: int, payload: bytes) -> None:
    put(fd, frames.encode(frames.CLAIM, 1, payload))
    assert frames.read_claim(fd) is None
    put(fd, claim_frame(), frames.encode(frames.STARTED, 2, payload))
    assert frames.read_started(fd) is None
    size = frames.HEADER.size + len(payload) + 8
    trailer = size.to_bytes(4, "little") + b"TBND"
    put(fd, claim_frame(), frames.encode(frames.END, 3, payload + trailer))
    assert frames.read_end(fd) is None
