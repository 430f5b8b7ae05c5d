"""What the engine needs of the world. Adapters implement these; the engine knows nothing else of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Protocol

from toband.domain.events import Event
from toband.domain.model import Attempt, Run, RunState, StepRun, TreeCause


class Clock(Protocol):
    def now(self) -> datetime:
        """The time, aware, in UTC."""
        ...


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
        request answers the run that the first one made, as it is now, with False.
        """
        ...

    async def run_of_request(self, request: Request) -> Run | None:
        """The run that this request made when it was made before, as it is now. Raises RequestReusedError."""
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

    async def counts(self) -> Counts: ...

    async def forget_requests(self, before: datetime) -> int:
        """Removes requests older than that; answers how many."""
        ...


class StoreError(Exception):
    """The database cannot do it; the text says why.

    Nothing of the failed call was stored, unless the commit itself broke off (a lost connection, a failing disk): then
    it may have been, and only reading again tells.
    """


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
    """Pieces from one offset on. `over`: the log is complete, nothing will ever follow. `damaged`: cut off here."""

    pieces: Sequence[LogPiece]
    offset: int
    over: bool = False
    damaged: bool = False


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


__all__ = [
    "ActiveRunError",
    "Clock",
    "Counts",
    "EtagMismatchError",
    "HistoryEntry",
    "Launch",
    "Launcher",
    "LogKind",
    "LogPage",
    "LogPiece",
    "Logs",
    "OutputTooLargeError",
    "Report",
    "Request",
    "RequestReusedError",
    "RunChange",
    "StepRun",
    "Store",
    "StoreError",
    "StoredWorkflow",
    "UpdateResult",
    "WorkflowExistsError",
    "WorkflowText",
    "WorkflowVersion",
]
