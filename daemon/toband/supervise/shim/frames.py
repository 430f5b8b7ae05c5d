"""The attempt file: claim, log and end record of one process, in one append-only file of frames.

A frame is a header of 17 bytes, little endian, and a payload:

    u32  length of the payload
    u32  CRC-32 of the rest of the header and the payload
    i64  time, microseconds since the epoch
    u8   kind
    ...  payload

The first frame is the claim (JSON; its `format` is the version of this layout). STDOUT and STDERR frames contain
exactly the bytes of one read; NOTE frames contain a line written by Toban. The last frame of a process that ended under
supervision is the end record: JSON followed by a trailer, the frame's whole size and a magic number, so that it is
found from the end of a file of any size. An incomplete last frame means "not yet" while the shim lives and "torn"
after.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from toband import stored_json

FORMAT = 1

CLAIM = 0
STDOUT = 1
STDERR = 2
NOTE = 3
STARTED = 4
END = 9

HEADER = struct.Struct("<IIqB")
_META = struct.Struct("<qB")
_CHECKED = HEADER.size - _META.size
"""Where the part of a frame begins that its checksum covers."""
_TRAILER = struct.Struct("<I4s")
_MAGIC = b"TBND"
MAX_PAYLOAD = 16 * 1024 * 1024
MAX_CLAIM = 16 * 1024
"""Bytes at the start of a file that contain the whole claim and the STARTED frame after it."""


class Frame(NamedTuple):
    """One whole frame; `end` is the offset after it, where the next one begins."""

    offset: int
    end: int
    at: int
    kind: int
    payload: memoryview


class Scan(NamedTuple):
    """The contents of a buffer: whole frames, the offset to continue from, and whether the data after it is damaged."""

    frames: list[Frame]
    end: int
    damaged: bool


def header(kind: int, at: int, payload: bytes | memoryview) -> bytes:
    crc = zlib.crc32(payload, zlib.crc32(_META.pack(at, kind)))
    return HEADER.pack(len(payload), crc, at, kind)


def encode(kind: int, at: int, payload: bytes) -> bytes:
    return header(kind, at, payload) + payload


def encode_json(kind: int, at: int, value: Any) -> bytes:
    return encode(kind, at, json.dumps(value, separators=(",", ":")).encode())


def encode_end(at: int, record: dict[str, Any]) -> bytes:
    body = json.dumps(record, separators=(",", ":")).encode()
    size = HEADER.size + len(body) + _TRAILER.size
    return encode(END, at, body + _TRAILER.pack(size, _MAGIC))


def scan(data: bytes | memoryview, base: int = 0) -> Scan:
    """Reads whole frames from the start of `data`, which begins at offset `base` of the file."""
    view = memoryview(data)
    frames: list[Frame] = []
    position, size = 0, len(view)
    while size - position >= HEADER.size:
        length, crc, at, kind = HEADER.unpack_from(view, position)
        if length > MAX_PAYLOAD:
            return Scan(frames, base + position, True)
        stop = position + HEADER.size + length
        if stop > size:
            break
        if zlib.crc32(view[position + _CHECKED : stop]) != crc:
            return Scan(frames, base + position, True)
        payload = view[position + HEADER.size : stop]
        frames.append(Frame(base + position, base + stop, at, kind, payload))
        position = stop
    return Scan(frames, base + position, False)


def size_of_first(data: bytes) -> int:
    """The size of the frame that begins there, if its header is complete and plausible."""
    if len(data) < HEADER.size:
        return HEADER.size
    length: int = HEADER.unpack_from(data)[0]
    return HEADER.size + min(length, MAX_PAYLOAD)


def pread(fd: int, size: int, offset: int) -> bytes:
    """Up to `size` bytes from that offset, fewer only at the end of the file."""
    parts = []
    while size > 0:
        part = _pread(fd, size, offset)
        if not part:
            break
        parts.append(part)
        size -= len(part)
        offset += len(part)
    return b"".join(parts)


if sys.platform == "win32":

    def _pread(fd: int, size: int, offset: int) -> bytes:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)

else:
    _pread = os.pread


def read_claim(fd: int) -> dict[str, Any] | None:
    """The first frame, or None if it is not a whole claim."""
    return _object_in(scan(pread(fd, MAX_CLAIM, 0)).frames[:1], CLAIM)


def read_started(fd: int) -> dict[str, Any] | None:
    """The frame that names the started process; it is the second frame, or missing."""
    return _object_in(scan(pread(fd, MAX_CLAIM, 0)).frames[1:2], STARTED)


def _object_in(found: list[Frame], kind: int, trailer: int = 0) -> dict[str, Any] | None:
    """The JSON object in the only frame; None if there is no such frame, or it contains something else."""
    if len(found) != 1 or found[0].kind != kind:
        return None
    payload = found[0].payload
    try:
        return stored_json.parse_object(bytes(payload[: len(payload) - trailer]))
    except ValueError:
        return None


def read_end(fd: int, claim: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """The end record, or None if the file does not end with a whole one of its own. `claim`: if it was read already.

    A step may print another attempt's file, or anything at all, before its supervisor is killed: the last frame is only
    accepted with the seal that the supervisor put into its claim.
    """
    size = os.fstat(fd).st_size
    if size < HEADER.size + _TRAILER.size:
        return None
    length, magic = _TRAILER.unpack(pread(fd, _TRAILER.size, size - _TRAILER.size))
    if magic != _MAGIC or not HEADER.size + _TRAILER.size < length <= size:
        return None
    record = _object_in(scan(pread(fd, length, size - length)).frames, END, _TRAILER.size)
    claim = claim or read_claim(fd)
    if record is None or claim is None:
        return None
    return record if record.get("seal") == claim.get("seal") else None


def log_size(fd: int) -> int:
    """Size of the file without its end record, which `read_end` has found."""
    size = os.fstat(fd).st_size
    length, _ = _TRAILER.unpack(pread(fd, _TRAILER.size, size - _TRAILER.size))
    return size - int(length)


def frames_of(fd: int, *, start: int = 0, chunk: int = 1024 * 1024) -> Iterator[Frame]:
    """All whole, undamaged frames from `start` on, in bounded memory."""
    position = start
    while True:
        want = chunk
        data = pread(fd, want, position)
        found = scan(data, position)
        if not found.frames and len(data) == want and not found.damaged:
            want = HEADER.size + MAX_PAYLOAD
            found = scan(pread(fd, want, position), position)
        yield from found.frames
        if not found.frames or found.damaged:
            return
        position = found.end
