"""Names of files, which need not be text in any encoding."""

from __future__ import annotations

import os


def is_text(path: str) -> bool:
    """Whether everybody who takes text can be given this path."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(path: str) -> str:
    """For people: bytes that are no text are written as in a program. Nothing can be opened by it."""
    return path if is_text(path) else os.fsencode(path).decode("utf-8", "backslashreplace")
