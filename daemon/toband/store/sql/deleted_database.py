"""Notices that a database file was deleted or replaced while it is open: what is written then is not kept."""

from __future__ import annotations

import os
from collections.abc import Mapping

from toband.ports import StoreGoneError


class OpenFiles:
    """The files that are open, by their paths."""

    def __init__(self) -> None:
        self._known: Mapping[str, tuple[int, int]] = {}

    def remember(self, *paths: str) -> None:
        self._known = {path: found for path in paths if (found := _identity(path)) is not None}

    def check(self) -> None:
        """Raises StoreGoneError if another file, or none, is at one of the paths."""
        for path, known in self._known.items():
            if _identity(path) != known:
                raise StoreGoneError(f"cannot write to the database: {path} was deleted or replaced while in use")


def _identity(path: str) -> tuple[int, int] | None:
    """None if there is no such file."""
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return None
    return facts.st_dev, facts.st_ino
