"""What the store takes and gives: values, and the reasons why it refuses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from toban.definition import DefinitionKind, EventTrigger
from toband.domain.emitted_events import Emitted, EventRun, EventState
from toband.domain.run_model import DeadLetter, Run
from toband.domain.schedule_model import Fire, ScheduleEntry


class UpdateResult(StrEnum):
    """What a compare-and-set answered. Nothing was changed unless it is UPDATED."""

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
"""The owner of definitions that came over the API; other owners are paths of files."""


class OwnerKind(StrEnum):
    API = "API"
    FILE = "FILE"
    REMOVED_FILE = "REMOVED_FILE"
    """A file defined it, and does not any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Identifies a repeatable call: the same caller, rpc and id with the same digest is the same call."""

    caller: str
    rpc: str
    id: str
    digest: str


class RequestReusedError(Exception):
    """The id of a request was used before, for another body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowText:
    """A definition that holds, ready to be stored.

    `uses` names the jobs that its steps are made of, and `job_versions` may say which version of a job `parsed` was
    made with (not of one that is being changed in the same call): nothing is stored for want of one of them, or if one
    is at another version by now. `expected_version` is what the stored definition has to be at to be replaced.

    `schedules` take the place of those that it had, in the same transaction, whether or not there is a new version. One
    that was written as one of those, in the same zone, goes on where that one is: `next_due`, `occurrences`,
    `stored_at`, and the time that words meant when they were stored.
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
    """They take the place of those that it had, as the schedules do. Each has its priority."""
    watches: tuple[str, ...] = ()
    """Absolute paths whose changes are events; they take the place of those that it had, too."""


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
    """A workflow, or a job, as it is now. `definition` is None in lists.

    `owner` is BY_API or the path of a file. `owner_removed`: that file does not define it any more.
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
        """The path of the file that owns it; empty if none does, or not any more."""
        return self.owner if self.owner_kind is OwnerKind.FILE else ""

    @property
    def owner_kind(self) -> OwnerKind:
        if self.owner == BY_API:
            return OwnerKind.API
        return OwnerKind.REMOVED_FILE if self.owner_removed else OwnerKind.FILE


class WorkflowOwnedError(Exception):
    """Somebody else owns the name. `args[0]` is the name, `owner` who has it."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(name)
        self.owner = owner


class WorkflowExistsError(Exception):
    """The name is taken: workflows and jobs share them. `args[0]` is the name, `kind` is of what has it."""

    def __init__(self, name: str, kind: DefinitionKind = DefinitionKind.WORKFLOW) -> None:
        super().__init__(name)
        self.kind = kind


class ConflictError(Exception):
    """What was decided on has changed meanwhile: read it again and decide anew. `args[0]` is its name."""


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
    """A run is active where none may be. `args[0]` is its id."""


class RunGoneError(Exception):
    """A run is not kept any more: one that a request made, or that another takes results from. `args[0]` is its id."""


class DeadLetterClosedError(Exception):
    """The dead letter was requeued or discarded before. `letter` tells by whom, and what it was requeued as."""

    def __init__(self, letter: DeadLetter) -> None:
        super().__init__(letter.id)
        self.letter = letter


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """One transition of a run, to be saved whole or not at all.

    Rows of steps and attempts are written where `after` holds another object than `before`; of attempts only those of
    this run. `touched` holds the ids of the steps that may differ, so that no others are looked at; None: any may.
    `events` are stored with it, as `add_events` does; they have no dedupe key.
    """

    before: Run
    after: Run
    at: datetime
    event: str
    dead_letters: tuple[DeadLetter, ...] = ()
    touched: Collection[str] | None = None
    events: tuple[Emitted, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """What was decided about due times of a schedule, to be saved whole or not at all.

    `fires` are lines of the ledger that need no run of their own. A run comes with the line that is written if it is
    made, and how many runs of the workflow may be active with it, as in `create_run`. If it is not made, its line, and
    each of `fires` that has its `run_id`, says SKIPPED and why. An event comes with the line that is written with it;
    it is stored, as `add_events` does, unless the due time of the line has one already.
    """

    before: ScheduleEntry
    after: ScheduleEntry
    fires: tuple[Fire, ...] = ()
    runs: tuple[tuple[Fire, Run, int | None], ...] = ()
    events: tuple[tuple[Fire, Emitted], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """The runs that were made, with their numbers, in order; lines that became SKIPPED because their run was not; and
    lines that were not written, because their due time has one already.
    """

    runs: tuple[Run, ...]
    skipped: tuple[Fire, ...] = ()
    repeated: tuple[Fire, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventResolution:
    """What was decided about an event, to be saved whole or not at all.

    `skipped` are workflows that it matched and does not start. A run comes with the row that is written if it is made,
    and how many runs of the workflow may be active with it, as in `create_run`; if it is not made, its row says SKIPPED
    and why.
    """

    event_id: str
    state: EventState
    at: datetime
    reason: str = ""
    skipped: tuple[EventRun, ...] = ()
    runs: tuple[tuple[EventRun, Run, int | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The event as it is now, and the runs that were made, with their numbers, in order."""

    event: Emitted
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One change of a run; `run.steps` holds only the steps that this change touched."""

    sequence: int
    at: datetime
    event: str
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """What a run takes on disk: all of its directory, and its logs alone."""

    bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run that has ended, as retention sees it. `size` is None until it was measured for good.

    `rows` is about how many rows of the database belong to it.
    """

    id: str
    workflow: str
    number: int
    finished_at: datetime
    rows: int
    size: RunSize | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpan:
    """Between what the runs of a workflow lie. It has at most as many as there are numbers from `first` to `last`."""

    workflow: str
    first: int
    last: int
    oldest_id: str


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
    """Those that have a due time to come."""
    pending_events: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a look at the database found. `problems` is empty if it is whole; `facts` are worth knowing."""

    problems: Sequence[str]
    facts: Sequence[str]
    schema: str
    expected_schema: str
    ahead_bytes: int = 0
    """Written ahead and not yet in its place."""
