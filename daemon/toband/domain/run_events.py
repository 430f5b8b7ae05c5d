"""A run's state machine: its events, named in the past tense, and its effects, named in the imperative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from toband.domain.attempt_model import Attempt, Orphans, Progress, ResourceUse, TreeCause, TreeEnding
from toband.domain.run_model import Artifact, Awaited, DeadLetter, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The run left its queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """The step's process has started."""

    step: str
    token: str
    pid: int
    started_at: datetime
    command: str = ""
    """As it ran; empty if its supervisor does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """The step's process tree has ended, and this is its record.

    With `not_started` there never was a process, and `error` says why; with `transient` a retry may help. With
    an ending cause other than EXITED the shim had sent a signal before the main process exited.
    """

    step: str
    token: str
    ending: TreeEnding
    started_at: datetime
    finished_at: datetime
    not_started: bool = False
    transient: bool = False
    error: str = ""
    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    resources: ResourceUse = field(default_factory=ResourceUse)
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    dropped_bytes: int = 0
    command: str = ""
    """As it ran; empty if its supervisor does not say."""
    progress: Progress | None = None
    """The last progress that it reported, if any."""
    result: Any = None
    outputs: Mapping[str, str] = field(default_factory=dict)
    spilled: int = 0
    """Bytes of result and outputs that are in a file of the attempt instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnded:
    """The child run of a `workflow` step has ended."""

    step: str
    token: str
    state: RunState
    error: str
    number: int
    started_at: datetime | None
    finished_at: datetime


def not_started(attempt: Attempt, error: str, at: datetime, *, transient: bool = False) -> AttemptEnded:
    """An attempt that never became a process."""
    return AttemptEnded(
        step=attempt.step,
        token=attempt.token,
        ending=TreeEnding(cause=TreeCause.EXITED),
        started_at=at,
        finished_at=at,
        not_started=True,
        transient=transient,
        error=error,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost:
    """The supervisor died without an end record; whether the step did its work is unknown."""

    step: str
    token: str
    error: str
    orphans: Orphans
    progress: Progress | None = None
    """The last progress that it reported, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptVoided:
    """The attempt never started, and never will."""

    step: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvaluated:
    """The value of `when`, and the items of `for_each`; None where the step has none."""

    step: str
    when: bool = True
    items: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFailed:
    """`when` or `for_each` could not be evaluated."""

    step: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsCollected:
    """The outputs of the attempt were collected. `fingerprint` is of the files that `stop_when_unchanged` watches."""

    step: str
    token: str
    artifacts: tuple[Artifact, ...] = ()
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionFailed:
    """An output is missing, leads out of the workspace, or cannot be stored: the step failed, and may be retried."""

    step: str
    token: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionStopped:
    """Outputs were not collected, because the run is ending."""

    step: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDue:
    """The backoff after that many retries is over."""

    step: str
    retries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationDue:
    """The interval after that iteration is over."""

    step: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeoutPassed:
    """A timeout that no supervisor enforces has passed: of an approval, a wait, a child, or a loop between attempts.

    `attempts` says which attempt of the step was meant; a loop's timeout covers all of them.
    """

    step: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMade:
    """A person approved a step or rejected it."""

    step: str
    approved: bool
    by: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunWait:
    """What a `wait` step waits for. `attempts` says which of its attempts was meant."""

    step: str
    attempts: int
    awaited: Awaited


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsBegun:
    """What these `wait` steps wait for is known."""

    waits: tuple[BegunWait, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFailed:
    """What a step waits for, or whether an event ends its wait, cannot be found out."""

    step: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitOver:
    """The time or the file that a step waited for has come, or the event, as templates see it."""

    step: str
    attempts: int
    event: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """Nothing is launched from now on; running attempts continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequested:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDue:
    """A ready step may be launched now, if it has a slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """`ends_finally`: if the run was cancelled before, its `finally` steps are ended too."""

    reason: str = ""
    ends_finally: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeoutPassed:
    """The run's own timeout, counted from its start, has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinallyTimeoutPassed:
    """The timeout of the `finally` steps, counted from the beginning of the first, has passed."""


Event: TypeAlias = (
    RunStarted
    | AttemptStarted
    | AttemptEnded
    | AttemptLost
    | AttemptVoided
    | ChildEnded
    | StepEvaluated
    | EvaluationFailed
    | OutputsCollected
    | CollectionFailed
    | CollectionStopped
    | RetryDue
    | IterationDue
    | StepTimeoutPassed
    | DecisionMade
    | WaitsBegun
    | WaitFailed
    | WaitOver
    | PauseRequested
    | ResumeRequested
    | LaunchDue
    | CancelRequested
    | RunTimeoutPassed
    | FinallyTimeoutPassed
)


def name_of(event: Event) -> str:
    """The name in the history and the API: `AttemptEnded` is `attempt_ended`."""
    return name_of_type(type(event))


def name_of_type(kind: type) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__).removeprefix("_")


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
class StartFinallyTimer:
    """Asks for FinallyTimeoutPassed at that time. The timer of the run is stopped."""

    due: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRetryTimer:
    """Asks for RetryDue at that time."""

    step: str
    retries: int
    due: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StartIterationTimer:
    """Asks for IterationDue at that time."""

    step: str
    iteration: int
    due: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStepTimer:
    """Asks for StepTimeoutPassed at that time."""

    step: str
    attempts: int
    due: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginWait:
    """Asks for WaitsBegun or WaitFailed."""

    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepWaiting:
    """Asks for WaitOver when what the step waits for has come."""

    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateStep:
    """Asks for StepEvaluated or EvaluationFailed."""

    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOutputs:
    """Asks for OutputsCollected or CollectionFailed. Repeating it is harmless."""

    attempt: Attempt
    final: bool
    """False: a completion check follows, so missing outputs may still appear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCollection:
    """Asks for CollectionStopped, unless the collection is over first. Repeating it is harmless."""

    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepDeadLetter:
    """Saved with the transition itself."""

    letter: DeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchReady:
    """Asks for LaunchDue: the end of one attempt and the launch of the next of the same step are two changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRun:
    """The run has ended: nothing will happen to it any more."""


Effect: TypeAlias = (
    LaunchAttempt
    | StopAttempt
    | StartRunTimer
    | StartFinallyTimer
    | StartRetryTimer
    | StartIterationTimer
    | StartStepTimer
    | BeginWait
    | KeepWaiting
    | EvaluateStep
    | CollectOutputs
    | StopCollection
    | KeepDeadLetter
    | LaunchReady
    | ForgetRun
)
