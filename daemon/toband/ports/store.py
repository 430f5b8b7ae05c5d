"""Durable truth: workflows, runs and what became of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from toband.domain.model import Attempt, Run, RunState, Usage


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
