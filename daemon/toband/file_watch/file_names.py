"""File names that are not valid text."""

from __future__ import annotations

import os


def is_text(path: str) -> bool:
    """Whether the path can be encoded as UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(path: str) -> str:
    """The path for people, with bytes that are not text escaped. It cannot be opened by that."""
    return path if is_text(path) else os.fsencode(path).decode("utf-8", "backslashreplace")
