"""Calls of the WorkflowService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from toban.limits import MAX_APPLIED, MAX_MESSAGE_BYTES
from toban.quantity_text import counted, size_text
from toban.sdk.base import Calls, new_request_id, paged
from toban.sdk.errors import InvalidArgument, InvalidDefinition
from toban.sdk.message_values import to_struct, to_timestamp
from toban.v1 import workflow_pb2, workflow_pb2_grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionText:
    """A text with one or more definitions: workflows and jobs. `file` names it in problems; no file is opened."""

    source: str
    base_dir: str = ""
    file: str = ""


class DefinitionSource(Protocol):
    """A text with definitions, such as DefinitionText or a `toban.workflow.Workflow`.

    If it also has a method `locate`, that says which file and line a field of the definition comes from.
    """

    @property
    def source(self) -> str: ...

    @property
    def base_dir(self) -> str: ...

    @property
    def file(self) -> str: ...


class WorkflowCalls(Calls):
    """Stores definitions and their versions."""

    @cached_property
    def _workflows(self) -> workflow_pb2_grpc.WorkflowServiceAsyncStub:
        return workflow_pb2_grpc.WorkflowServiceStub(self._connection.channel)

    async def create_workflow(
        self, source: str, *, base_dir: str = "", request_id: str | None = None
    ) -> workflow_pb2.CreateWorkflowResponse:
        """Stores a new workflow. Raises Conflict `WORKFLOW_EXISTS` and InvalidDefinition."""
        return await self._connection.call(
            self._workflows.CreateWorkflow,
            workflow_pb2.CreateWorkflowRequest(
                definition=workflow_pb2.Definition(source=source, base_dir=base_dir),
                request_id=new_request_id(request_id),
            ),
        )

    async def update_workflow(
        self,
        name: str,
        source: str,
        *,
        base_dir: str = "",
        etag: str = "",
        request_id: str | None = None,
        force: bool = False,
    ) -> workflow_pb2.UpdateWorkflowResponse:
        """Replaces the definition; one that a file owns only with `force`, until the file is read again.

        Raises NotFound, Conflict `ETAG_MISMATCH` and `OWNED_BY_FILE`, and InvalidDefinition.
        """
        workflow = workflow_pb2.Workflow(
            name=name,
            etag=etag,
            definition=workflow_pb2.Definition(source=source, base_dir=base_dir),
        )
        request = workflow_pb2.UpdateWorkflowRequest(
            workflow=workflow, request_id=new_request_id(request_id), force=force
        )
        request.update_mask.paths.append("definition")
        return await self._connection.call(self._workflows.UpdateWorkflow, request)

    async def apply_definitions(
        self,
        texts: Iterable[DefinitionSource],
        *,
        validate_only: bool = False,
        force: bool = False,
        etags: Mapping[str, str] | None = None,
        request_id: str | None = None,
    ) -> workflow_pb2.ApplyDefinitionsResponse:
        """Creates or updates all workflows and jobs of the texts, or none; those that a file owns only with `force`.

        With `validate_only` nothing is stored, and invalid definitions raise nothing: see `valid` and the problems.
        Raises InvalidDefinition, InvalidArgument `TOO_LARGE` or `TOO_MANY_DEFINITIONS`, and Conflict `ETAG_MISMATCH`,
        `OWNED_BY_FILE`, `WORKFLOW_RECURSION`, `WORKFLOW_EXISTS` or `JOB_EXISTS`.
        """
        given = list(texts)
        labels = _labels(given)
        local = self._connection.address.local
        request = workflow_pb2.ApplyDefinitionsRequest(
            texts=[
                workflow_pb2.DefinitionText(
                    definition=workflow_pb2.Definition(
                        source=text.source,
                        # Another machine has no such directory.
                        base_dir=text.base_dir if local or isinstance(text, DefinitionText) else "",
                    ),
                    file=label,
                )
                for label, text in zip(labels, given, strict=True)
            ],
            validate_only=validate_only,
            force=force,
            etags=etags or {},
            request_id=new_request_id(request_id),
        )
        _check_size(request)
        by_label = dict(zip(labels, given, strict=True))
        try:
            answer = await self._connection.call(self._workflows.ApplyDefinitions, request)
        except InvalidDefinition as error:
            _locate(error.problems, by_label)
            raise
        for applied in answer.definitions:
            _locate(applied.problems, by_label)
        return answer

    async def get_workflow(self, name: str) -> workflow_pb2.Workflow:
        """One workflow with its definition. Raises NotFound."""
        answer = await self._connection.call(self._workflows.GetWorkflow, workflow_pb2.GetWorkflowRequest(name=name))
        return answer.workflow

    def list_workflows(
        self, *, labels: Mapping[str, str] | None = None, page_size: int = 0
    ) -> AsyncGenerator[workflow_pb2.Workflow, None]:
        """Workflows in order of name, without their definitions."""

        async def fetch(token: str) -> tuple[list[workflow_pb2.Workflow], str]:
            answer = await self._connection.call(
                self._workflows.ListWorkflows,
                workflow_pb2.ListWorkflowsRequest(labels=labels or {}, page_size=page_size, page_token=token),
            )
            return list(answer.workflows), answer.next_page_token

        return paged(fetch)

    def list_workflow_summaries(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        text: str = "",
        kind: workflow_pb2.DefinitionKind.ValueType = workflow_pb2.DEFINITION_KIND_UNSPECIFIED,
        page_size: int = 0,
    ) -> AsyncGenerator[workflow_pb2.WorkflowSummary, None]:
        """Workflows and jobs in order of name, each with its last run, success rate, active runs and next due time.

        `text` is looked for in name and title, in any case.
        """

        async def fetch(token: str) -> tuple[list[workflow_pb2.WorkflowSummary], str]:
            answer = await self._connection.call(
                self._workflows.ListWorkflowSummaries,
                workflow_pb2.ListWorkflowSummariesRequest(
                    labels=labels or {}, text=text, kind=kind, page_size=page_size, page_token=token
                ),
            )
            return list(answer.summaries), answer.next_page_token

        return paged(fetch)

    async def get_overview(
        self, *, max_workflows: int = 0, max_failures: int = 0, failed_since: datetime | None = None
    ) -> workflow_pb2.GetOverviewResponse:
        """Totals, the workflows that matter most now, and the runs that failed since then, or in the last 24 hours."""
        request = workflow_pb2.GetOverviewRequest(
            max_workflows=max_workflows,
            max_failures=max_failures,
            failed_since=to_timestamp(failed_since) if failed_since is not None else None,
        )
        return await self._connection.call(self._workflows.GetOverview, request)

    async def delete_workflow(self, name: str, *, etag: str = "", force: bool = False) -> None:
        """Deletes a workflow; its runs stay. Deletes one that a file owns only with `force`.

        Raises NotFound and Conflict `RUN_ALREADY_ACTIVE` and `OWNED_BY_FILE`.
        """
        await self._connection.delete(
            self._workflows.DeleteWorkflow,
            workflow_pb2.DeleteWorkflowRequest(name=name, etag=etag, force=force),
        )

    async def validate_workflow(self, source: str, *, base_dir: str = "") -> workflow_pb2.ValidateWorkflowResponse:
        """Validates a definition as the daemon would; stores nothing."""
        return await self._connection.call(
            self._workflows.ValidateWorkflow,
            workflow_pb2.ValidateWorkflowRequest(definition=workflow_pb2.Definition(source=source, base_dir=base_dir)),
        )

    def list_workflow_versions(
        self, name: str, *, page_size: int = 0
    ) -> AsyncGenerator[workflow_pb2.WorkflowVersion, None]:
        """Versions of a workflow or a job, newest first, without their definitions. Raises NotFound."""

        async def fetch(token: str) -> tuple[list[workflow_pb2.WorkflowVersion], str]:
            answer = await self._connection.call(
                self._workflows.ListWorkflowVersions,
                workflow_pb2.ListWorkflowVersionsRequest(workflow=name, page_size=page_size, page_token=token),
            )
            return list(answer.versions), answer.next_page_token

        return paged(fetch)

    async def get_workflow_version(self, name: str, version: int) -> workflow_pb2.WorkflowVersion:
        """One version with its definition. Raises NotFound."""
        answer = await self._connection.call(
            self._workflows.GetWorkflowVersion,
            workflow_pb2.GetWorkflowVersionRequest(workflow=name, version=version),
        )
        return answer.version

    async def restore_workflow_version(
        self,
        name: str,
        version: int,
        *,
        etag: str = "",
        request_id: str | None = None,
        force: bool = False,
    ) -> workflow_pb2.RestoreWorkflowVersionResponse:
        """Makes an old version of a workflow or a job the current one, as a new version.

        Raises NotFound, Conflict `ETAG_MISMATCH`, `OWNED_BY_FILE` and `WORKFLOW_RECURSION`, and InvalidDefinition if
        the old text is no longer valid.
        """
        return await self._connection.call(
            self._workflows.RestoreWorkflowVersion,
            workflow_pb2.RestoreWorkflowVersionRequest(
                workflow=name,
                version=version,
                etag=etag,
                request_id=new_request_id(request_id),
                force=force,
            ),
        )

    async def set_workflow_enabled(self, name: str, enabled: bool) -> workflow_pb2.Workflow:
        """Sets whether schedules and events start it. Raises NotFound; may be repeated."""
        answer = await self._connection.call(
            self._workflows.SetWorkflowEnabled,
            workflow_pb2.SetWorkflowEnabledRequest(name=name, enabled=enabled),
        )
        return answer.workflow

    async def preview_schedule(
        self, name: str, *, count: int = 10, start: datetime | None = None
    ) -> list[workflow_pb2.DueTime]:
        """The next due times, at most 100, after `start` or after now. Raises NotFound."""
        request = workflow_pb2.PreviewScheduleRequest(
            workflow=name, count=count, from_time=to_timestamp(start) if start is not None else None
        )
        answer = await self._connection.call(self._workflows.PreviewSchedule, request)
        return list(answer.due_times)

    async def backfill_schedule(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        schedule_index: int | None = None,
        scope: str = "",
        params: Mapping[str, Any] | None = None,
        validate_only: bool = False,
        again: bool = False,
        limit: int = 0,
        request_id: str | None = None,
    ) -> list[workflow_pb2.BackfilledTime]:
        """Starts a run for each due time from `start` to `end`, oldest first; returns all of these due times.

        Those that have a run are left out unless `again`, so the call may be repeated; `validate_only` starts nothing.
        Raises NotFound, and InvalidArgument, with the reason `TOO_MANY_DUE_TIMES` for more than `limit` (1,000) due
        times.
        """
        request = workflow_pb2.BackfillScheduleRequest(
            workflow=name,
            from_time=to_timestamp(start),
            to_time=to_timestamp(end),
            schedule_index=schedule_index,
            scope=scope,
            params=to_struct(params or {}),
            validate_only=validate_only,
            again=again,
            limit=limit,
            request_id=new_request_id(request_id),
        )
        answer = await self._connection.call(self._workflows.BackfillSchedule, request)
        return list(answer.times)

    async def explain_schedule(self, name: str, *, at: datetime | None = None) -> workflow_pb2.ExplainScheduleResponse:
        """Explains why it did or did not run, at that time or lately. Raises NotFound."""
        request = workflow_pb2.ExplainScheduleRequest(workflow=name, at=to_timestamp(at) if at is not None else None)
        return await self._connection.call(self._workflows.ExplainSchedule, request)

    def list_fires(self, *, workflow: str = "", page_size: int = 0) -> AsyncGenerator[workflow_pb2.Fire, None]:
        """The outcome of each due time of its schedules, latest first. Raises NotFound."""

        async def fetch(token: str) -> tuple[list[workflow_pb2.Fire], str]:
            answer = await self._connection.call(
                self._workflows.ListFires,
                workflow_pb2.ListFiresRequest(workflow=workflow, page_size=page_size, page_token=token),
            )
            return list(answer.fires), answer.next_page_token

        return paged(fetch)


def _labels(texts: Iterable[DefinitionSource]) -> list[str]:
    """The names of the texts in problems: their files; unique for texts that were not written as they are sent."""
    return [
        f"{text.file}#{number}" if hasattr(text, "locate") else text.file for number, text in enumerate(texts, start=1)
    ]


def _locate(problems: Iterable[workflow_pb2.DefinitionProblem], texts: Mapping[str, DefinitionSource]) -> None:
    """Puts the places of the original into the problems of such texts."""
    for problem in problems:
        if (locate := getattr(texts.get(problem.file), "locate", None)) is not None:
            problem.file, problem.line = locate(problem.path)
            problem.column = 1


def _check_size(request: workflow_pb2.ApplyDefinitionsRequest) -> None:
    """Raises InvalidArgument."""
    size, count = request.ByteSize(), len(request.texts)
    if size > MAX_MESSAGE_BYTES or count > MAX_APPLIED:
        most = f"at most {MAX_APPLIED:,} definitions and {size_text(MAX_MESSAGE_BYTES)} in one call"
        text = f"found {counted(count, 'text')} with {size_text(size)}, expected {most}: split them"
        raise InvalidArgument(text, reason="TOO_LARGE")
