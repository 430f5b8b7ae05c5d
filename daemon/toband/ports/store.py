"""Durable truth: workflows, runs and what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from toban.definition import DefinitionKind
from toband.domain.emitted_events import Cause
from toband.ports.attempts import AttemptStore
from toband.ports.dead_letters import DeadLetterStore
from toband.ports.events import EventStore, TriggerStore
from toband.ports.records import (
    Counts,
    Inspection,
    PutResult,
    Request,
    StoredWorkflow,
    WorkflowText,
    WorkflowVersion,
)
from toband.ports.retention import RetentionStore
from toband.ports.runs import RunStore
from toband.ports.schedules import FireLedger, ScheduleStore


class Store(
    RunStore,
    AttemptStore,
    DeadLetterStore,
    ScheduleStore,
    FireLedger,
    EventStore,
    TriggerStore,
    RetentionStore,
    Protocol,
):
    """Durable truth. What a method has answered survives any crash.

    Every method may be called from the event loop at any time; writers are serialised and share commits, readers run
    beside them. Values come out, never rows.
    """

    @property
    def kind(self) -> str:
        """`sqlite` or `postgresql`."""
        ...

    async def open(self) -> None:
        """Connects, brings the schema up to date, and claims the database. Raises StoreError with a reason for people;
        StoreHeldError if another daemon owns it.
        """
        ...

    async def close(self) -> None:
        """Gives the database up: after that another installation may claim it."""
        ...

    async def check_owner(self) -> None:
        """Raises StoreTakenOverError if another daemon has claimed the database since it was opened."""
        ...

    def check_files(self) -> None:
        """Raises StoreGoneError if the files of the database were deleted or replaced. Does not wait for anything."""
        ...

    # workflows

    async def create_workflow(
        self,
        text: WorkflowText,
        *,
        at: datetime,
        request: Request | None = None,
        cause: Cause | None = None,
    ) -> StoredWorkflow:
        """Stores a workflow, or a job. A repeated request answers as the first one did.

        Versions go on counting where a deleted one of the same name stopped. Raises WorkflowExistsError,
        RequestReusedError; ConflictError with the name of a job that it uses and that is not as `text` has it. Here and
        below `cause` is the step that does it, if one does, see EventStore.
        """
        ...

    async def update_workflow(
        self,
        text: WorkflowText,
        *,
        at: datetime,
        etag: str = "",
        request: Request | None = None,
        also: Sequence[WorkflowText] = (),
        cause: Cause | None = None,
    ) -> tuple[StoredWorkflow, bool] | None:
        """The workflow, or job, and whether anything of it changed; None if there is none of that name.

        Unchanged source, base_dir and parsed form make no new version. A new version keeps `enabled` as it was set by
        hand unless the definition's own `enabled` differs from that of the version before; what was in no file is
        enabled again as its text has it. `also` are the users of a job, made anew with it: each gets a new version in
        the same transaction if that differs from the one it has; one that was deleted meanwhile is passed over. A new
        version of a job has to come with all of its users.

        Raises EtagMismatchError, RequestReusedError; WorkflowExistsError if the name is that of another kind;
        ConflictError with the name of what is not at its `expected_version`, of a job that is not as a text has it, or
        of a user of the job that is not in `also`. Nothing is stored then.
        """
        ...

    async def put_definitions(
        self,
        texts: Sequence[WorkflowText],
        *,
        at: datetime,
        also: Sequence[WorkflowText] = (),
        take_over: Mapping[str, str] | None = None,
        etags: Mapping[str, str] | None = None,
        request: Request | None = None,
        cause: Cause | None = None,
        dry_run: bool = False,
    ) -> Mapping[str, PutResult]:
        """Creates or updates all of them in one transaction, or none; the results by name.

        Jobs are stored first, so that workflows beside them may use them; `also` are as in `update_workflow`, for all
        of the jobs. `take_over` has, by name, an owner that may lose the definition to the owner in its text; a
        definition whose file was removed is then enabled as its text says. `etags` has, by name, the etag that a stored
        definition must have. A repeated request returns the first results. With `dry_run` nothing is kept.

        Raises WorkflowOwnedError for a name with another owner, else WorkflowExistsError for one of another kind,
        EtagMismatchError, RequestReusedError, and ConflictError as `update_workflow` does.
        """
        ...

    async def disown_definition(self, name: str, owner: str, *, at: datetime) -> bool:
        """Disables what is in no file any more, and notes so in its owner. False if `owner` does not own it."""
        ...

    async def list_file_owned(self) -> Sequence[StoredWorkflow]:
        """Workflows and jobs that files own, or owned before they were removed, by name, without definitions."""
        ...

    async def get_workflow(self, name: str) -> StoredWorkflow | None: ...

    async def list_workflows(
        self,
        *,
        after: str = "",
        limit: int = 100,
        labels: Mapping[str, str] | None = None,
        kind: DefinitionKind | None = DefinitionKind.WORKFLOW,
    ) -> Sequence[StoredWorkflow]:
        """In order of name, those behind `after`, without definitions. `kind` None: workflows and jobs alike."""
        ...

    async def workflows_using(self, job: str) -> Sequence[str]:
        """Names of the workflows whose current version uses the job, in order."""
        ...

    async def delete_workflow(
        self,
        name: str,
        *,
        at: datetime,
        etag: str = "",
        kind: DefinitionKind | None = None,
        cause: Cause | None = None,
    ) -> bool:
        """False if there is none, or it is of another kind than `kind`. Runs and versions stay.

        Raises ActiveRunError, EtagMismatchError, JobInUseError.
        """
        ...

    async def set_enabled(
        self, name: str, enabled: bool, *, at: datetime, cause: Cause | None = None
    ) -> StoredWorkflow | None: ...

    async def list_versions(
        self, workflow: str, *, before: int | None = None, limit: int = 100
    ) -> Sequence[WorkflowVersion]:
        """Newest first, those with a number below `before`, without source and parsed form."""
        ...

    async def get_version(self, workflow: str, version: int) -> WorkflowVersion | None: ...

    async def counts(self) -> Counts: ...

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


class StoreError(Exception):
    """The database cannot do it; the text says why.

    Nothing of the failed call was stored, unless the commit itself broke off (a lost connection, a failing disk): then
    it may have been, and only reading again tells.
    """


class StoreFullError(StoreError):
    """There is no space for it; nothing of the failed call was stored."""


class StoreBusyError(StoreError):
    """Somebody else holds the database's lock for too long; nothing of the failed call was stored."""


class StoreHeldError(StoreError):
    """Another daemon owns the database; the text says which one, and what to do."""


class StoreGoneError(StoreError):
    """The database was deleted, or replaced by another one. While it was in use, a call that fails so may have been
    stored in the file that is no longer there.
    """


class StoreTakenOverError(StoreError):
    """Another daemon has taken the database over: nothing of the failed call was stored, nor will anything be."""


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
