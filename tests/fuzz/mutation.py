"""Inputs derived from valid ones: bytes, words, JSON values and attempt files, each with a few changes.

Everything is drawn from the `Random` that is passed in: the same seed gives the same inputs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from toband.supervise.shim import frames

Mutate = Callable[[Random, bytes, Sequence[bytes]], bytes]
"""The random source, the sample to change, and other samples to take parts from."""

LARGEST = 256 * 1024
DEEP = 20_000
_DEEP_LIST = "\ue000deep list\ue000"
_DEEP_MAP = "\ue000deep map\ue000"
_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)
_NUMBERS = (
    0,
    -1,
    1,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**30,
    10**400,
    0.0,
    -0.0,
    0.5,
    1e308,
    -1e308,
    5e-324,
    float("nan"),
    float("inf"),
    float("-inf"),
)
_TEXTS = (
    "",
    " ",
    "\0",
    "\n",
    "x" * 5000,
    "../../../etc/passwd",
    "/dev/null",
    "\ud83d",
    "\udcff",
    "\u202e",
    "\x1b[2J",
    "0",
    "-1",
    "true",
    "null",
    "NaN",
    "1e999",
    "9" * 5000,
    "\u0660",
    "é",
    "当番",
    "\U0001f600",
    "{{",
    "}}",
    "%s",
    "%n",
    "2026-13-45T99:99:99Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00",
    _DEEP_LIST,
    _DEEP_MAP,
)
_WORD = re.compile(rb"\w+|\s+|[^\w\s]")


def mutated_bytes(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """One to four changes that know nothing of the format."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(changed) + 1)
        to = min(len(changed), at + random.choice((1, 1, 2, 4, 8, 64, 1024)))
        match random.randrange(9):
            case 0 if at < len(changed):
                changed[at] ^= 1 << random.randrange(8)
            case 1 if at < len(changed):
                changed[at] = random.choice((*_INTERESTING, random.randrange(256)))
            case 2:
                del changed[at:to]
            case 3:
                changed[at:at] = random.randbytes(random.choice((1, 2, 4, 16)))
            case 4:
                changed[at:at] = changed[at:to] * random.choice((1, 2, 16, 256))
            case 5:
                del changed[at:]
            case 6 if others:
                other = random.choice(others)
                start = random.randrange(len(other) + 1)
                changed[at:] = other[start:]
            case 7 if len(changed) >= 4:
                number = random.choice((0, 1, 2**16, 2**24, 2**31 - 1, 2**32 - 1))
                changed[at : at + 4] = number.to_bytes(4, random.choice(("little", "big")))
            case _:
                changed += b"\0" * random.choice((1, 16, 4096))
    return bytes(changed[:LARGEST])


