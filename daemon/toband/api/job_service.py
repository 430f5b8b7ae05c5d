"""JobService: see proto/toban/v1/job.proto."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from toban.definition import DefinitionKind
from toban.v1 import job_pb2 as pb
from toban.v1 import job_pb2_grpc
from toband.api import definition_messages, pages, run_requests
from toband.api.common_requests import base_dir, caller, check_mask, origin_of, request_of
from toband.api.definition_messages import problem
from toband.api.handler import Context, unary
from toband.api.run_service import RunService
from toband.api.schedule_rpcs import ScheduleRpcs
from toband.engine.access.call_scope import visible, visible_among
from toband.engine.definitions.catalog import Workflows
from toband.engine.runs.intake import RunIntake
from toband.ports import JobInUseError, Store, StoredWorkflow

_JOB = DefinitionKind.JOB


class JobService(job_pb2_grpc.JobServiceServicer):
    """`shows` makes the messages of new runs."""

    def __init__(
        self,
        workflows: Workflows,
        intake: RunIntake,
        store: Store,
        shows: RunService,
        schedules: ScheduleRpcs,
    ) -> None:
        self._workflows = workflows
        self._schedules = schedules
        self._intake = intake
        self._store = store
        self._shows = shows

    @unary
    async def CreateJob(self, request: pb.CreateJobRequest, context: Context) -> pb.CreateJobResponse:
        stored, warnings = await self._workflows.create(
            request.definition.source,
            base_dir(request.definition),
            request_of("CreateJob", request, request.request_id),
            kind=_JOB,
            origin=origin_of(context),
        )
        return pb.CreateJobResponse(job=await self._schedules.job(stored), warnings=[problem(w) for w in warnings])

    @unary
    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> pb.GetJobResponse:
        stored = await self._workflows.get(request.name, kind=_JOB)
        users = await self._users(request.name)
        return pb.GetJobResponse(job=await self._schedules.job(stored, users))

    @unary
    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        first = pages.last(request.page_token)

        async def read(last: StoredWorkflow | None, count: int) -> Sequence[StoredWorkflow]:
            after = last.name if last is not None else first
            return await self._store.list_workflows(
                after=after, limit=count, labels=dict(request.labels), kind=_JOB, visible=visible()
            )

        async def make(stored: StoredWorkflow) -> pb.Job:
            return definition_messages.job(stored)

        page = await pages.filled(pages.size(request.page_size, 100), read, make)
        return pb.ListJobsResponse(jobs=page.parts, next_page_token=page.token(attrgetter("name")))

    @unary
    async def UpdateJob(self, request: pb.UpdateJobRequest, context: Context) -> pb.UpdateJobResponse:
        check_mask(request.update_mask)
        given = request.job
        updated = await self._workflows.update(
            given.name,
            given.definition.source,
            base_dir(given.definition),
            given.etag,
            request_of("UpdateJob", request, request.request_id),
            kind=_JOB,
            force=request.force,
            origin=origin_of(context),
        )
        return pb.UpdateJobResponse(
            job=await self._schedules.job(updated.stored, await self._users(given.name)),
            changed=updated.changed,
            warnings=[problem(w) for w in updated.warnings],
            updated_workflows=updated.users,
        )

    @unary
    async def DeleteJob(self, request: pb.DeleteJobRequest, context: Context) -> pb.DeleteJobResponse:
        try:
            await self._workflows.delete(
                request.name, request.etag, kind=_JOB, force=request.force, origin=origin_of(context)
            )
        except JobInUseError as error:
            raise JobInUseError(sorted(await visible_among(error.args[0], self._store))) from None
        return pb.DeleteJobResponse()

    @unary
    async def SetJobEnabled(self, request: pb.SetJobEnabledRequest, context: Context) -> pb.SetJobEnabledResponse:
        stored = await self._workflows.set_enabled(request.name, request.enabled, kind=_JOB, origin=origin_of(context))
        users = await self._users(request.name)
        return pb.SetJobEnabledResponse(job=await self._schedules.job(stored, users))

    async def _users(self, job: str) -> Sequence[str]:
        """The workflows that use a job and that the caller may see."""
        return sorted(await visible_among(await self._store.workflows_using(job), self._store))

    @unary
    async def RunJob(self, request: pb.RunJobRequest, context: Context) -> pb.RunJobResponse:
        made_before = request_of("RunJob", request, request.request_id)
        if made_before is None or await self._store.run_of_request(made_before) is None:
            await self._workflows.get(request.name, kind=_JOB)
        run = await self._intake.start(
            request.name,
            {},
            trigger=run_requests.trigger(request.triggered_by),
            caller=caller(),
            request=made_before,
            origin=origin_of(context),
        )
        return pb.RunJobResponse(run=await self._shows.shown(run.id))
