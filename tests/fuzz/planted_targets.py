"""Targets with a fault each, to see that a session finds it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

from fuzz.mutation import mutated_bytes
from fuzz.target import MIB, Check, Target


def _raises(data: bytes) -> str:
    if len(data) > 3:
        raise KeyError("planted")
    return "ok"


def _needle(data: bytes) -> str:
    if b"needle" in data:
        raise LookupError("found")
    if len(data) < 100:
        raise ValueError("another one")
    return "ok"


def _nests(data: bytes) -> str:
    return _nests(data)


def _hangs(data: bytes) -> str:
    return str(re.fullmatch("(a|a)*b", "a" * 60))


def _crashes(data: bytes) -> str:
    os.kill(os.getpid(), signal.SIGABRT)
    return ""


def _eats(data: bytes) -> str:
    return str(len(bytearray(300 * MIB)) and "ok")


def _eats_all(data: bytes) -> str:
    return str(len(b"x" * 64 * 1024 * MIB))


_kept: list[object] = []


def _keeps(data: bytes) -> str:
    _kept.append(bytearray(b"x" * (MIB // 4)))
    return "ok"


def _leaves_open(data: bytes) -> str:
    _kept.append(os.open(os.devnull, os.O_RDONLY))
    return "ok"


def _burns(data: bytes) -> str:
    return str(sum(range(20_000_000)))


def _is_right(data: bytes) -> str:
    return "abc"[len(data) % 3]


def _target(name: str, check: Check) -> Target:
    @contextlib.contextmanager
    def opened(work: Path) -> Iterator[Check]:
        yield check

    return Target(
        name=name,
        reads="nothing",
        samples=(b"abc",),
        mutate=mutated_bytes,
        opened=opened,
        seconds=2.0 if name == "hangs" else 20.0,
        processor_seconds=0.05 if name == "burns" else 10.0,
        memory=128 * MIB,
    )


CHECKS = {
    "raises": _raises,
    "needle": _needle,
    "nests": _nests,
    "hangs": _hangs,
    "crashes": _crashes,
    "eats": _eats,
    "eats-all": _eats_all,
    "keeps": _keeps,
    "leaves-open": _leaves_open,
    "burns": _burns,
    "is-right": _is_right,
}
TARGETS = {name: _target(name, check) for name, check in CHECKS.items()}
