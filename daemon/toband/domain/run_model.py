"""The model of a run: its steps, attempts, states and results.

Everything here is a value: frozen, compared by content, changed with `dataclasses.replace`. Times are aware UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from toban.definition import ErrorClass
from toband.domain.attempt_model import Attempt, AttemptState, Progress, TreeCause

INSTANCE_BITS = 14
"""Bits of a position for the instances of one step."""


class RunState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        return self not in (RunState.PENDING, RunState.RUNNING)


class StepState(StrEnum):
    PENDING = "PENDING"
    READY = "READY"
    RUNNING = "RUNNING"
    CHECKING = "CHECKING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    INCOMPLETE = "INCOMPLETE"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        return self not in _OPEN_STEPS

    @property
    def moving(self) -> bool:
        """Neither waiting for others nor ended."""
        return self in _MOVING_STEPS


_MOVING_STEPS = frozenset({StepState.READY, StepState.RUNNING, StepState.CHECKING})
_OPEN_STEPS = _MOVING_STEPS | {StepState.PENDING}


class Phase(StrEnum):
    """The current phase of a READY, RUNNING or CHECKING step, or the phase in which it will start."""

    RUN = "run"
    """Its own attempt."""
    COLLECT = "collect"
    """Its attempt has ended; its outputs are being collected. It is RUNNING, and has no live attempt."""
    CHECK = "check"
    """The completion check."""
    NEXT = "next"
    """Its own attempt, which begins the next iteration."""
    APPROVAL = "approval"
    """RUNNING until a person decides; it has no attempt."""
    WAIT = "wait"
    """RUNNING until what it waits for has come; it has no attempt."""
    GROUP = "group"
    """RUNNING until its instances have ended; it has no attempt."""


class Trigger(StrEnum):
    API = "API"
    MANUAL = "MANUAL"
    RETRY = "RETRY"
    PARENT = "PARENT"
    SCHEDULE = "SCHEDULE"
    EVENT = "EVENT"
    BACKFILL = "BACKFILL"
    """A client asked for the runs of due times of the past."""


class EndingCause(StrEnum):
    """Why a run ends before its work is done."""

    ABORTED = "aborted"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    @property
    def skip_reason(self) -> SkipReason:
        """The skip reason of the steps that never start because of it."""
        return SkipReason(self.value)


class SkipReason(StrEnum):
    """Why a step was skipped."""

    WHEN = "when"
    """Its condition is false."""
    EMPTY = "empty"
    """Its `for_each` has no items."""
    SCOPE = "scope"
    """The run does not select it."""
    UPSTREAM = "upstream"
    """A step that it depends on did not succeed."""
    ABORTED = "aborted"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    REQUESTED = "requested"
    """A retry was told to treat it as succeeded: see `skipped_by` and `skip_note` of the step."""

    @property
    def satisfies(self) -> bool:
        """Whether steps that depend on a step that was skipped for this reason may start."""
        return self in _SATISFYING_SKIPS


_SATISFYING_SKIPS = frozenset({SkipReason.WHEN, SkipReason.EMPTY, SkipReason.SCOPE, SkipReason.REQUESTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The first committed cause; it fixes the final state."""

    cause: EndingCause
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FinallyPart:
    """The last part of a run: all other steps have ended, and its `finally` steps run.

    `state` is the state that the run will have. `ending` says why the `finally` steps end early, if they do.
    """

    state: RunState
    began_at: datetime
    ending: Ending | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """The stored files of one output. `path` is relative to the context directory. An optional one may be empty.

    `state` is of the attempt that left it: other than COMPLETED, the files may be incomplete.
    """

    name: str
    path: str
    type: str = ""
    files: int = 0
    bytes: int = 0
    state: AttemptState = AttemptState.COMPLETED


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """What a `wait` step waits for, with its templates filled in: a time, events of some types, or a file.

    Events up to the sequence `after` were stored before the wait began, and do not count.
    """

    until: datetime | None = None
    events: tuple[str, ...] = ()
    after: int = 0
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """One step of a run, or one instance of a `for_each` step, with its live or last attempt.

    `index` is the step's position in the definition. An instance (`build[3]`) has its step as `parent`, its position
    among the items as `instance`, and its `item`; a step with instances has their number in `instances`, and no
    attempt; `released` of them were launched so far, and `ended` have ended. `attempts` counts its own attempts,
    `checks` those of its completion check. `losses` counts the attempts that were lost, `retries` the retries since
    this iteration, or this check, began. `reason` is for people: why it failed, is retried or was cancelled.
    `skip_reason` is set if it was skipped. `retrying`: it is READY because an attempt failed or was lost; `not_before`
    is set during its backoff, and during the interval between two iterations. `retry_stopped`: it FAILED because the
    run ended before the retry. `overdue` is the timeout that has passed while it was RUNNING or CHECKING: TIMEOUT of
    its child run, LOOP_TIMEOUT of all iterations. `evaluated`: its `when` and `for_each` are settled. `check_token` and
    `check_exit_code` are of the last check that gave a verdict, whose output the next iteration may use. `fingerprint`
    is of the files that `stop_when_unchanged` watches, and `unchanged` says that it was the same after the iteration
    before. `source` is the run that its results and artifacts come from. `spilled`: this many bytes of result and
    outputs are in a file of the attempt. `item_bytes`, above zero: an item of this many bytes was left out of this
    copy. `awaited` is set from when a `wait` step has begun to wait until it ends. `skipped_by` and `skip_note` say who
    skipped it in a retry, and why. `progress` is the last that its last ended attempt had reported.
    """

    id: str
    index: int
    parent: str = ""
    instance: int | None = None
    instances: int = 0
    released: int = 0
    ended: int = 0
    item: Any = None
    item_bytes: int = 0
    state: StepState = StepState.PENDING
    phase: Phase = Phase.RUN
    reason: str = ""
    skip_reason: SkipReason | None = None
    skipped_by: str = ""
    skip_note: str = ""
    retrying: bool = False
    retry_stopped: bool = False
    overdue: TreeCause | None = None
    evaluated: bool = False
    attempts: int = 0
    losses: int = 0
    retries: int = 0
    iteration: int = 0
    checks: int = 0
    check_token: str = ""
    check_exit_code: int | None = None
    fingerprint: str = ""
    unchanged: bool = False
    not_before: datetime | None = None
    awaited: Awaited | None = None
    source: str = ""
    artifacts: tuple[Artifact, ...] = ()
    spilled: int = 0
    progress: Progress | None = None
    attempt: Attempt | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    error_class: ErrorClass | None = None
    result: Any = None
    outputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def position(self) -> int:
        """Its position among all steps and instances of the run: instances follow their step, in order of items."""
        return self.index << INSTANCE_BITS | (0 if self.instance is None else self.instance + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """Protects a run from removal: by whom, and why."""

    at: datetime
    by: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one version of a workflow.

    `sequence` is the number of its last change; a save compares it, so that no change is decided on stale facts.
    `launches` counts the attempts launched so far. `retry_of` is the run that this one repeats, `from_run` the run
    requested as source of the results of steps outside of the scope, `parent_run` and `parent_step` the step whose
    child it is. `schedule` is the id of the schedule that started it, `scheduled_at` the time at which it was due, and
    `missed` are the earlier due times that it represents too. `event` is the event that started it, as templates see
    it; None: none did. `depth` is how many runs are before it in a chain of events. `params_bytes`, above zero:
    parameters of this many bytes were left out of this copy. `total_steps`, `ended_steps`, `failed_steps` and
    `incomplete_steps` count steps of the definition, not instances, and so does `step_states`, by state. `finally_part`
    is None until all steps outside of `finally` have ended. `touched` is the ids of the steps that its last change is
    about.
    """

    id: str
    workflow: str
    version: int
    number: int = 0
    scope: str = "full"
    state: RunState = RunState.PENDING
    trigger: Trigger = Trigger.API
    caller: str = ""
    priority: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    params_bytes: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: str = ""
    failed_steps: int = 0
    incomplete_steps: int = 0
    ended_steps: int = 0
    total_steps: int = 0
    step_states: Mapping[StepState, int] = field(default_factory=dict)
    current_step: str = ""
    progress: Progress | None = None
    cancel_requested_at: datetime | None = None
    paused_at: datetime | None = None
    retry_of: str = ""
    from_run: str = ""
    parent_run: str = ""
    parent_step: str = ""
    schedule: str = ""
    scheduled_at: datetime | None = None
    missed: tuple[datetime, ...] = ()
    event: Mapping[str, Any] | None = None
    depth: int = 0
    pin: Pin | None = None
    ending: Ending | None = None
    finally_part: FinallyPart | None = None
    steps: Mapping[str, StepRun] = field(default_factory=dict)
    sequence: int = 0
    launches: int = 0
    timeout: float | None = None
    touched: frozenset[str] | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return run_name(self.workflow, self.number)

    @property
    def current_ending(self) -> Ending | None:
        """Why the steps that have not ended are being ended, if they are."""
        return self.ending if self.finally_part is None else self.finally_part.ending

    @property
    def by_event(self) -> bool:
        """Whether an event started it directly; False for a repeat of such a run."""
        return self.event is not None and self.trigger in (Trigger.EVENT, Trigger.SCHEDULE)


def run_name(workflow: str, number: int) -> str:
    """What people call a run: `nightly#12`."""
    return f"{workflow}#{number}"


class DeadLetterState(StrEnum):
    OPEN = "OPEN"
    REQUEUED = "REQUEUED"
    DISCARDED = "DISCARDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A step that failed for good after its retries. `requeued_as` is the run that repeats it."""

    id: str
    run_id: str
    workflow: str
    step: str
    attempt_id: str
    attempts: int
    error: str
    error_class: ErrorClass
    created_at: datetime
    state: DeadLetterState = DeadLetterState.OPEN
    resolved_at: datetime | None = None
    resolved_by: str = ""
    requeued_as: str = ""
