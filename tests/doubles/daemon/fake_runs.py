"""Runs of the fake daemon. They stand still until the test moves them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc

from doubles.daemon.fake_control import as_created
from doubles.daemon.fake_errors import Context, abort, info
from doubles.daemon.fake_logs import Logs
from doubles.daemon.fake_workflows import TERMINAL
from toban.v1 import run_pb2

if TYPE_CHECKING:
    pass


def _between(request: run_pb2.ListRunsRequest, run: run_pb2.Run) -> bool:
    """Whether the run was created in the time that the request asks for."""
    created = run.created_at.ToNanoseconds()
    if request.HasField("created_after") and created < request.created_after.ToNanoseconds():
        return False
    return not request.HasField("created_before") or created < request.created_before.ToNanoseconds()


class Runs(Logs):
    """Runs stand still until the test moves them."""

    async def StartRun(self, request: run_pb2.StartRunRequest, context: Context) -> run_pb2.StartRunResponse:
        async def work() -> run_pb2.StartRunResponse:
            if request.workflow not in self._daemon.workflows:
                await abort(
                    context,
                    grpc.StatusCode.NOT_FOUND,
                    f"no workflow {request.workflow!r}",
                    info("WORKFLOW_NOT_FOUND"),
                )
            for record in self._daemon.runs.values():
                if record.run.workflow == request.workflow and record.run.state not in TERMINAL:
                    await abort(
                        context,
                        grpc.StatusCode.FAILED_PRECONDITION,
                        f"cannot start a run of {request.workflow}: one is active",
                        info(
                            "RUN_ALREADY_ACTIVE",
                            {"run_id": record.run.id, "run": f"{record.run.workflow}#{record.run.number}"},
                        ),
                    )
            record = self._daemon.add_run(request.workflow)
            if request.HasField("params"):
                record.run.params.CopyFrom(request.params)
            record.run.labels.update(request.labels)
            record.run.triggered_by = request.triggered_by
            record.run.scope = request.scope or "full"
            record.run.definition_scope = self._daemon.plan.definition_scope
            return run_pb2.StartRunResponse(run=as_created(record.run))

        return await self._daemon.answer("StartRun", context, request, work)

    async def GetRun(self, request: run_pb2.GetRunRequest, context: Context) -> run_pb2.GetRunResponse:
        async def work() -> run_pb2.GetRunResponse:
            record = await self._existing(request.id, context)
            size = min(request.step_page_size or 500, self._daemon.steps_per_page)
            begin = int(request.step_page_token or 0)
            response = run_pb2.GetRunResponse(run=record.run)
            del response.run.steps[:]
            response.run.steps.extend(record.run.steps[begin : begin + size])
            if begin + size < len(record.run.steps):
                response.next_step_page_token = str(begin + size)
            return response

        return await self._daemon.answer("GetRun", context, request, work)

    async def GetCurrentRun(
        self, request: run_pb2.GetCurrentRunRequest, context: Context
    ) -> run_pb2.GetCurrentRunResponse:
        async def work() -> run_pb2.GetCurrentRunResponse:
            if request.workflow not in self._daemon.workflows:
                await abort(
                    context,
                    grpc.StatusCode.NOT_FOUND,
                    f"no workflow {request.workflow!r}",
                    info("WORKFLOW_NOT_FOUND"),
                )
            found = [record.run for record in self._daemon.runs.values() if record.run.workflow == request.workflow]
            if not found:
                await abort(
                    context,
                    grpc.StatusCode.NOT_FOUND,
                    f"{request.workflow} has no run",
                    info("RUN_NOT_FOUND"),
                )
            response = run_pb2.GetCurrentRunResponse(run=found[-1])
            del response.run.steps[:]
            return response

        return await self._daemon.answer("GetCurrentRun", context, request, work)

    async def ListRuns(self, request: run_pb2.ListRunsRequest, context: Context) -> run_pb2.ListRunsResponse:
        async def work() -> run_pb2.ListRunsResponse:
            found = [
                record.run
                for record in reversed(self._daemon.runs.values())
                if request.workflow in ("", record.run.workflow)
                and (not request.states or record.run.state in request.states)
                and request.retry_of in ("", record.run.retry_of)
                and (not request.ids or record.run.id in request.ids)
                and request.number in (0, record.run.number)
                and _between(request, record.run)
            ]
            begin, size = int(request.page_token or 0), request.page_size or 50
            response = run_pb2.ListRunsResponse()
            for run in found[begin : begin + size]:
                copy = response.runs.add()
                copy.CopyFrom(run)
                del copy.steps[:]
            if begin + size < len(found):
                response.next_page_token = str(begin + size)
            return response

        return await self._daemon.answer("ListRuns", context, request, work)

    async def FindIds(self, request: run_pb2.FindIdsRequest, context: Context) -> run_pb2.FindIdsResponse:
        async def work() -> run_pb2.FindIdsResponse:
            ids = sorted(self._daemon.ids_of(request.kind), reverse=True)
            part = request.part.lower()
            begin = [one for one in ids if one.startswith(part)]
            return run_pb2.FindIdsResponse(ids=(begin or [one for one in ids if one.endswith(part)])[:10])

        return await self._daemon.answer("FindIds", context, request, work)

    async def CancelRun(self, request: run_pb2.CancelRunRequest, context: Context) -> run_pb2.CancelRunResponse:
        async def work() -> run_pb2.CancelRunResponse:
            record = await self._existing(request.id, context)
            if record.run.state in TERMINAL:
                state = run_pb2.RunState.Name(record.run.state)
                await abort(
                    context,
                    grpc.StatusCode.FAILED_PRECONDITION,
                    "the run has ended",
                    info("RUN_ALREADY_TERMINAL", {"state": state}),
                )
            record.run.cancel_requested_at.GetCurrentTime()
            response = run_pb2.CancelRunResponse(run=record.run)
            self._daemon.finish(record, run_pb2.RUN_STATE_CANCELLED, request.reason)
            return response

        return await self._daemon.answer("CancelRun", context, request, work)

    async def WatchRun(
        self, request: run_pb2.WatchRunRequest, context: Context
    ) -> AsyncIterator[run_pb2.WatchRunResponse]:
        await self._daemon.begin("WatchRun", context, request)
        record = await self._existing(request.id, context)
        sent = 0
        sequence = request.after_sequence
        if not sequence:
            sequence = len(record.changes)
            whole = run_pb2.WatchRunResponse(sequence=sequence, run=record.run)
            for picture in self._parts(whole):
                await self._hold(sent)
                yield picture
                sent += 1
        while True:
            for change in record.changes[sequence:]:
                for part in self._parts(change):
                    await self._hold(sent)
                    yield part
                    sent += 1
                sequence = change.sequence
            if record.run.state in TERMINAL and sequence == len(record.changes):
                return
            async with self._daemon.changed:
                if sequence == len(record.changes):
                    await self._daemon.changed.wait()

    async def WatchRuns(
        self, request: run_pb2.WatchRunsRequest, context: Context
    ) -> AsyncIterator[run_pb2.WatchRunsResponse]:
        """The positions are those of a list that only grows."""
        await self._daemon.begin("WatchRuns", context, request)
        sent = int(request.position or 0)
        while True:
            for number, message in enumerate(self._daemon.run_changes[sent:], start=sent + 1):
                await self._hold(number)
                answer = run_pb2.WatchRunsResponse(position=str(number))
                answer.MergeFrom(message)
                yield answer
                sent = number
            async with self._daemon.changed:
                if sent == len(self._daemon.run_changes):
                    await self._daemon.changed.wait()

    def _parts(self, whole: run_pb2.WatchRunResponse) -> list[run_pb2.WatchRunResponse]:
        steps, size = list(whole.run.steps), self._daemon.steps_per_page
        parts = []
        for begin in range(0, max(len(steps), 1), size):
            part = run_pb2.WatchRunResponse()
            part.CopyFrom(whole)
            part.partial = begin + size < len(steps)
            del part.run.steps[:]
            part.run.steps.extend(steps[begin : begin + size])
            parts.append(part)
        return parts

    async def StreamLogs(
        self, request: run_pb2.StreamLogsRequest, context: Context
    ) -> AsyncIterator[run_pb2.StreamLogsResponse]:
        await self._daemon.begin("StreamLogs", context, request)
        if request.process_execution_id:
            record = await self._of_process(request.process_execution_id, context)
        else:
            record = await self._existing(request.run_id, context)
        index = int(request.position or 0)
        if request.tail:
            index = max(len(record.chunks) - request.tail, 0)
        sent = 0
        while True:
            # Looked at before the chunks: what is written while some of them are sent comes before the end.
            ended = record.run.state in TERMINAL
            for chunk in record.chunks[index:]:
                index += 1
                if request.step and chunk.step != request.step:
                    continue
                if request.process_execution_id and chunk.process_execution_id != request.process_execution_id:
                    continue
                wanted = run_pb2.LogChunk()
                wanted.CopyFrom(chunk)
                if request.streams:
                    del wanted.records[:]
                    wanted.records.extend(record for record in chunk.records if record.stream in request.streams)
                await self._hold(sent)
                yield run_pb2.StreamLogsResponse(chunk=wanted, position=str(index))
                sent += 1
            if ended or not request.follow:
                break
            async with self._daemon.changed:
                if index == len(record.chunks) and record.run.state not in TERMINAL:
                    await self._daemon.changed.wait()
        await self._hold(sent)
        yield run_pb2.StreamLogsResponse(
            end=run_pb2.LogEnd(run_state=record.run.state, complete=True), position=str(index)
        )

    async def ListProcessExecutions(
        self, request: run_pb2.ListProcessExecutionsRequest, context: Context
    ) -> run_pb2.ListProcessExecutionsResponse:
        async def work() -> run_pb2.ListProcessExecutionsResponse:
            if request.run_id:
                records = [await self._existing(request.run_id, context)]
            else:
                records = list(self._daemon.runs.values())
            return run_pb2.ListProcessExecutionsResponse(
                process_executions=[
                    process
                    for record in records
                    for process in record.processes
                    if not request.states or process.state in request.states
                ]
            )

        return await self._daemon.answer("ListProcessExecutions", context, request, work)

    async def GetProcessExecution(
        self, request: run_pb2.GetProcessExecutionRequest, context: Context
    ) -> run_pb2.GetProcessExecutionResponse:
        async def work() -> run_pb2.GetProcessExecutionResponse:
            record = await self._of_process(request.id, context)
            found = next(process for process in record.processes if process.id == request.id)
            response = run_pb2.GetProcessExecutionResponse(process_execution=found)
            if request.without_output:
                response.process_execution.ClearField("stdout")
                response.process_execution.ClearField("stderr")
            return response

        return await self._daemon.answer("GetProcessExecution", context, request, work)

    async def _hold(self, sent: int) -> None:
        if self._daemon.hold_after is not None and sent >= self._daemon.hold_after:
            self._daemon.count("hold")
            await asyncio.Event().wait()