def words_of(*words: str) -> Mutate:
    """Changes of a text by its words, with these beside those of the samples."""
    known = [word.encode(errors="surrogatepass") for word in words]

    def mutate(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
        if random.randrange(6) == 0:
            return mutated_bytes(random, data, others)
        parts = _WORD.findall(data)
        for _ in range(random.choice((1, 1, 2, 3, 6))):
            at = random.randrange(len(parts) + 1)
            to = min(len(parts), at + random.choice((1, 1, 2, 5, 20)))
            match random.randrange(7):
                case 0:
                    parts[at:to] = [random.choice(known)]
                case 1:
                    parts[at:at] = [random.choice(known)]
                case 2:
                    del parts[at:to]
                case 3:
                    parts[at:at] = parts[at:to] * random.choice((1, 2, 10, 300))
                case 4 if others:
                    parts[at:at] = _slice(random, _WORD.findall(random.choice(others)))
                case 5 if to < len(parts):
                    parts[at], parts[to] = parts[to], parts[at]
                case _:
                    text = random.choice(_TEXTS)
                    parts[at:at] = [text.encode(errors="surrogatepass")]
        return b"".join(parts)[:LARGEST]

    return mutate


def _slice(random: Random, parts: Sequence[bytes]) -> Sequence[bytes]:
    at = random.randrange(len(parts) + 1)
    return parts[at : at + random.choice((1, 3, 10))]


def mutated_value(random: Random, value: Any) -> Any:
    """One change somewhere in a JSON value: a key less or more, another type, an odd number or text, nesting."""
    if isinstance(value, dict) and value and random.randrange(5):
        changed = dict(value)
        key = random.choice(list(changed))
        match random.randrange(6):
            case 0:
                del changed[key]
            case 1:
                changed[random.choice(_TEXTS)] = changed.pop(key)
            case _:
                changed[key] = mutated_value(random, changed[key])
        return changed
    if isinstance(value, list) and value and random.randrange(4):
        items = list(value)
        at = random.randrange(len(items))
        match random.randrange(4):
            case 0:
                del items[at]
            case 1:
                items[at:at] = [items[at]] * random.choice((1, 2, 1000))
            case _:
                items[at] = mutated_value(random, items[at])
        return items
    return _odd_value(random, value)


def _odd_value(random: Random, value: Any) -> Any:
    match random.randrange(10):
        case 0 | 1 | 2:
            return random.choice(_NUMBERS)
        case 3 | 4:
            return random.choice(_TEXTS)
        case 5:
            return random.choice((None, True, False))
        case 6:
            return [value]
        case 7:
            return {"value": value}
        case 8:
            return random.choice(([], {}, [[]], [None], {"": None}))
        case _:
            return str(value) if not isinstance(value, str) else value[: len(value) // 2]


def json_of(value: Any) -> bytes:
    """Also of what no JSON has: NaN, lone surrogates, nesting that no parser goes down into."""
    text = json.dumps(value, separators=(",", ":"))
    for mark, opening, inner, closing in (
        (_DEEP_LIST, "[", "", "]"),
        (_DEEP_MAP, '{"a":', "1", "}"),
    ):
        text = text.replace(json.dumps(mark), opening * DEEP + inner + closing * DEEP)
    return text.encode(errors="surrogatepass")


def mutated_json(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A JSON document that is one still, or, now and then, is none."""
    if random.randrange(8) == 0:
        return mutated_bytes(random, data, others)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return mutated_bytes(random, data, others)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        value = mutated_value(random, value)
    return json_of(value)


def mutated_lines(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A file with a JSON document in each line."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    match random.randrange(6):
        case 0:
            return mutated_bytes(random, data, others)
        case 1:
            del lines[at]
        case 2:
            lines[at:at] = [random.choice(lines)] * random.choice((1, 2, 100))
        case _:
            lines[at] = mutated_json(random, lines[at], lines)
    return b"\n".join(lines)


_JSON_KINDS = (frames.CLAIM, frames.STARTED, frames.END)
_TRAILER_SIZE = 8


def mutated_frames(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """An attempt file, mostly with right checksums around wrong contents."""
    found = frames.scan(data).frames
    if not found or random.randrange(8) == 0:
        return mutated_bytes(random, data, others)
    parts = [(frame.kind, frame.at, bytes(frame.payload)) for frame in found]
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(parts))
        kind, when, payload = parts[at]
        match random.randrange(10):
            case 0 if len(parts) > 1:
                del parts[at]
            case 1:
                parts.insert(random.randrange(len(parts) + 1), parts[at])
            case 2:
                parts[at] = (random.choice((0, 1, 2, 3, 4, 9, 200)), when, payload)
            case 3:
                parts[at] = (kind, random.choice((0, -1, 2**62, -(2**63), 2**63 - 1)), payload)
            case 4 if others:
                taken = frames.scan(random.choice(others)).frames
                parts += [(frame.kind, frame.at, bytes(frame.payload)) for frame in taken[-1:]]
            case 5:
                parts[at] = (kind, when, payload + random.randbytes(random.choice((1, 5000))))
            case _:
                parts[at] = (kind, when, _mutated_payload(random, kind, payload))
    return b"".join(_encoded(kind, when, payload) for kind, when, payload in parts)[:LARGEST]


def _mutated_payload(random: Random, kind: int, payload: bytes) -> bytes:
    body = payload[:-_TRAILER_SIZE] if kind == frames.END else payload
    if kind in _JSON_KINDS:
        return mutated_json(random, body, ()) + (b"\0" * _TRAILER_SIZE if kind == frames.END else b"")
    return mutated_bytes(random, body, ())


def _encoded(kind: int, at: int, payload: bytes) -> bytes:
    if kind == frames.END:
        size = (frames.HEADER.size + len(payload)) & 0xFFFFFFFF
        payload = payload[:-_TRAILER_SIZE] + size.to_bytes(4, "little") + b"TBND"
    return frames.encode(kind, at, payload)
