"""Definitions of workflows and jobs with their versions, as the engine uses them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from toban.definition import DefinitionKind
from toband.domain.emitted_events import Cause
from toband.domain.identity import Visible
from toband.ports.records import PutResult, Request, StoredWorkflow, WorkflowText, WorkflowVersion


class DefinitionStore(Protocol):
    """Workflows and jobs. `cause` is the step that makes a change, if a step does: see EventStore."""

    async def create_workflow(
        self,
        text: WorkflowText,
        *,
        at: datetime,
        request: Request | None = None,
        cause: Cause | None = None,
    ) -> StoredWorkflow:
        """Stores a workflow or a job. A repeated request returns the first result.

        Versions are counted on from those of a deleted definition of the same name. Raises WorkflowExistsError,
        RequestReusedError; ConflictError with the name of a used job that is not at the version in `text`.
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
        """The workflow or job, and whether it changed; None if there is none of that name.

        Adds a version only if source, base_dir or parsed form differ. A new version keeps `enabled` as it was set by
        hand, unless the definition's own `enabled` differs from that of the version before; a definition whose file was
        removed is enabled as its text says. `also` are the users of a job, resolved with its new version: each gets a
        new version in the same transaction if it differs; users that were deleted meanwhile are ignored. A new version
        of a job must come with all of its users.

        Raises EtagMismatchError, RequestReusedError; WorkflowExistsError if the name is that of another kind;
        ConflictError with the name of a definition that is not at its `expected_version`, of a used job that is not at
        the version in a text, or of a user of the job that is not in `also`. Nothing is stored then.
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
        """Disables a definition whose file was removed, and marks its owner as removed. False if `owner` is not it."""
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
        """False if there is none, or it is not of that `kind`. Its runs and versions stay.

        Raises ActiveRunError, EtagMismatchError, JobInUseError.
        """
        ...

    async def set_enabled(
        self, name: str, enabled: bool, *, at: datetime, cause: Cause | None = None
    ) -> StoredWorkflow | None: ...

    async def get_workflow(self, name: str) -> StoredWorkflow | None: ...

    async def workflow_titles(self, names: Collection[str]) -> Mapping[str, str]:
        """The titles of those workflows and jobs that exist, by name."""
        ...

    async def list_workflows(
        self,
        *,
        after: str = "",
        limit: int = 100,
        labels: Mapping[str, str] | None = None,
        kind: DefinitionKind | None = DefinitionKind.WORKFLOW,
        visible: Visible = None,
    ) -> Sequence[StoredWorkflow]:
        """By name, behind `after`, without definitions. `kind` None: workflows and jobs."""
        ...

    async def labels_of(self, names: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """The labels of those workflows and jobs that exist, by name."""
        ...

    async def count_definitions(self, *, visible: Visible = None) -> Mapping[DefinitionKind, int]:
        """The number of workflows and of jobs; without kinds that have none."""
        ...

    async def list_file_owned(self) -> Sequence[StoredWorkflow]:
        """Workflows and jobs that files own, or owned until they were removed, by name, without definitions."""
        ...

    async def workflows_using(self, job: str) -> Sequence[str]:
        """Names of workflows whose current version uses the job, in order."""
        ...

    async def list_versions(
        self, workflow: str, *, before: int | None = None, limit: int = 100
    ) -> Sequence[WorkflowVersion]:
        """Newest first, with a number below `before`, without source and parsed form."""
        ...

    async def forget_versions(self, before: datetime, keep: int) -> int:
        """Removes versions that no run uses, except the newest `keep` of each definition; returns their number.

        Of a deleted definition without runs all are removed, if the newest was stored before then; its numbers of runs
        and versions begin anew. Runs several transactions, so that other writers do not wait long.
        """
        ...

    async def get_version(self, workflow: str, version: int) -> WorkflowVersion | None: ...
