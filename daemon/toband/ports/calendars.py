"""Files of calendars, as the engine uses them."""

from __future__ import annotations

from typing import Protocol


class CalendarFiles(Protocol):
    def read(self, path: str) -> str:
        """The text of the file; blocks. Raises OSError, and ValueError for a file that is too large or no text."""
        ...
