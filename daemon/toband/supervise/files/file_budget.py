"""The budget of one call for work on files: bytes, entries and depth; and whether it may continue at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toban.definition import format_size
from toband.ports import StoppedError
from toband.supervise.files.run_directories import always

MOST_DEPTH = 256
"""Depth of nested directories. A path is as long as its tree is deep: without a limit the work is quadratic."""
MOST_APPARENT = 16 * 1024**4
"""Limit on the apparent size of files, holes included: a download writes holes out."""
_SHOWN = 100


class TooMuchError(Exception):
    """A limit is exceeded; the text names the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """Limits for all outputs of a step together. `bytes` counts data only, not the holes of sparse files."""

    bytes: int = 100 * 1024**3
    files: int = 250_000


class Budget:
    """The budget of one call, used by one thread. Without limits it only checks whether to continue, and how fast.

    Both may block: `go_on` for its turn, `pace`, which gets numbers of bytes, for its rate.
    """

    def __init__(
        self,
        limits: FileLimits | None,
        go_on: Callable[[], bool] = always,
        pace: Callable[[int], None] | None = None,
    ) -> None:
        self.limits = limits
        self._go_on = go_on
        self._pace = pace
        self._bytes = 0
        self._files = 0

    def renewed(self, limits: FileLimits | None) -> Budget:
        """A new budget for the same call, with nothing spent."""
        return Budget(limits, self._go_on, self._pace)

    def check(self) -> None:
        """Raises StoppedError. Called at least once for every megabyte and every entry."""
        if not self._go_on():
            raise StoppedError

    def count_entry(self, path: str) -> None:
        """Raises TooMuchError, StoppedError."""
        self.check()
        self._files += 1
        if self.limits is not None and self._files > self.limits.files:
            raise TooMuchError(
                f"{shortened(path)} is one of more than {self.limits.files} files and directories "
                "(limits.artifact_files)"
            )
        self.check_depth(path)

    def check_depth(self, path: str) -> None:
        if self.limits is not None and path.count("/") > MOST_DEPTH:
            raise TooMuchError(f"{shortened(path)} is more than {MOST_DEPTH} directories deep")

    def check_apparent(self, size: int) -> None:
        if self.limits is not None and size > MOST_APPARENT:
            raise TooMuchError(f"it has more than {format_size(MOST_APPARENT)}, counted with the holes of sparse files")

    def spend(self, size: int) -> None:
        """Counts bytes that are about to be read. Raises TooMuchError, StoppedError."""
        self.check()
        self._bytes += size
        if self.limits is not None and self._bytes > self.limits.bytes:
            raise self.too_many_bytes()
        if self._pace is not None:
            self._pace(size)

    def too_many_bytes(self) -> TooMuchError:
        assert self.limits is not None
        return TooMuchError(f"it has more than {format_size(self.limits.bytes)} of data (limits.artifact_bytes)")

    def most_names(self) -> int | None:
        """How many names of a directory to read: one more than allowed is enough to refuse it."""
        return None if self.limits is None else self.limits.files - self._files + 1


def shortened(path: str) -> str:
    return path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…"
