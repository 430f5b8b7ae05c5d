"""Paths of files that a command writes."""

from __future__ import annotations

import os

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.session import shown


def check_replaceable(path: str) -> None:
    """A new file takes the place of a file only: not of a device such as /dev/null, or a pipe. Raises Failure."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise Failure(
            f"cannot write {shown(path)}: it is no regular file", Exit.USAGE, hint="- writes to standard output"
        )
