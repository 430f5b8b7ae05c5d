"""Attempt: one execution of a process of a step, how it ended, and what it used."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from toban.definition import ErrorClass

CHECK = ".check"
"""Suffix of a completion check's name, after the name of its step."""


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


class TreeCause(StrEnum):
    """The cause of a process tree's end."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    IDLE_TIMEOUT = "idle_timeout"
    """It had no output for so long."""
    LOOP_TIMEOUT = "loop_timeout"
    """The step's timeout over all of its iterations."""
    RUN_TIMEOUT = "run_timeout"
    FINALLY_TIMEOUT = "finally_timeout"
    """The timeout of all `finally` steps together."""
    CANCEL = "cancel"
    LIMIT = "limit"
    LOST = "lost"


class Orphans(StrEnum):
    """Fate of the processes that a supervisor left when it died."""

    NONE = "none"
    ENDED = "ended"
    LEFT = "left"
    """Some of them could not be ended."""
    UNKNOWN = "unknown"

    @property
    def gone(self) -> bool:
        return self in (Orphans.NONE, Orphans.ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEnding:
    """How a process tree was ended, and the proof that it is gone.

    `survivors` counts the processes that could not be ended; `survivor_pids` names some of them. `orphans` is None
    unless the supervisor died. `limit` says in words which limit of `resources` the step exceeded. `cgroup`: the tree
    had a cgroup of its own, which was killed as a whole and is empty. `by_daemon`: the supervisor did not act, and the
    daemon ended the tree.
    """

    cause: TreeCause
    signals: tuple[str, ...] = ()
    leftovers: int = 0
    survivors: int = 0
    survivor_pids: tuple[int, ...] = ()
    proved_empty: bool = False
    took: float = 0.0
    orphans: Orphans | None = None
    limit: str = ""
    cgroup: bool = False
    by_daemon: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUse:
    user_time: float = 0.0
    system_time: float = 0.0
    max_rss_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress that a step reported with a line `::progress`. `total` is 0 if it gave none."""

    current: float
    total: float = 0.0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The resource use of a process tree at one moment. `cpu` is in cores, over the time since the previous sample.

    Bytes read and written are counted from the start, over the live processes; None if not reported.
    """

    at: datetime
    cpu: float
    rss_bytes: int
    processes: int
    read_bytes: int | None = None
    written_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A small series of samples of one attempt, oldest first, and the peaks over all samples ever taken."""

    samples: tuple[Sample, ...] = ()
    peak_rss_bytes: int = 0
    peak_processes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One process, at most one is ever started for a token; or one child run, which then has the attempt's id.

    `step` is the id of the step or of its instance, with `.check` behind it for a completion check; `number` counts the
    attempts of that name. `ordinal` counts the attempts of a run in the order of their launch, from 0. `workflow`
    is the workflow of the run, `job` the stored job that it runs, if any.
    """

    id: str
    run_id: str
    step: str
    number: int
    ordinal: int
    token: str
    state: AttemptState
    created_at: datetime
    child: bool = False
    workflow: str = ""
    job: str = ""
    iteration: int = 1
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

    @property
    def owner(self) -> str:
        """The id of the step or instance that it belongs to."""
        return self.step.removesuffix(CHECK)

    @property
    def check(self) -> bool:
        return self.step.endswith(CHECK)
