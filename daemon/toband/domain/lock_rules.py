"""Locks: who may take them now, which steps hold them, and which ended attempts keep them held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from toband.domain.attempt_model import Attempt, TreeCause
from toband.domain.run_model import Phase, Run, StepRun, StepState

Rank = tuple[int, datetime, str, int]
"""Priority (highest first), age (oldest first), run and position."""


@dataclass(frozen=True, slots=True, order=True)
class LockUser:
    """A run that holds locks or waits for them; with `step`, a step or instance of it."""

    run_id: str
    step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest:
    """Locks that a user needs at once, in alphabetical order."""

    user: LockUser
    locks: tuple[str, ...]
    rank: Rank


def grantable(requests: Iterable[LockRequest], free: Mapping[str, int]) -> Iterator[LockRequest]:
    """The requests that may be granted together. `requests` are in order of rank; `free` has every lock they name.

    A request reserves the locks before the first one that is not free. So a later request never overtakes it there, and
    the wait for one lock never delays those who hold an earlier one: reservations follow the order of locks too.
    """
    left = dict(free)
    some_free = sum(count > 0 for count in left.values())
    for request in requests:
        if not some_free:
            return
        for lock in request.locks:
            if left[lock] <= 0:
                break
            left[lock] -= 1
            some_free -= left[lock] == 0
        else:
            yield request


def rank_of(run: Run, attempt: Attempt | None = None) -> Rank:
    """The rank of a run that has not started, or of an attempt of a run."""
    if attempt is None:
        return (-run.priority, run.created_at, run.id, -1)
    return (-run.priority, attempt.created_at, run.id, attempt.ordinal)


def keeps_locks(step: StepRun) -> bool:
    """Whether a step that got its locks still holds them: until it ends, or waits for a retry or an interval.

    A step that still waits for its locks is RUNNING too.
    """
    match step.state:
        case StepState.RUNNING:
            return step.phase not in (Phase.APPROVAL, Phase.WAIT, Phase.GROUP)
        case StepState.CHECKING:
            return True
        case StepState.READY:
            return step.phase in (Phase.CHECK, Phase.NEXT) and not step.retrying and step.not_before is None
        case _:
            return False


def left_processes(attempt: Attempt) -> bool:
    """Whether processes of an ended attempt may still live: its tree was not proved to be gone."""
    ending = attempt.ending
    if ending is None or not attempt.state.terminal:
        return False
    if ending.orphans is not None:
        return not ending.orphans.gone
    ran = attempt.exit_code is not None or attempt.signal is not None or ending.cause is not TreeCause.EXITED
    return ending.survivors > 0 or (ran and not ending.proved_empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockLeftover:
    """A lock that stays held after an attempt, because processes of the attempt may still live.

    `user` took the lock. `pids` are all of these processes, if they are known. `boot_id` is empty if they may run on
    another machine: then the next boot of this one proves nothing.
    """

    lock: str
    user: LockUser
    attempt_id: str
    run_id: str
    workflow: str
    number: int
    """Of the run; 0 if it was deleted."""
    step: str
    since: datetime
    boot_id: str = ""
    pids: tuple[int, ...] = ()
