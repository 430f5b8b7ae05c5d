"""Unified diffs of two texts."""

from __future__ import annotations

import difflib

from toban.cli.human_text import plain
from toban.cli.render.output import paint
from toban.cli.session import Session


def unified(old: str, new: str, *, before: str, after: str) -> str:
    """A unified diff without a final line break; empty if the texts are equal."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), fromfile=before, tofile=after, lineterm="")
    return "\n".join(lines)


def write_diff(here: Session, diff: str) -> None:
    """Writes a diff, colored on a terminal, with control characters escaped."""
    for line in diff.splitlines():
        if line.startswith(("+++", "---")):
            style = "bold"
        elif line.startswith("@@"):
            style = "cyan"
        else:
            style = {"+": "green", "-": "red"}.get(line[:1], "")
        print(paint(here, plain(line), style))
