"""The part of the fake daemon that stores jobs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import grpc

from doubles.daemon.fake_errors import Context, abort, info
from doubles.daemon.fake_workflows import abort_if_broken
from toban.v1 import job_pb2, job_pb2_grpc, workflow_pb2

if TYPE_CHECKING:
    from doubles.daemon.fake_daemon import FakeDaemon


class Jobs(job_pb2_grpc.JobServiceServicer):
    """A job is known by the first key below `jobs:`; a text with BROKEN is invalid."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon

    async def CreateJob(self, request: job_pb2.CreateJobRequest, context: Context) -> job_pb2.CreateJobResponse:
        async def work() -> job_pb2.CreateJobResponse:
            name = await self._name(request.definition, context)
            for kind, stored in (("job", self._daemon.jobs), ("workflow", self._daemon.workflows)):
                if name in stored:
                    await abort(
                        context,
                        grpc.StatusCode.ALREADY_EXISTS,
                        f"there is a {kind} {name!r} already",
                        info(f"{kind.upper()}_EXISTS", {kind: name}),
                    )
            return job_pb2.CreateJobResponse(job=self._daemon.store_job(name, request.definition))

        return await self._daemon.answer("CreateJob", context, request, work)

    async def GetJob(self, request: job_pb2.GetJobRequest, context: Context) -> job_pb2.GetJobResponse:
        async def work() -> job_pb2.GetJobResponse:
            return job_pb2.GetJobResponse(job=await self._existing(request.name, context))

        return await self._daemon.answer("GetJob", context, request, work)

    async def ListJobs(self, request: job_pb2.ListJobsRequest, context: Context) -> job_pb2.ListJobsResponse:
        async def work() -> job_pb2.ListJobsResponse:
            names = sorted(name for name in self._daemon.jobs if name > request.page_token)
            size = request.page_size or 100
            response = job_pb2.ListJobsResponse()
            for name in names[:size]:
                job = response.jobs.add()
                job.CopyFrom(self._daemon.jobs[name])
                job.ClearField("definition")
                job.ClearField("used_by")
            if len(names) > size:
                response.next_page_token = names[size - 1]
            return response

        return await self._daemon.answer("ListJobs", context, request, work)

    async def UpdateJob(self, request: job_pb2.UpdateJobRequest, context: Context) -> job_pb2.UpdateJobResponse:
        async def work() -> job_pb2.UpdateJobResponse:
            current = await self._existing(request.job.name, context)
            await self._name(request.job.definition, context)
            new = request.job.definition
            if (new.source, new.base_dir) == (
                current.definition.source,
                current.definition.base_dir,
            ):
                return job_pb2.UpdateJobResponse(job=current)
            users = list(current.used_by)
            job = self._daemon.store_job(request.job.name, new)
            job.used_by.extend(users)
            return job_pb2.UpdateJobResponse(job=job, changed=True, updated_workflows=users)

        return await self._daemon.answer("UpdateJob", context, request, work)

    async def DeleteJob(self, request: job_pb2.DeleteJobRequest, context: Context) -> job_pb2.DeleteJobResponse:
        async def work() -> job_pb2.DeleteJobResponse:
            job = await self._existing(request.name, context)
            if job.used_by:
                names = ", ".join(job.used_by)
                await abort(
                    context,
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"the job is used by {names}",
                    info("JOB_IN_USE", {"workflows": names}),
                )
            del self._daemon.jobs[request.name]
            return job_pb2.DeleteJobResponse()

        return await self._daemon.answer("DeleteJob", context, request, work)

    async def SetJobEnabled(
        self, request: job_pb2.SetJobEnabledRequest, context: Context
    ) -> job_pb2.SetJobEnabledResponse:
        async def work() -> job_pb2.SetJobEnabledResponse:
            job = await self._existing(request.name, context)
            job.enabled = request.enabled
            return job_pb2.SetJobEnabledResponse(job=job)

        return await self._daemon.answer("SetJobEnabled", context, request, work)

    async def RunJob(self, request: job_pb2.RunJobRequest, context: Context) -> job_pb2.RunJobResponse:
        async def work() -> job_pb2.RunJobResponse:
            await self._existing(request.name, context)
            record = self._daemon.add_run(request.name, steps=[request.name])
            record.run.triggered_by = request.triggered_by
            return job_pb2.RunJobResponse(run=record.run)

        return await self._daemon.answer("RunJob", context, request, work)

    async def _existing(self, name: str, context: Context) -> job_pb2.Job:
        if name not in self._daemon.jobs:
            await abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"no job {name!r}",
                info("JOB_NOT_FOUND", {"job": name}),
            )
        return self._daemon.jobs[name]

    async def _name(self, definition: workflow_pb2.Definition, context: Context) -> str:
        found = re.search(r'jobs"?:[\s{]*"?([\w-]+)', definition.source)
        assert found is not None
        await abort_if_broken(definition, context, f"jobs.{found[1]}.run")
        return found[1]
