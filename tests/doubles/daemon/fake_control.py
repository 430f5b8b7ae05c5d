"""Run control of the fake daemon: retry, pause, approve and delete runs, and their artifacts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc

from doubles.daemon.fake_errors import Context, abort, info
from doubles.daemon.fake_workflows import TERMINAL
from toban.v1 import run_pb2, run_pb2_grpc

if TYPE_CHECKING:
    from doubles.daemon.fake_daemon import FakeDaemon, RunRecord


def as_created(run: run_pb2.Run) -> run_pb2.Run:
    """The answer to the call that creates a run: it has not started yet."""
    created = run_pb2.Run()
    created.CopyFrom(run)
    created.state = run_pb2.RUN_STATE_PENDING
    created.ClearField("started_at")
    return created


class Control(run_pb2_grpc.RunServiceServicer):
    """The rest of the RunService; `Runs` has what starts, shows and watches."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon

    async def PlanRun(self, request: run_pb2.PlanRunRequest, context: Context) -> run_pb2.PlanRunResponse:
        async def work() -> run_pb2.PlanRunResponse:
            if request.workflow not in self._daemon.workflows:
                await abort(
                    context,
                    grpc.StatusCode.NOT_FOUND,
                    f"no workflow {request.workflow!r}",
                    info("WORKFLOW_NOT_FOUND"),
                )
            return self._daemon.plan

        return await self._daemon.answer("PlanRun", context, request, work)

    async def RetryRun(self, request: run_pb2.RetryRunRequest, context: Context) -> run_pb2.RetryRunResponse:
        async def work() -> run_pb2.RetryRunResponse:
            old = (await self._ended(request.id, context)).run
            if old.state == run_pb2.RUN_STATE_SUCCEEDED and not (request.everything or request.from_steps):
                await abort(
                    context,
                    grpc.StatusCode.FAILED_PRECONDITION,
                    "all of it succeeded",
                    info("NOTHING_TO_RETRY", {"run_id": old.id}),
                )
            record = self._daemon.add_run(old.workflow, steps=[step.id for step in old.steps])
            record.run.retry_of = old.id
            record.run.triggered_by = run_pb2.TRIGGER_RETRY
            return run_pb2.RetryRunResponse(run=as_created(record.run))

        return await self._daemon.answer("RetryRun", context, request, work)

    async def PauseRun(self, request: run_pb2.PauseRunRequest, context: Context) -> run_pb2.PauseRunResponse:
        async def work() -> run_pb2.PauseRunResponse:
            record = await self._active(request.id, context)
            record.run.paused_at.GetCurrentTime()
            self._daemon.change(record, run_pb2.RUN_CHANGE_KIND_PAUSE_REQUESTED)
            return run_pb2.PauseRunResponse(run=record.run)

        return await self._daemon.answer("PauseRun", context, request, work)

    async def ResumeRun(self, request: run_pb2.ResumeRunRequest, context: Context) -> run_pb2.ResumeRunResponse:
        async def work() -> run_pb2.ResumeRunResponse:
            record = await self._active(request.id, context)
            record.run.ClearField("paused_at")
            self._daemon.change(record, run_pb2.RUN_CHANGE_KIND_RESUME_REQUESTED)
            return run_pb2.ResumeRunResponse(run=record.run)

        return await self._daemon.answer("ResumeRun", context, request, work)

    async def DecideApproval(
        self, request: run_pb2.DecideApprovalRequest, context: Context
    ) -> run_pb2.DecideApprovalResponse:
        async def work() -> run_pb2.DecideApprovalResponse:
            record = await self._existing(request.run_id, context)
            waiting = {step.id for step in record.run.steps if step.waiting_for}
            if request.step not in waiting:
                await abort(
                    context,
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"{request.step} waits for nobody",
                    info("STEP_NOT_WAITING", {"step": request.step}),
                )
            for step in record.run.steps:
                if step.id == request.step:
                    step.ClearField("waiting_for")
            approved = request.decision == run_pb2.APPROVAL_DECISION_APPROVED
            state = run_pb2.STEP_STATE_SUCCEEDED if approved else run_pb2.STEP_STATE_FAILED
            self._daemon.step(record, request.step, state)
            return run_pb2.DecideApprovalResponse(run=record.run)

        return await self._daemon.answer("DecideApproval", context, request, work)

    async def DeleteRun(self, request: run_pb2.DeleteRunRequest, context: Context) -> run_pb2.DeleteRunResponse:
        async def work() -> run_pb2.DeleteRunResponse:
            if (await self._ended(request.id, context)).run.HasField("pin"):
                await abort(
                    context,
                    grpc.StatusCode.FAILED_PRECONDITION,
                    "the run is pinned",
                    info("RUN_PINNED", {"run_id": request.id}),
                )
            del self._daemon.runs[request.id]
            return run_pb2.DeleteRunResponse()

        return await self._daemon.answer("DeleteRun", context, request, work)

    async def ListArtifacts(
        self, request: run_pb2.ListArtifactsRequest, context: Context
    ) -> run_pb2.ListArtifactsResponse:
        async def work() -> run_pb2.ListArtifactsResponse:
            record = await self._existing(request.run_id, context)
            found = [
                run_pb2.StepArtifact(step=step.id, artifact=artifact)
                for step in record.run.steps
                for artifact in step.artifacts
                if request.step in ("", step.id, step.parent)
            ]
            begin, size = int(request.page_token or 0), request.page_size or 100
            response = run_pb2.ListArtifactsResponse(artifacts=found[begin : begin + size])
            if begin + size < len(found):
                response.next_page_token = str(begin + size)
            return response

        return await self._daemon.answer("ListArtifacts", context, request, work)

    async def DownloadArtifact(
        self, request: run_pb2.DownloadArtifactRequest, context: Context
    ) -> AsyncIterator[run_pb2.DownloadArtifactResponse]:
        """The test put the bytes into `contents`, by step, name and path."""
        await self._daemon.begin("DownloadArtifact", context, request)
        record = await self._existing(request.run_id, context)
        key = (request.step, request.name, request.path)
        if key not in record.contents:
            await abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"no artifact {request.name!r}",
                info("ARTIFACT_NOT_FOUND"),
            )
        header, *pieces = record.contents[key]
        yield run_pb2.DownloadArtifactResponse(header=header)
        for piece in pieces:
            if isinstance(piece, bytes):
                yield run_pb2.DownloadArtifactResponse(data=piece)
            else:
                await abort(context, grpc.StatusCode.UNAVAILABLE, "the daemon went away")

    async def _existing(self, run_id: str, context: Context) -> RunRecord:
        if run_id not in self._daemon.runs:
            await abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"no run {run_id!r}",
                info("RUN_NOT_FOUND", {"run_id": run_id}),
            )
        return self._daemon.runs[run_id]

    async def _active(self, run_id: str, context: Context) -> RunRecord:
        record = await self._existing(run_id, context)
        if record.run.state in TERMINAL:
            await abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                "the run has ended",
                info("RUN_ALREADY_TERMINAL", {"run_id": run_id}),
            )
        return record

    async def _ended(self, run_id: str, context: Context) -> RunRecord:
        record = await self._existing(run_id, context)
        if record.run.state not in TERMINAL:
            await abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                "the run goes on",
                info("RUN_NOT_TERMINAL", {"run_id": run_id}),
            )
        return record

    async def PinRun(self, request: run_pb2.PinRunRequest, context: Context) -> run_pb2.PinRunResponse:
        async def work() -> run_pb2.PinRunResponse:
            record = await self._existing(request.id, context)
            record.run.pin.CopyFrom(run_pb2.RunPin(by="uid:1000", note=request.note))
            record.run.pin.at.GetCurrentTime()
            return run_pb2.PinRunResponse(run=record.run)

        return await self._daemon.answer("PinRun", context, request, work)

    async def UnpinRun(self, request: run_pb2.UnpinRunRequest, context: Context) -> run_pb2.UnpinRunResponse:
        async def work() -> run_pb2.UnpinRunResponse:
            record = await self._existing(request.id, context)
            record.run.ClearField("pin")
            return run_pb2.UnpinRunResponse(run=record.run)

        return await self._daemon.answer("UnpinRun", context, request, work)
