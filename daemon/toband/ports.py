"""What the engine needs of the world. Adapters implement these; the engine knows nothing else of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Protocol

from toban.definition import Resources
from toband.domain.events import Event
from toband.domain.model import Attempt, Run, RunState, StepRun, TreeCause, Usage


class Clock(Protocol):
    def now(self) -> datetime:
        """The time, aware, in UTC."""
        ...


class HealthStatus(StrEnum):
    """OK; DEGRADED: works, but somebody should look; REFUSING: no new runs until it is better."""

    OK = "ok"
    DEGRADED = "degraded"
    REFUSING = "refusing"

    @property
    def rank(self) -> int:
        return list(HealthStatus).index(self)


class Conditions(Protocol):
    """Where adapters tell what is not well. Called in the event loop; repeating either is harmless."""

    def trouble(self, name: str, status: HealthStatus, detail: str) -> None:
        """`name` is the thing (`disk`, `database`, `spawner`…); `detail` says what is wrong and what would help."""
        ...

    def well(self, name: str) -> None: ...


# ---------------------------------------------------------------------------------------------------------- store


class UpdateResult(StrEnum):
    """What a compare-and-set answered. Nothing was changed unless it is UPDATED."""

    UPDATED = "updated"
    NOT_FOUND = "not_found"
    WRONG_STATE = "wrong_state"


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
    """A definition that holds, ready to be stored."""

    name: str
    title: str
    description: str
    labels: Mapping[str, str]
    enabled: bool
    source: str
    parsed: Mapping[str, Any]
    base_dir: str
    owner: str = "api"


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
    """A workflow as it is now. `definition` is None in lists."""

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
    definition: WorkflowVersion | None = None


class WorkflowExistsError(Exception):
    pass


class EtagMismatchError(Exception):
    """Somebody else changed it meanwhile. `args[0]` is the current etag."""


class ActiveRunError(Exception):
    """A run is active where none may be. `args[0]` is its id."""


class RunGoneError(Exception):
    """The run that a request made is not kept any more. `args[0]` is its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """One transition of a run, to be saved whole or not at all.

    Rows of steps and attempts are written where `after` holds another object than `before`.
    """

    before: Run
    after: Run
    at: datetime
    event: str


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
class StoredSize:
    runs: int
    bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    workflows: int
    active_runs: int


