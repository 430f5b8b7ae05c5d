"""The verdict on an attempt from all evidence. The cases are in `tests/unit/supervise/verdict_cases.yaml`.

A step must never run twice. An attempt that may have started is therefore never launched again, even without a file:
only evidence that it cannot have started makes it void.
"""

from __future__ import annotations

from enum import StrEnum


class AttemptFileState(StrEnum):
    """The state of the attempt's file, under either of its names."""

    MISSING = "missing"
    VOID = "void"
    """The daemon took the claim itself, so that no supervisor can."""
    CLAIM = "claim"
    """A supervisor took it; there is no record of an end."""
    END = "end"
    DAMAGED = "damaged"
    """Damaged or forged."""


class Verdict(StrEnum):
    SUPERVISE = "supervise"
    TAKE_RESULT = "take result"
    LOST = "lost"
    LAUNCH_AGAIN = "launch again"


def judge(*, begun: bool, file: AttemptFileState, supervised: bool) -> Verdict:
    """`begun`: the database or this daemon knows that it was claimed. `supervised`: its supervisor lives.

    An attempt without a file, or with a void one, that is not known to have started never did: a supervisor takes the
    claim, under two names, before it starts anything. By now the caller has taken the claim, so it never will.
    """
    if supervised:
        return Verdict.SUPERVISE
    if file is AttemptFileState.END:
        return Verdict.TAKE_RESULT
    if file in (AttemptFileState.MISSING, AttemptFileState.VOID) and not begun:
        return Verdict.LAUNCH_AGAIN
    return Verdict.LOST
