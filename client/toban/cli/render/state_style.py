"""Colors of states."""

from __future__ import annotations

from typing import Final

_STYLES: Final = {
    "succeeded": "green",
    "completed": "green",
    "running": "cyan",
    "checking": "cyan",
    "starting": "cyan",
    "failed": "red",
    "timed out": "red",
    "lost": "red",
    "cancelled": "yellow",
    "incomplete": "yellow",
    "skipped": "dim",
    "pending": "dim",
    "ready": "dim",
}


def state_style(state: str) -> str:
    """The color of a state of a run, a step or a process."""
    return _STYLES.get(state, "")
