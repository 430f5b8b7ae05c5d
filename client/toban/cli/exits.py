"""Exit codes of `toban`, which scripts may rely on."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended."""

    DONE = 0
    RUN_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    NOT_FOUND = 5
    CONFLICT = 6
    INVALID_DEFINITION = 7
    INTERNAL = 70
    RUN_TIMED_OUT = 124
    RUN_CANCELLED = 130
    DETACHED = 131


# Ctrl-C in a command that follows nothing: the shell's code for SIGINT.
INTERRUPTED = 130
