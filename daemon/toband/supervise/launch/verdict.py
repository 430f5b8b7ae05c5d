"""What an attempt has become, by all that is known of it. The cases are in `tests/unit/supervise/verdict_cases.yaml`.

A step must never run twice. An attempt that may have begun is therefore never launched again, whatever its file says or
if there is none: only evidence that it cannot have begun makes it void.
"""

from __future__ import annotations

from enum import StrEnum


class FileState(StrEnum):
    """What the attempt's file says, under either of its names."""

    MISSING = "missing"
    VOID = "void"
    """The daemon took the claim itself, so that no supervisor can."""
    CLAIM = "claim"
    """A supervisor took it; there is no record of an end."""
    END = "end"
    DAMAGED = "damaged"
    """It cannot be believed."""


class Verdict(StrEnum):
    SUPERVISE = "supervise"
    TAKE_RESULT = "take result"
    LOST = "lost"
    LAUNCH_AGAIN = "launch again"


def judge(*, begun: bool, file: FileState, supervised: bool) -> Verdict:
    """`begun`: the database or this daemon knows that it was claimed. `supervised`: its supervisor lives.

    An attempt without a file (or with a void one) that is not known to have begun certainly never did: a supervisor
    takes its claim, under two names, before it starts anything. The caller has taken the claim by then, so that it
    never will.
    """
    if supervised:
        return Verdict.SUPERVISE
    if file is FileState.END:
        return Verdict.TAKE_RESULT
    if file in (FileState.MISSING, FileState.VOID) and not begun:
        return Verdict.LAUNCH_AGAIN
    return Verdict.LOST
