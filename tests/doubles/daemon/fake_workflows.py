"""The part of the fake daemon that stores workflows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import grpc
from google.rpc import error_details_pb2

from doubles.daemon.fake_apply import apply
from doubles.daemon.fake_errors import Context, abort, info
from doubles.daemon.fake_schedules import Schedules
from toban.v1 import run_pb2, workflow_pb2

if TYPE_CHECKING:
    from doubles.daemon.fake_daemon import FakeDaemon

TERMINAL = (
    run_pb2.RUN_STATE_SUCCEEDED,
    run_pb2.RUN_STATE_FAILED,
    run_pb2.RUN_STATE_TIMED_OUT,
    run_pb2.RUN_STATE_CANCELLED,
)


class Workflows(Schedules):
    """A definition is known by its `name:` line; a text with BROKEN is invalid."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon

    async def CreateWorkflow(
        self, request: workflow_pb2.CreateWorkflowRequest, context: Context
    ) -> workflow_pb2.CreateWorkflowResponse:
        async def work() -> workflow_pb2.CreateWorkflowResponse:
            name = await self._name(request.definition, context)
            if name in self._daemon.workflows:
                await abort(
                    context,
                    grpc.StatusCode.ALREADY_EXISTS,
                    f"cannot create workflow {name}: it exists",
                    info("WORKFLOW_EXISTS", {"workflow": name}),
                )
            return workflow_pb2.CreateWorkflowResponse(workflow=self._daemon.store_workflow(name, request.definition))

        return await self._daemon.answer("CreateWorkflow", context, request, work)

    async def GetWorkflow(
        self, request: workflow_pb2.GetWorkflowRequest, context: Context
    ) -> workflow_pb2.GetWorkflowResponse:
        async def work() -> workflow_pb2.GetWorkflowResponse:
            return workflow_pb2.GetWorkflowResponse(workflow=await self._existing(request.name, context))

        return await self._daemon.answer("GetWorkflow", context, request, work)

    async def ListWorkflows(
        self, request: workflow_pb2.ListWorkflowsRequest, context: Context
    ) -> workflow_pb2.ListWorkflowsResponse:
        async def work() -> workflow_pb2.ListWorkflowsResponse:
            names = sorted(name for name in self._daemon.workflows if name > request.page_token)
            size = request.page_size or 100
            response = workflow_pb2.ListWorkflowsResponse()
            for name in names[:size]:
                workflow = response.workflows.add()
                workflow.CopyFrom(self._daemon.workflows[name])
                workflow.ClearField("definition")
            if len(names) > size:
                response.next_page_token = names[size - 1]
            return response

        return await self._daemon.answer("ListWorkflows", context, request, work)

    async def ListWorkflowSummaries(
        self, request: workflow_pb2.ListWorkflowSummariesRequest, context: Context
    ) -> workflow_pb2.ListWorkflowSummariesResponse:
        async def work() -> workflow_pb2.ListWorkflowSummariesResponse:
            wanted = request.text.casefold()
            found = [each for each in self._summaries() if wanted in each.name or wanted in each.title.casefold()]
            return workflow_pb2.ListWorkflowSummariesResponse(summaries=found)

        return await self._daemon.answer("ListWorkflowSummaries", context, request, work)

    async def GetOverview(
        self, request: workflow_pb2.GetOverviewRequest, context: Context
    ) -> workflow_pb2.GetOverviewResponse:
        async def work() -> workflow_pb2.GetOverviewResponse:
            found = self._summaries()
            answer = workflow_pb2.GetOverviewResponse(workflow_count=len(found))
            answer.summaries.extend(found[: request.max_workflows or 100])
            answer.failed_since.GetCurrentTime()
            return answer

        return await self._daemon.answer("GetOverview", context, request, work)

    def _summaries(self) -> list[workflow_pb2.WorkflowSummary]:
        return [
            workflow_pb2.WorkflowSummary(
                name=name,
                kind=workflow_pb2.DEFINITION_KIND_WORKFLOW,
                title=workflow.title,
                labels=workflow.labels,
                enabled=workflow.enabled,
                version=workflow.version,
            )
            for name, workflow in sorted(self._daemon.workflows.items())
        ]

    async def UpdateWorkflow(
        self, request: workflow_pb2.UpdateWorkflowRequest, context: Context
    ) -> workflow_pb2.UpdateWorkflowResponse:
        async def work() -> workflow_pb2.UpdateWorkflowResponse:
            name = request.workflow.name
            current = await self._existing(name, context)
            await self._name(request.workflow.definition, context)
            new = request.workflow.definition
            if new.source == current.definition.source and new.base_dir == current.definition.base_dir:
                return workflow_pb2.UpdateWorkflowResponse(workflow=current)
            return workflow_pb2.UpdateWorkflowResponse(workflow=self._daemon.store_workflow(name, new), changed=True)

        return await self._daemon.answer("UpdateWorkflow", context, request, work)

    async def DeleteWorkflow(
        self, request: workflow_pb2.DeleteWorkflowRequest, context: Context
    ) -> workflow_pb2.DeleteWorkflowResponse:
        async def work() -> workflow_pb2.DeleteWorkflowResponse:
            await self._existing(request.name, context)
            for record in self._daemon.runs.values():
                if record.run.workflow == request.name and record.run.state not in TERMINAL:
                    await abort(
                        context,
                        grpc.StatusCode.FAILED_PRECONDITION,
                        f"a run of {request.name} is active",
                        info("RUN_ALREADY_ACTIVE", {"run_id": record.run.id}),
                    )
            del self._daemon.workflows[request.name]
            return workflow_pb2.DeleteWorkflowResponse()

        return await self._daemon.answer("DeleteWorkflow", context, request, work)

    async def ValidateWorkflow(
        self, request: workflow_pb2.ValidateWorkflowRequest, context: Context
    ) -> workflow_pb2.ValidateWorkflowResponse:
        async def work() -> workflow_pb2.ValidateWorkflowResponse:
            problems = _problems(request.definition)
            return workflow_pb2.ValidateWorkflowResponse(valid=not problems, problems=problems)

        return await self._daemon.answer("ValidateWorkflow", context, request, work)

    async def ApplyDefinitions(
        self, request: workflow_pb2.ApplyDefinitionsRequest, context: Context
    ) -> workflow_pb2.ApplyDefinitionsResponse:
        return await self._daemon.answer(
            "ApplyDefinitions", context, request, lambda: apply(self._daemon, request, context)
        )

    async def ListWorkflowVersions(
        self, request: workflow_pb2.ListWorkflowVersionsRequest, context: Context
    ) -> workflow_pb2.ListWorkflowVersionsResponse:
        async def work() -> workflow_pb2.ListWorkflowVersionsResponse:
            versions = list(reversed(await self._versions(request.workflow, context)))
            begin, size = int(request.page_token or 0), request.page_size or 100
            response = workflow_pb2.ListWorkflowVersionsResponse(versions=versions[begin : begin + size])
            for version in response.versions:
                version.ClearField("definition")
            if len(versions) > begin + size:
                response.next_page_token = str(begin + size)
            return response

        return await self._daemon.answer("ListWorkflowVersions", context, request, work)

    async def GetWorkflowVersion(
        self, request: workflow_pb2.GetWorkflowVersionRequest, context: Context
    ) -> workflow_pb2.GetWorkflowVersionResponse:
        async def work() -> workflow_pb2.GetWorkflowVersionResponse:
            versions = await self._versions(request.workflow, context)
            if request.version > len(versions):
                await abort(
                    context,
                    grpc.StatusCode.NOT_FOUND,
                    f"{request.workflow} has no version {request.version}",
                    info("VERSION_NOT_FOUND"),
                )
            return workflow_pb2.GetWorkflowVersionResponse(version=versions[request.version - 1])

        return await self._daemon.answer("GetWorkflowVersion", context, request, work)

    async def RestoreWorkflowVersion(
        self, request: workflow_pb2.RestoreWorkflowVersionRequest, context: Context
    ) -> workflow_pb2.RestoreWorkflowVersionResponse:
        async def work() -> workflow_pb2.RestoreWorkflowVersionResponse:
            versions = await self._versions(request.workflow, context)
            if request.version > len(versions):
                await abort(
                    context,
                    grpc.StatusCode.NOT_FOUND,
                    f"{request.workflow} has no version {request.version}",
                    info("VERSION_NOT_FOUND"),
                )
            old = versions[request.version - 1].definition
            if versions[-1].definition == old:
                return workflow_pb2.RestoreWorkflowVersionResponse(version=versions[-1])
            if request.workflow in self._daemon.jobs:
                self._daemon.store_job(request.workflow, old)
            else:
                self._daemon.store_workflow(request.workflow, old)
            return workflow_pb2.RestoreWorkflowVersionResponse(version=versions[-1], changed=True)

        return await self._daemon.answer("RestoreWorkflowVersion", context, request, work)

    async def SetWorkflowEnabled(
        self, request: workflow_pb2.SetWorkflowEnabledRequest, context: Context
    ) -> workflow_pb2.SetWorkflowEnabledResponse:
        async def work() -> workflow_pb2.SetWorkflowEnabledResponse:
            workflow = await self._existing(request.name, context)
            workflow.enabled = request.enabled
            return workflow_pb2.SetWorkflowEnabledResponse(workflow=workflow)

        return await self._daemon.answer("SetWorkflowEnabled", context, request, work)

    async def _versions(self, name: str, context: Context) -> list[workflow_pb2.WorkflowVersion]:
        if name not in self._daemon.jobs:
            await self._existing(name, context)
        return self._daemon.versions[name]

    async def _existing(self, name: str, context: Context) -> workflow_pb2.Workflow:
        if name not in self._daemon.workflows:
            await abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"no workflow {name!r}",
                info("WORKFLOW_NOT_FOUND", {"workflow": name}),
            )
        return self._daemon.workflows[name]

    async def _name(self, definition: workflow_pb2.Definition, context: Context) -> str:
        await abort_if_broken(definition, context)
        found = re.search(r'^\W*name"?: *"?([\w-]+)', definition.source, re.MULTILINE)
        assert found is not None
        return found[1]


async def abort_if_broken(definition: workflow_pb2.Definition, context: Context, path: str = "steps.one.run") -> None:
    problems = _problems(definition, path)
    if problems:
        await abort(
            context,
            grpc.StatusCode.INVALID_ARGUMENT,
            "the definition is not valid",
            info("INVALID_DEFINITION"),
            error_details_pb2.BadRequest(
                field_violations=[
                    error_details_pb2.BadRequest.FieldViolation(field=problem.path, description=problem.message)
                    for problem in problems
                ]
            ),
            workflow_pb2.DefinitionProblems(problems=problems),
        )


def _problems(definition: workflow_pb2.Definition, path: str = "steps.one.run") -> list[workflow_pb2.DefinitionProblem]:
    return [
        workflow_pb2.DefinitionProblem(path=path, line=number, column=5, message="found BROKEN, expected a command")
        for number, line in enumerate(definition.source.splitlines(), 1)
        if "BROKEN" in line
    ]
