"""How much output of one attempt is kept: what is beyond is dropped and counted, and the log says so.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

_REFUSED = "the disk would not take them"
_ALL_FULL = "all logs together are as large as they may be"
_UNLIMITED = 1 << 62


def amount(size: int) -> str:
    """A number of bytes for people: 64MiB, 80.3MiB, 700 bytes."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            whole = size % (1 << power) == 0
            return f"{size >> power}{unit}" if whole else f"{size / (1 << power):.1f}{unit}"
    return f"{size} bytes"


class OutputLimit:
    """At most `limit` bytes, and nothing that needs further space while the file `full` exists.

    The daemon makes that file when all logs together have reached their limit.
    """

    __slots__ = ("_full", "_gaps", "_limit", "_room", "dropped")

    def __init__(self, limit: int | None, full: str) -> None:
        self._limit = limit
        self._room = _UNLIMITED if limit is None else limit
        self._full = full
        self._gaps: dict[str, int] = {}
        self.dropped = 0

    @property
    def has_gaps(self) -> bool:
        """Whether bytes were dropped that the log does not mention yet."""
        return bool(self._gaps)

    def within(self, payload: bytes) -> bytes:
        """The part of it that the limit of the attempt lets through; give the size of the rest to `drop_beyond`."""
        return payload if len(payload) <= self._room else payload[: self._room]

    def drop_beyond(self, size: int) -> None:
        if size:
            self._drop(size, f"an attempt may print {amount(self._limit or 0)}")

    def drop_if_all_full(self, size: int) -> bool:
        """Whether these bytes were dropped, because all logs together have reached their limit."""
        if not self._full or not os.access(self._full, os.F_OK):
            return False
        self._drop(size, _ALL_FULL)
        return True

    def drop_refused(self, size: int) -> None:
        self._drop(size, _REFUSED)

    def stored(self, size: int) -> None:
        self._room -= size

    def note_gaps(self, write: Callable[[str], bool]) -> None:
        """Writes a note for each reason why bytes were dropped; one that cannot be written is tried again later."""
        for why, size in list(self._gaps.items()):
            if write(f"{size} bytes of output were dropped here: {why}"):
                del self._gaps[why]

    def _drop(self, size: int, why: str) -> None:
        self._gaps[why] = self._gaps.get(why, 0) + size
        self.dropped += size
