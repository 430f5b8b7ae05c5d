"""What can happen to a run, in the past tense, and what is to be done about it, in the imperative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from toband.domain.model import Attempt, ResourceUse, TreeCause, TreeEnding


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The run left its queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """The step's process is there."""

    step: str
    token: str
    pid: int
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """The step's process tree is gone, and this is its record.

    With `not_started` there never was a process, and `error` says why. With an ending cause other than EXITED the shim
    had sent a signal before the main process exited.
    """

    step: str
    token: str
    ending: TreeEnding
    started_at: datetime
    finished_at: datetime
    not_started: bool = False
    error: str = ""
    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    resources: ResourceUse = field(default_factory=ResourceUse)
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    dropped_bytes: int = 0
    result: Any = None
    outputs: Mapping[str, str] = field(default_factory=dict)


def not_started(attempt: Attempt, error: str, at: datetime) -> AttemptEnded:
    """An attempt that never became a process."""
    return AttemptEnded(
        step=attempt.step,
        token=attempt.token,
        ending=TreeEnding(cause=TreeCause.EXITED),
        started_at=at,
        finished_at=at,
        not_started=True,
        error=error,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost:
    """The supervisor vanished and left no record; whether the step did its work cannot be known.

    `orphans` says what became of the processes it left: `none` and `ended` mean that they are proved gone.
    """

    step: str
    token: str
    error: str
    orphans: str

    @property
    def gone(self) -> bool:
        return self.orphans in ("none", "ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptVoided:
    """The attempt certainly never began, and now never will."""

    step: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDue:
    """A step that is ready may be launched now, if there is room for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeoutPassed:
    """The run's own timeout, counted from its start, is over."""


Event: TypeAlias = (
    RunStarted
    | AttemptStarted
    | AttemptEnded
    | AttemptLost
    | AttemptVoided
    | LaunchDue
    | CancelRequested
    | RunTimeoutPassed
)


def name_of(event: Event) -> str:
    """As the history and the API call it: `AttemptEnded` is `attempt_ended`."""
    name = type(event).__name__
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).removeprefix("_")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAttempt:
    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAttempt:
    """Ends a live attempt: its tree gets TERM, its grace, then KILL. Repeating it is harmless."""

    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRunTimer:
    """Asks for RunTimeoutPassed at that time."""

    due: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchReady:
    """Asks for LaunchDue: the end of one attempt and the launch of the next of the same step are two changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRun:
    """The run is over: nothing will happen to it any more."""


Effect: TypeAlias = LaunchAttempt | StopAttempt | StartRunTimer | LaunchReady | ForgetRun
