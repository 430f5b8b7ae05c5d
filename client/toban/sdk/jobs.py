"""Calls of the JobService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from functools import cached_property

from toban.sdk.base import Calls, new_request_id, paged
from toban.v1 import job_pb2, job_pb2_grpc, run_pb2, workflow_pb2


class JobCalls(Calls):
    """Stores jobs and runs them alone. The source of a job is a `jobs:` document with that job."""

    @cached_property
    def _jobs(self) -> job_pb2_grpc.JobServiceAsyncStub:
        return job_pb2_grpc.JobServiceStub(self._connection.channel)

    async def create_job(
        self, source: str, *, base_dir: str = "", request_id: str | None = None
    ) -> job_pb2.CreateJobResponse:
        """Stores a new job. Raises Conflict `JOB_EXISTS` or `WORKFLOW_EXISTS`, and InvalidDefinition."""
        return await self._connection.call(
            self._jobs.CreateJob,
            job_pb2.CreateJobRequest(
                definition=workflow_pb2.Definition(source=source, base_dir=base_dir),
                request_id=new_request_id(request_id),
            ),
        )

    async def update_job(
        self,
        name: str,
        source: str,
        *,
        base_dir: str = "",
        etag: str = "",
        request_id: str | None = None,
        force: bool = False,
    ) -> job_pb2.UpdateJobResponse:
        """Replaces the definition, and makes a new version of every workflow that uses it.

        Replaces a definition that a file owns only with `force`, until the file is read again. Raises NotFound,
        Conflict `ETAG_MISMATCH` and `OWNED_BY_FILE`, and InvalidDefinition, also if one of those workflows would become
        invalid.
        """
        job = job_pb2.Job(
            name=name,
            etag=etag,
            definition=workflow_pb2.Definition(source=source, base_dir=base_dir),
        )
        request = job_pb2.UpdateJobRequest(job=job, request_id=new_request_id(request_id), force=force)
        request.update_mask.paths.append("definition")
        return await self._connection.call(self._jobs.UpdateJob, request)

    async def get_job(self, name: str) -> job_pb2.Job:
        """One job with its definition and the workflows that use it. Raises NotFound."""
        answer = await self._connection.call(self._jobs.GetJob, job_pb2.GetJobRequest(name=name))
        return answer.job

    def list_jobs(
        self, *, labels: Mapping[str, str] | None = None, page_size: int = 0
    ) -> AsyncGenerator[job_pb2.Job, None]:
        """Jobs in order of id, without their definitions."""

        async def fetch(token: str) -> tuple[list[job_pb2.Job], str]:
            answer = await self._connection.call(
                self._jobs.ListJobs,
                job_pb2.ListJobsRequest(labels=labels or {}, page_size=page_size, page_token=token),
            )
            return list(answer.jobs), answer.next_page_token

        return paged(fetch)

    async def delete_job(self, name: str, *, etag: str = "", force: bool = False) -> None:
        """Deletes a job; its runs stay. Deletes a job that a file owns only with `force`.

        Raises NotFound, Conflict `JOB_IN_USE`, `RUN_ALREADY_ACTIVE` and `OWNED_BY_FILE`.
        """
        await self._connection.delete(self._jobs.DeleteJob, job_pb2.DeleteJobRequest(name=name, etag=etag, force=force))

    async def set_job_enabled(self, name: str, enabled: bool) -> job_pb2.Job:
        """Sets whether schedules and events start it; workflows can still use it. Raises NotFound; may be repeated."""
        answer = await self._connection.call(
            self._jobs.SetJobEnabled, job_pb2.SetJobEnabledRequest(name=name, enabled=enabled)
        )
        return answer.job

    async def run_job(
        self,
        name: str,
        *,
        triggered_by: run_pb2.Trigger.ValueType = run_pb2.TRIGGER_API,
        request_id: str | None = None,
    ) -> run_pb2.Run:
        """Starts a job alone, as a run of its own. Raises NotFound and Conflict `RUN_ALREADY_ACTIVE`."""
        answer = await self._connection.call(
            self._jobs.RunJob,
            job_pb2.RunJobRequest(name=name, triggered_by=triggered_by, request_id=new_request_id(request_id)),
        )
        return answer.run