class Store(Protocol):
    """Durable truth. What a method has answered survives any crash.

    Every method may be called from the event loop at any time; writers are serialised and share commits, readers run
    beside them. Values come out, never rows.
    """

    @property
    def kind(self) -> str:
        """`sqlite` or `postgresql`."""
        ...

    async def open(self) -> None:
        """Connects and brings the schema up to date. Raises StoreError with a reason for people."""
        ...

    async def close(self) -> None: ...

    # workflows

    async def create_workflow(
        self, text: WorkflowText, *, at: datetime, request: Request | None = None
    ) -> StoredWorkflow:
        """Raises WorkflowExistsError, RequestReusedError. A repeated request answers as the first one did.

        Versions go on counting where a deleted workflow of the same name stopped.
        """
        ...

    async def update_workflow(
        self, text: WorkflowText, *, at: datetime, etag: str = "", request: Request | None = None
    ) -> tuple[StoredWorkflow, bool] | None:
        """The workflow and whether anything changed; None if there is none of that name.

        Unchanged source and base_dir make no new version. A new version keeps `enabled` as it was set by hand unless
        the definition's own `enabled` differs from that of the version before. Raises EtagMismatchError,
        RequestReusedError.
        """
        ...

    async def get_workflow(self, name: str) -> StoredWorkflow | None: ...

    async def list_workflows(
        self, *, after: str = "", limit: int = 100, labels: Mapping[str, str] | None = None
    ) -> Sequence[StoredWorkflow]:
        """In order of name, those behind `after`, without definitions."""
        ...

    async def delete_workflow(self, name: str, *, etag: str = "") -> bool:
        """False if there is none. Raises ActiveRunError, EtagMismatchError. Runs and versions stay."""
        ...

    async def set_enabled(
        self, name: str, enabled: bool, *, at: datetime
    ) -> StoredWorkflow | None: ...

    async def list_versions(
        self, workflow: str, *, before: int | None = None, limit: int = 100
    ) -> Sequence[WorkflowVersion]:
        """Newest first, those with a number below `before`, without source and parsed form."""
        ...

    async def get_version(self, workflow: str, version: int) -> WorkflowVersion | None: ...

    # runs

    async def create_run(
        self, run: Run, *, max_active: int | None, request: Request | None = None
    ) -> tuple[Run, bool]:
        """Stores a PENDING run with its steps; answers it with its number, and whether it is new.

        `max_active` runs of the workflow may be active, this one included; None means any number. The check and the
        insert are one transaction. Raises ActiveRunError with the oldest active id, RequestReusedError. A repeated
        request answers the run that the first one made, as it is now, with False; RunGoneError if it is not kept.
        """
        ...

    async def run_of_request(self, request: Request) -> Run | None:
        """The run that this request made when it was made before, as it is now.

        Raises RequestReusedError, RunGoneError.
        """
        ...

    async def save(self, change: RunChange) -> UpdateResult:
        """Saves one transition if the run is still as `before` says: same sequence, same state.

        WRONG_STATE means that somebody else was faster, and nothing was written. Adds the history entry
        `after.sequence`. Many saves share one commit; a failed commit fails all of its saves with StoreError.
        """
        ...

    async def get_run(self, run_id: str) -> Run | None:
        """The whole run, with its steps in order and each step's last attempt."""
        ...

    async def get_run_page(
        self, run_id: str, *, after_index: int = -1, limit: int = 500
    ) -> Run | None:
        """The run with at most `limit` of its steps, those with an index above `after_index`."""
        ...

    async def list_runs(
        self,
        *,
        workflow: str = "",
        states: Sequence[RunState] = (),
        before: str = "",
        limit: int = 50,
    ) -> Sequence[Run]:
        """Newest first (ids are uuid7 and sort by time), those with an id below `before`, without steps."""
        ...

    async def current_run(self, workflow: str) -> Run | None:
        """The newest active run of the workflow, else its newest run; without steps."""
        ...

    async def active_run_ids(self) -> Sequence[str]:
        """Oldest first."""
        ...

    async def history(
        self, run_id: str, *, after: int = 0, limit: int = 500
    ) -> Sequence[HistoryEntry]: ...

    async def list_attempts(
        self, *, run_id: str = "", step: str = "", before: str = "", limit: int = 100
    ) -> Sequence[Attempt]:
        """Newest first, those with an id below `before`."""
        ...

    async def run_attempts(
        self, run_id: str, *, step: str = "", from_ordinal: int = 0, limit: int = 500
    ) -> Sequence[Attempt]:
        """Of one run in the order of their launch, from `from_ordinal` on."""
        ...

    async def get_attempt(self, attempt_id: str) -> Attempt | None: ...

    async def save_usage(self, found: Mapping[str, Usage]) -> None:
        """Keeps the samples of attempts, by id, in place of what was kept; attempts that are gone are passed over."""
        ...

    async def usage_of(self, attempt_ids: Collection[str]) -> Mapping[str, Usage]:
        """What was kept of these attempts, by id."""
        ...

    async def counts(self) -> Counts: ...

    # retention

    async def run_workflows(self) -> Sequence[str]:
        """Names of all workflows that may have runs, deleted ones included."""
        ...

    async def removable_runs(
        self,
        *,
        workflow: str = "",
        finished_before: datetime | None = None,
        number_below: int | None = None,
        after: str = "",
        limit: int = 500,
    ) -> Sequence[EndedRun]:
        """Oldest first, those with an id above `after`: never one that is active, never the last of a workflow.

        `number_below` is for one workflow.
        """
        ...

    async def kept_number(self, workflow: str, keep: int) -> int:
        """The number of the oldest run when the newest `keep` are kept; 0 if there are fewer."""
        ...

    async def stored_size(self, workflow: str = "") -> StoredSize:
        """Of all runs, or of a workflow's; the bytes are of those that were measured."""
        ...

    async def unmeasured_runs(self, *, start: str = "", limit: int = 500) -> Sequence[EndedRun]:
        """Those that have ended and have no size, from that id on, oldest first."""
        ...

    async def save_sizes(self, sizes: Mapping[str, RunSize]) -> None:
        """By run; in place of what was kept. Runs that are gone are passed over."""
        ...

    async def delete_runs(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Removes runs with all that belongs to them; those that went: not what is active, nor a workflow's last."""
        ...

    async def forget_requests(self, before: datetime) -> int:
        """Removes requests older than that; answers how many."""
        ...

    # how the database does

    async def try_write(self) -> None:
        """Commits a change that changes nothing, durably. Raises StoreError if writing is not possible."""
        ...

    async def inspect(self) -> Inspection:
        """Looks at the whole database for damage; takes its time, and holds up nobody. Raises StoreError."""
        ...

    async def checkpoint(self) -> None:
        """Brings what was written ahead to its place, as far as no reader is in the way. Raises StoreError."""
        ...

    async def known_runs(self, run_ids: Collection[str]) -> Mapping[str, RunState]:
        """The states of those that there are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a look at the database found. `problems` is empty if it is whole; `facts` are worth knowing."""

    problems: Sequence[str]
    facts: Sequence[str]
    schema: str
    expected_schema: str
    ahead_bytes: int = 0
    """Written ahead and not yet in its place."""


class StoreError(Exception):
    """The database cannot do it; the text says why.

    Nothing of the failed call was stored, unless the commit itself broke off (a lost connection, a failing disk): then
    it may have been, and only reading again tells.
    """


class StoreFullError(StoreError):
    """There is no space for it; nothing of the failed call was stored."""


class StoreBusyError(StoreError):
    """Somebody else holds the database's lock for too long; nothing of the failed call was stored."""


class StoreWatcher(Protocol):
    """Who wants to know how writing goes, and may help."""

    def make_room(self) -> bool:
        """The disk is full: whether something was given up for the write to be tried again. Called in any thread.

        It is a little each time, and the last time there is nothing: whoever fills the disk takes what is left over.
        """
        ...

    def failed(self, error: StoreError) -> None:
        """A write or a read failed. Called in the event loop."""
        ...

    def worked(self) -> None:
        """A write was committed after one had failed. Called in the event loop."""
        ...


# ------------------------------------------------------------------------------------------------------- launcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One process to be started, at most once for its token."""

    attempt: Attempt
    argv: Sequence[str]
    env: Mapping[str, str]
    workspace: str
    timeout: float | None
    timeout_cause: TreeCause
    kill_grace: float
    user: str = ""
    resources: Resources | None = None
    log_limit: int | None = None
    """Bytes of output that are kept; what is beyond is counted and dropped."""


class Report(Protocol):
    """How a launcher tells what happened to an attempt of a run. Called in the event loop."""

    def __call__(self, run_id: str, event: Event) -> None: ...


class Launcher(Protocol):
    """Starts processes, ends them, and reports what became of them; what it started outlives it."""

    async def open(self, report: Report) -> None: ...

    async def close(self) -> None:
        """Lets go of everything; processes go on."""
        ...

    async def prepare(self, run_id: str, params: Mapping[str, Any]) -> None:
        """Makes what a run's attempts need on disk. Repeating it is harmless. Raises OSError."""
        ...

    def launch(self, launch: Launch) -> None:
        """Hands it over and returns at once; AttemptStarted (if it lasts) and the end come as reports."""
        ...

    def stop(self, attempt: Attempt) -> None:
        """Asks for the end of a live attempt; repeating it, or asking for one that is gone, is harmless."""
        ...

    async def recover(self, attempt: Attempt) -> Event | None:
        """After a restart: None when the attempt lives and is watched again, else what became of it."""
        ...

    def running(self) -> int:
        """Attempts that live."""
        ...


class Reading(NamedTuple):
    """What a process tree uses now. Times and bytes are since its start; None where the system does not say."""

    cpu_time: float
    rss_bytes: int
    processes: int
    read_bytes: int | None
    written_bytes: int | None


class Meter(Protocol):
    """Looks at live attempts from outside, by attempt id."""

    def live(self) -> Collection[str]: ...

    async def read(self, attempt_ids: Collection[str]) -> Mapping[str, Reading]:
        """Of those that still live."""
        ...


# ------------------------------------------------------------------------------------------------------------ logs


class LogKind(IntEnum):
    """Which stream a piece of a log is of; SYSTEM is what Toban itself had to say."""

    STDOUT = 1
    STDERR = 2
    SYSTEM = 3


class LogPiece(NamedTuple):
    """Bytes that were read at once from one stream; `at` is in microseconds since the epoch."""

    at: int
    kind: LogKind
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Pieces from one offset on. `over`: the log is complete, nothing will ever follow. `damaged`: cut off here.

    `missing`: there is no log; not yet, or not any more.
    """

    pieces: Sequence[LogPiece]
    offset: int
    over: bool = False
    damaged: bool = False
    missing: bool = False


class OutputTooLargeError(Exception):
    """A stream holds more than may be taken at once."""


class Logs(Protocol):
    """What attempts printed. Offsets stay valid for ever; a reader never slows a writer."""

    async def read(self, attempt: Attempt, offset: int) -> LogPage:
        """What is there from that offset on, about a mebibyte at most. Raises ValueError for a wrong offset."""
        ...

    async def tail(
        self, attempt: Attempt, lines: int, kinds: Collection[LogKind]
    ) -> tuple[int, int]:
        """Where the last lines begin: the offset of a piece, and how many bytes of it to pass over."""
        ...

    def printed(self, attempt: Attempt, kind: LogKind, limit: int) -> bytes:
        """All of a stream. Raises OutputTooLargeError if it is more than `limit`."""
        ...

    def watching(self, run_id: str, event: asyncio.Event) -> AbstractContextManager[None]:
        """Sets `event` whenever an attempt of the run has printed something."""
        ...


# ------------------------------------------------------------------------------------------------------- retention


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A directory that has the name of a run. `condemned`: its run was about to be removed."""

    run_id: str
    condemned: bool
    changed_at: datetime


class Archive(Protocol):
    """The files of runs that have ended. All of it is done beside the event loop, one thing at a time, at leisure."""

    async def close(self) -> None:
        """Breaks off what is under way; nothing is left half done."""
        ...

    async def compressible(self, run_id: str) -> int:
        """How many logs are large enough, and not compressed yet."""
        ...

    async def compress(self, attempts: Sequence[Attempt]) -> int:
        """Compresses the logs of attempts that have ended; how many. Positions in them stay valid.

        Raises OSError, also when the supervisor of one has not gone yet: try again later.
        """
        ...

    async def tidy(self, run_id: str) -> int:
        """Removes half-made files that a crash left in a run that has ended; how many."""
        ...

    async def measure(self, run_id: str) -> RunSize: ...

    async def log_bytes(self, run_ids: Collection[str]) -> int:
        """What the logs of these runs take now, together."""
        ...

    async def condemn(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Marks directories, durably, as those of runs that are about to be removed; those that are marked now.

        A run without a directory needs no mark and is among them.
        """
        ...

    async def remove(self, run_id: str) -> None:
        """Removes a directory and all in it, never what links in it lead to. Raises OSError if something is left."""
        ...

    async def directories(self) -> Sequence[Stray]:
        """All that there are, of whatever run."""
        ...

    async def hold_output(self, full: bool) -> None:
        """While it is True, what steps print is counted and dropped. Raises OSError."""
        ...


# ------------------------------------------------------------------------------------------- the daemon's premises


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """How full a file system is. Bytes; `free` is what this user may still take. None: not counted there."""

    path: str
    total: int
    free: int
    inodes: int | None = None
    free_inodes: int | None = None


class Disk(Protocol):
    """Where state is kept, and a ballast on it that can be thrown off for the last writes."""

    def spaces(self) -> Sequence[Space]:
        """Of every file system that the daemon itself writes to; a matter of microseconds. Raises OSError."""
        ...

    def try_write(self) -> None:
        """Writes something durably and takes it away again. May take as long as the disk does. Raises OSError."""
        ...

    @property
    def ballast(self) -> int:
        """How large the ballast is when it is whole; 0: there is none."""
        ...

    def ballast_held(self) -> int:
        """How much of it there is."""
        ...

    def shed_half(self) -> bool:
        """Gives up the first half of the ballast; whether that freed anything. Raises nothing, in any thread."""
        ...

    def shed_piece(self) -> bool:
        """Gives up a small piece of what there is of it, in the same way."""
        ...

    def take_ballast(self) -> None:
        """Makes it whole again. Raises OSError."""
        ...


class Descriptors(Protocol):
    def open_and_most(self) -> tuple[int, int] | None:
        """Descriptors that this process has open, and how many it may; None where that is not known."""
        ...


class AttemptSeen(StrEnum):
    """What an attempt's file says."""

    ABSENT = "absent"
    VOID = "void"
    LIVES = "lives"
    ENDED = "ended"
    DEAD = "dead"
    """Claimed, with neither a living supervisor nor a record of the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """What lies in the directory of a run. `age` is in seconds, of its newest part."""

    name: str
    age: float
    logs: frozenset[str]
    """Names of attempt files, without what compression adds."""
    alive: frozenset[str]
    """Those among them that a living supervisor holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongPath:
    """Something whose owner or permissions are not as they must be. `mode`: what would be right; None: not ours."""

    path: str
    problem: str
    mode: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProcess:
    """A process that carries the token of an attempt of this state directory in its environment.

    `start` tells it from another of the same pid. `ours`: it descends from what the daemon starts, and from nobody
    else.
    """

    pid: int
    start: float
    token: str
    run_id: str
    command: str
    parent: str
    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """`jumped`: seconds by which the wall clock was set since the daemon began. `synchronised`: None if not known."""

    jumped: float
    synchronised: bool | None


class Premises(Protocol):
    """What lies and runs around the daemon, for the doctor. Everything here blocks: it is called in threads."""

    def seen(self, attempt: Attempt) -> AttemptSeen:
        """Raises OSError."""
        ...

    def log_name(self, attempt: Attempt) -> str: ...

    def run_directories(self) -> Sequence[RunDirectory]:
        """Raises OSError."""
        ...

    def temporary_files(self, older: float, skip: Collection[str]) -> Sequence[str]:
        """Paths of what was half made by somebody who died, at least so many seconds old, but not of the runs `skip`.

        Raises OSError.
        """
        ...

    def remove_file(self, path: str) -> None:
        """Raises OSError."""
        ...

    def wrong_paths(self) -> Sequence[WrongPath]: ...

    def mend(self, wrong: WrongPath) -> None:
        """Raises OSError."""
        ...

    def step_processes(self) -> Sequence[StepProcess]: ...

    def end(self, processes: Sequence[StepProcess]) -> Sequence[StepProcess]:
        """Ends exactly those, first politely; answers which are still there."""
        ...

    def clock(self) -> ClockReading: ...

    def spawner(self) -> int | None:
        """Its pid; 0 if it has died, None where none is needed."""
        ...

    def cgroup(self) -> str:
        """Where steps get a cgroup each, or why they do not; in words."""
        ...


__all__ = [
    "ActiveRunError",
    "Archive",
    "AttemptSeen",
    "Clock",
    "ClockReading",
    "Conditions",
    "Counts",
    "Descriptors",
    "Disk",
    "EndedRun",
    "EtagMismatchError",
    "HealthStatus",
    "HistoryEntry",
    "Inspection",
    "Launch",
    "Launcher",
    "LogKind",
    "LogPage",
    "LogPiece",
    "Logs",
    "Meter",
    "OutputTooLargeError",
    "Premises",
    "Reading",
    "Report",
    "Request",
    "RequestReusedError",
    "RunChange",
    "RunDirectory",
    "RunGoneError",
    "RunSize",
    "Space",
    "StepProcess",
    "StepRun",
    "Store",
    "StoreBusyError",
    "StoreError",
    "StoreFullError",
    "StoreWatcher",
    "StoredSize",
    "StoredWorkflow",
    "Stray",
    "UpdateResult",
    "WorkflowExistsError",
    "WorkflowText",
    "WorkflowVersion",
    "WrongPath",
]
