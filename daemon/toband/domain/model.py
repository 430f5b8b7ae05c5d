"""What a run is made of.

Everything here is a value: frozen, compared by content, changed with `dataclasses.replace`. Times are aware UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


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
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        return self not in (StepState.PENDING, StepState.READY, StepState.RUNNING)


class AttemptState(StrEnum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    LOST = "LOST"

    @property
    def terminal(self) -> bool:
        return self not in (AttemptState.STARTING, AttemptState.RUNNING)


class ErrorClass(StrEnum):
    RETRYABLE_TRANSIENT = "RETRYABLE_TRANSIENT"
    RETRYABLE_RATE_LIMIT = "RETRYABLE_RATE_LIMIT"
    NON_RETRYABLE = "NON_RETRYABLE"
    FATAL = "FATAL"


class Trigger(StrEnum):
    API = "API"
    MANUAL = "MANUAL"


class EndingCause(StrEnum):
    """Why a run ends before its work is done; also the reason of the steps it skips."""

    ABORTED = "aborted"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The first committed cause; it fixes the final state."""

    cause: EndingCause
    at: datetime


class TreeCause(StrEnum):
    """What made a process tree end."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    RUN_TIMEOUT = "run_timeout"
    CANCEL = "cancel"
    LIMIT = "limit"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEnding:
    """How a process tree was ended, and the proof that it is gone.

    `limit` says which limit of `resources` the step went over, in words. `cgroup`: the tree had a cgroup of its own,
    which was killed whole and is empty.
    """

    cause: TreeCause
    signals: tuple[str, ...] = ()
    leftovers: int = 0
    survivors: int = 0
    proved_empty: bool = False
    took: float = 0.0
    orphans: str = ""
    limit: str = ""
    cgroup: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUse:
    user_time: float = 0.0
    system_time: float = 0.0
    max_rss_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a process tree used at one moment. `cpu` is in cores, over the time since the sample before.

    Bytes read and written are counted from the start, over the processes that live; None where the system does not say.
    """

    at: datetime
    cpu: float
    rss_bytes: int
    processes: int
    read_bytes: int | None = None
    written_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A small series of samples of one attempt, oldest first, and the peaks of all that were ever taken."""

    samples: tuple[Sample, ...] = ()
    peak_rss_bytes: int = 0
    peak_processes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One process: at most one is ever started for a token.

    `ordinal` counts the attempts of a run in the order of their launch, from 0.
    """

    id: str
    run_id: str
    step: str
    number: int
    ordinal: int
    token: str
    state: AttemptState
    created_at: datetime
    command: str = ""
    boot_id: str = ""
    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    error_class: ErrorClass | None = None
    error: str = ""
    ending: TreeEnding | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    resources: ResourceUse = field(default_factory=ResourceUse)
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    dropped_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """One step of a run, with its live or last attempt. `losses` counts the attempts that were lost."""

    id: str
    index: int
    state: StepState = StepState.PENDING
    reason: str = ""
    attempts: int = 0
    losses: int = 0
    attempt: Attempt | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    error_class: ErrorClass | None = None
    result: Any = None
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one version of a workflow.

    `sequence` is the number of its last change; a save compares it, so that no change is decided on stale facts.
    `launches` counts the attempts launched so far.
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
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: str = ""
    failed_steps: int = 0
    ended_steps: int = 0
    total_steps: int = 0
    current_step: str = ""
    cancel_requested_at: datetime | None = None
    ending: Ending | None = None
    steps: Mapping[str, StepRun] = field(default_factory=dict)
    sequence: int = 0
    launches: int = 0
    timeout: float | None = None
