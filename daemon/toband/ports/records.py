"""Values that the store takes and returns, and the errors with which it refuses a call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from toban.definition import DefinitionKind, EventTrigger
from toband.domain.emitted_events import Emitted, EventRun, EventState, PacedStart
from toband.domain.lock_rules import LockLeftover
from toband.domain.run_model import DeadLetter, Run
from toband.domain.schedule_model import Fire, ScheduleEntry


class UpdateResult(StrEnum):
    """The result of a compare-and-set. Only UPDATED changed anything."""

    UPDATED = "updated"
    NOT_FOUND = "not_found"
    WRONG_STATE = "wrong_state"


class PutOutcome(StrEnum):
    """Effect of applying a definition."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """A definition after it was applied. `users` got a new version because this job changed."""

    outcome: PutOutcome
    version: int
    etag: str
    users: tuple[str, ...] = ()


BY_API = "api"
"""The owner of definitions that came through the API; other owners are paths of files."""


class OwnerKind(StrEnum):
    API = "API"
    FILE = "FILE"
    REMOVED_FILE = "REMOVED_FILE"
    """A file that defined it no longer does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Identifies a repeatable call: the same caller, rpc and id with the same digest is the same call."""

    caller: str
    rpc: str
    id: str
    digest: str


class RequestReusedError(Exception):
    """The id of a request was used before, with a different body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowText:
    """A valid definition, ready to be stored.

    `uses` names the jobs that its steps use. `job_versions` may say which version of a job `parsed` was resolved with
    (not of a job that the same call changes). Nothing is stored if a job is missing or at another version.
    `expected_version` is the version that the stored definition must have to be replaced.

    `schedules` replace those that it had, in the same transaction, with or without a new version. A schedule that is
    written like one of those, in the same zone, continues from its state: `next_due`, `occurrences`, `stored_at`, and
    the meaning that words had when they were stored.
    """

    name: str
    title: str
    description: str
    labels: Mapping[str, str]
    enabled: bool
    source: str
    parsed: Mapping[str, Any]
    base_dir: str
    owner: str = BY_API
    owner_removed: bool = False
    kind: DefinitionKind = DefinitionKind.WORKFLOW
    uses: frozenset[str] = frozenset()
    job_versions: Mapping[str, int] = field(default_factory=dict)
    expected_version: int | None = None
    schedules: tuple[ScheduleEntry, ...] = ()
    triggers: tuple[EventTrigger, ...] = ()
    """They replace those that it had, as the schedules do. Each has a priority."""
    watches: Mapping[str, float] = field(default_factory=dict)
    """Absolute paths whose changes are events, each with its `settle`; they replace those that it had, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowVersion:
    workflow: str
    version: int
    digest: str
    created_at: datetime
    source: str = ""
    base_dir: str = ""
    parsed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWorkflow:
    """A workflow or a job as it is now. `definition` is None in lists.

    `owner` is BY_API or the path of a file. `owner_removed`: that file no longer defines it.
    """

    name: str
    title: str
    description: str
    labels: Mapping[str, str]
    enabled: bool
    version: int
    owner: str
    created_at: datetime
    updated_at: datetime
    etag: str
    kind: DefinitionKind = DefinitionKind.WORKFLOW
    definition: WorkflowVersion | None = None
    owner_removed: bool = False

    @property
    def file(self) -> str:
        """The path of the file that owns it; empty if none does."""
        return self.owner if self.owner_kind is OwnerKind.FILE else ""

    @property
    def owner_kind(self) -> OwnerKind:
        if self.owner == BY_API:
            return OwnerKind.API
        return OwnerKind.REMOVED_FILE if self.owner_removed else OwnerKind.FILE


class WorkflowOwnedError(Exception):
    """The definition has another owner. `args[0]` is its name, `owner` its owner."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(name)
        self.owner = owner


class WorkflowExistsError(Exception):
    """The name is taken: workflows and jobs share one namespace. `args[0]` is the name, `kind` its kind."""

    def __init__(self, name: str, kind: DefinitionKind = DefinitionKind.WORKFLOW) -> None:
        super().__init__(name)
        self.kind = kind


class ConflictError(Exception):
    """A definition has changed since it was read: read it again and decide again. `args[0]` is its name."""


