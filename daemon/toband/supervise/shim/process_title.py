"""The title of this process in `ps` and `top`: which attempt a shim supervises.

Standard library only.
"""

from __future__ import annotations

import ctypes

from toband.supervise.shim import process_tree

_PR_SET_NAME = 15
NAME = b"toban: "
"""The beginning of every title."""
_END = b"\x01"
_space: tuple[int, int] | None = None


def reserve() -> None:
    """Finds the memory of this process's arguments, which forks share. Without it titles are not set."""
    global _space
    _space = process_tree.arguments()


def set_title(text: str) -> None:
    """Replaces the arguments of this process, as far as their memory goes."""
    if _space is None:
        return
    start, size = _space
    title = (NAME + text.encode(errors="replace"))[: size - 2]
    # The kernel ends the title at the first NUL if the last byte of the arguments is not one.
    ctypes.memmove(start, title.ljust(size - 1, b"\0") + _END, size)


def short_name(token: str) -> str:
    """What the shim of an attempt is called in `/proc/PID/comm`, at most 15 characters."""
    return f"toban-{token[:8]}"


def set_short_name(name: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
