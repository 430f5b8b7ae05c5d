"""Backups of the daemon's whole state."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupProgress:
    rows: int
    rows_total: int
    runs: int
    """Whose files are in the archive."""
    runs_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSummary:
    runs: int
    files: int
    bytes: int
    """Of the files, before compression."""
    removed_runs: int
    """Runs that were deleted before their files were read."""
    left_out: tuple[str, ...]
    """Files that could not be read, and why; at most some of them."""
    files_left_out: int


@dataclass(frozen=True, slots=True)
class BackupPiece:
    """A part of the archive, or how far it is. The last piece has the summary; without it the archive is not whole."""

    data: bytes = b""
    progress: BackupProgress | None = None
    summary: BackupSummary | None = None


class Backups(Protocol):
    def write(self, *, with_key: bool) -> AsyncGenerator[BackupPiece, None]:
        """A backup of this moment, while the daemon goes on. Raises StoreError, OSError, SecretKeyError.

        Close it to end it early.
        """
        ...