class JobInUseError(Exception):
    """Workflows use the job. `args[0]` is a tuple of their names, in order."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(tuple(names))


class EtagMismatchError(Exception):
    """A definition has changed since it was read. `args[0]` is the current etag, empty if it does not exist."""

    def __init__(self, etag: str, name: str = "") -> None:
        super().__init__(etag)
        self.name = name


class ActiveRunError(Exception):
    """An active run prevents the call. `args[0]` is its id, `name` what people call it: `nightly#12`."""

    def __init__(self, run_id: str, name: str) -> None:
        super().__init__(run_id)
        self.name = name


class RunGoneError(Exception):
    """A run was deleted that a request created, or that another run takes results from. `args[0]` is its id."""


class DeadLetterClosedError(Exception):
    """The dead letter was requeued or discarded before. `letter` says by whom; `run` is the name of the run, if any."""

    def __init__(self, letter: DeadLetter, run: str = "") -> None:
        super().__init__(letter.id)
        self.letter, self.run = letter, run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """One transition of a run, saved atomically.

    Writes the rows of steps and attempts for which `after` has another object than `before`; only attempts of this run.
    `touched` has the ids of steps that may differ, so that others are not compared; None: any may. `events` are stored
    with it, as `add_events` does; they have no dedupe key.
    """

    before: Run
    after: Run
    at: datetime
    event: str
    dead_letters: tuple[DeadLetter, ...] = ()
    touched: Collection[str] | None = None
    events: tuple[Emitted, ...] = ()
    lock_leftovers: tuple[LockLeftover, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """The decision on due times of a schedule, saved atomically.

    `fires` are ledger lines without a run of their own. Each run comes with its line, and with the limit of active runs
    of the workflow, as in `create_run`. If the run cannot be created, its line, and each of `fires` with its `run_id`,
    becomes SKIPPED with the reason. Each event comes with its line; it is stored, as `add_events` does, unless the due
    time has a line already.
    """

    before: ScheduleEntry
    after: ScheduleEntry
    fires: tuple[Fire, ...] = ()
    runs: tuple[tuple[Fire, Run, int | None], ...] = ()
    events: tuple[tuple[Fire, Emitted], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """The created runs, with their numbers, in order; lines that became SKIPPED because their run was not created; and
    lines that were not written because their due time had one already.
    """

    runs: tuple[Run, ...]
    skipped: tuple[Fire, ...] = ()
    repeated: tuple[Fire, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventResolution:
    """The decision on an event, saved atomically.

    `skipped` are workflows that it matches and does not start. Each run comes with its row, and with the limit of
    active runs of the workflow, as in `create_run`; if the run cannot be created, its row becomes SKIPPED with the
    reason. `debounced` are rows of workflows whose run waits for further events, each with its trigger and the scope of
    the run. `throttled` are triggers that limit their runs, by workflow.
    """

    event_id: str
    state: EventState
    at: datetime
    reason: str = ""
    skipped: tuple[EventRun, ...] = ()
    runs: tuple[tuple[EventRun, Run, int | None], ...] = ()
    debounced: tuple[tuple[EventRun, PacedStart, str], ...] = ()
    throttled: Mapping[str, PacedStart] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The event as it is now, and the created runs, with their numbers, in order."""

    event: Emitted
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One transition of a run; `run.steps` has only the steps that it changed."""

    sequence: int
    at: datetime
    event: str
    run: Run


class PositionedChange(NamedTuple):
    """A transition of a run, or its creation, and its position among the changes of all runs. The run has no steps."""

    position: int
    entry: HistoryEntry


class RunOrigin(NamedTuple):
    """The workflow of a run, who caused it, and the run whose step started it as a child; empty if none."""

    workflow: str
    caller: str
    parent_run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """The size of a run on disk: its whole directory, and its logs alone."""

    bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """An ended run, as retention sees it. `size` is None until it is measured; `rows` estimates its database rows."""

    id: str
    workflow: str
    number: int
    finished_at: datetime
    rows: int
    size: RunSize | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpan:
    """The range of a workflow's runs. At most one run has each number from `first` to `last`."""

    workflow: str
    first: int
    last: int
    oldest_id: str
    defined: bool = True
    """Whether the workflow exists; its last run stays then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSize:
    runs: int
    bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    workflows: int
    active_runs: int
    jobs: int = 0
    schedules: int = 0
    """Schedules that are due again."""
    pending_events: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The result of a check of the database. `problems` is empty if there is no damage; `facts` are for information."""

    problems: Sequence[str]
    facts: Sequence[str]
    schema: str
    expected_schema: str
    ahead_bytes: int = 0
    """The size of the write-ahead log."""
