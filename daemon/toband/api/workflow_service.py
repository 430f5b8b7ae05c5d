"""WorkflowService: see proto/toban/v1/workflow.proto."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from toban.v1 import workflow_pb2 as pb
from toban.v1 import workflow_pb2_grpc
from toband.api import definition_messages, pages
from toband.api.common_requests import base_dir, caller, check_mask, definition_texts, origin_of, request_of
from toband.api.definition_messages import problem
from toband.api.handler import Context, unary
from toband.api.schedule_rpcs import ScheduleRpcs
from toband.api.summary_rpcs import SummaryRpcs
from toband.engine.access.call_scope import visible
from toband.engine.definitions.catalog import Workflows
from toband.engine.errors import VersionNotFoundError, WorkflowNotFoundError
from toband.ports import DefinitionStore, StoredWorkflow


class WorkflowService(workflow_pb2_grpc.WorkflowServiceServicer):
    def __init__(
        self, workflows: Workflows, store: DefinitionStore, schedules: ScheduleRpcs, summaries: SummaryRpcs
    ) -> None:
        self._workflows = workflows
        self._store = store
        self._schedules = schedules
        self._summaries = summaries

    @unary
    async def CreateWorkflow(self, request: pb.CreateWorkflowRequest, context: Context) -> pb.CreateWorkflowResponse:
        stored, warnings = await self._workflows.create(
            request.definition.source,
            base_dir(request.definition),
            request_of("CreateWorkflow", request, request.request_id),
            origin=origin_of(context),
        )
        return pb.CreateWorkflowResponse(
            workflow=await self._schedules.workflow(stored),
            warnings=[problem(w) for w in warnings],
        )

    @unary
    async def GetWorkflow(self, request: pb.GetWorkflowRequest, context: Context) -> pb.GetWorkflowResponse:
        stored = await self._workflows.get(request.name)
        return pb.GetWorkflowResponse(workflow=await self._schedules.workflow(stored))

    @unary
    async def ListWorkflows(self, request: pb.ListWorkflowsRequest, context: Context) -> pb.ListWorkflowsResponse:
        first = pages.last(request.page_token)

        async def read(last: StoredWorkflow | None, count: int) -> Sequence[StoredWorkflow]:
            after = last.name if last is not None else first
            return await self._store.list_workflows(
                after=after, limit=count, labels=dict(request.labels), visible=visible()
            )

        async def make(stored: StoredWorkflow) -> pb.Workflow:
            return definition_messages.workflow(stored)

        page = await pages.filled(pages.size(request.page_size, 100), read, make)
        return pb.ListWorkflowsResponse(workflows=page.parts, next_page_token=page.token(attrgetter("name")))

    @unary
    async def ListWorkflowSummaries(
        self, request: pb.ListWorkflowSummariesRequest, context: Context
    ) -> pb.ListWorkflowSummariesResponse:
        return await self._summaries.list(request)

    @unary
    async def GetOverview(self, request: pb.GetOverviewRequest, context: Context) -> pb.GetOverviewResponse:
        return await self._summaries.overview(request)

    @unary
    async def UpdateWorkflow(self, request: pb.UpdateWorkflowRequest, context: Context) -> pb.UpdateWorkflowResponse:
        check_mask(request.update_mask)
        given = request.workflow
        updated = await self._workflows.update(
            given.name,
            given.definition.source,
            base_dir(given.definition),
            given.etag,
            request_of("UpdateWorkflow", request, request.request_id),
            force=request.force,
            origin=origin_of(context),
        )
        return pb.UpdateWorkflowResponse(
            workflow=await self._schedules.workflow(updated.stored),
            changed=updated.changed,
            warnings=[problem(w) for w in updated.warnings],
        )

    @unary
    async def DeleteWorkflow(self, request: pb.DeleteWorkflowRequest, context: Context) -> pb.DeleteWorkflowResponse:
        await self._workflows.delete(request.name, request.etag, force=request.force, origin=origin_of(context))
        return pb.DeleteWorkflowResponse()

    @unary
    async def ValidateWorkflow(
        self, request: pb.ValidateWorkflowRequest, context: Context
    ) -> pb.ValidateWorkflowResponse:
        problems = await self._workflows.validate(request.definition.source, base_dir(request.definition))
        return pb.ValidateWorkflowResponse(
            valid=all(p.warning for p in problems), problems=[problem(p) for p in problems]
        )

    @unary
    async def ApplyDefinitions(
        self, request: pb.ApplyDefinitionsRequest, context: Context
    ) -> pb.ApplyDefinitionsResponse:
        applied = await self._workflows.apply(
            definition_texts(request.texts),
            request_of("ApplyDefinitions", request, request.request_id),
            etags=dict(request.etags),
            force=request.force,
            validate_only=request.validate_only,
            origin=origin_of(context),
        )
        return definition_messages.applied(applied)

    @unary
    async def ListWorkflowVersions(
        self, request: pb.ListWorkflowVersionsRequest, context: Context
    ) -> pb.ListWorkflowVersionsResponse:
        limit = pages.size(request.page_size, 100)
        before = pages.number(request.page_token) if request.page_token else None
        found = await self._store.list_versions(request.workflow, before=before, limit=limit + 1)
        if not found and before is None:
            raise WorkflowNotFoundError(request.workflow)
        more = len(found) > limit
        return pb.ListWorkflowVersionsResponse(
            versions=[definition_messages.version(v) for v in found[:limit]],
            next_page_token=pages.token(str(found[limit - 1].version)) if more else "",
        )

    @unary
    async def GetWorkflowVersion(
        self, request: pb.GetWorkflowVersionRequest, context: Context
    ) -> pb.GetWorkflowVersionResponse:
        found = await self._store.get_version(request.workflow, request.version)
        if found is None:
            raise VersionNotFoundError(request.workflow, request.version)
        return pb.GetWorkflowVersionResponse(version=definition_messages.version(found))

    @unary
    async def RestoreWorkflowVersion(
        self, request: pb.RestoreWorkflowVersionRequest, context: Context
    ) -> pb.RestoreWorkflowVersionResponse:
        restored = await self._workflows.restore(
            request.workflow,
            request.version,
            request.etag,
            request_of("RestoreWorkflowVersion", request, request.request_id),
            force=request.force,
            origin=origin_of(context),
        )
        assert restored.stored.definition is not None
        return pb.RestoreWorkflowVersionResponse(
            version=definition_messages.version(restored.stored.definition),
            changed=restored.changed,
            warnings=[problem(w) for w in restored.warnings],
        )

    @unary
    async def SetWorkflowEnabled(
        self, request: pb.SetWorkflowEnabledRequest, context: Context
    ) -> pb.SetWorkflowEnabledResponse:
        stored = await self._workflows.set_enabled(request.name, request.enabled, origin=origin_of(context))
        return pb.SetWorkflowEnabledResponse(workflow=await self._schedules.workflow(stored))

    @unary
    async def PreviewSchedule(self, request: pb.PreviewScheduleRequest, context: Context) -> pb.PreviewScheduleResponse:
        return await self._schedules.preview(request)

    @unary
    async def BackfillSchedule(
        self, request: pb.BackfillScheduleRequest, context: Context
    ) -> pb.BackfillScheduleResponse:
        key = request_of("BackfillSchedule", request, request.request_id)
        return await self._schedules.backfill(request, caller(), key)

    @unary
    async def ExplainSchedule(self, request: pb.ExplainScheduleRequest, context: Context) -> pb.ExplainScheduleResponse:
        return await self._schedules.explain(request)

    @unary
    async def ListFires(self, request: pb.ListFiresRequest, context: Context) -> pb.ListFiresResponse:
        return await self._schedules.fires(request)
