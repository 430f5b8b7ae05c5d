"""What is remembered of the time zone database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ZoneNotes(Protocol):
    """By time zone, a year and the digest of the clock changes from then on. Both methods block."""

    def read(self) -> Mapping[str, tuple[int, str]]:
        """Empty if nothing is known."""
        ...

    def keep(self, known: Mapping[str, tuple[int, str]]) -> None:
        """If it cannot be written, the next daemon knows nothing of the zones."""
        ...
