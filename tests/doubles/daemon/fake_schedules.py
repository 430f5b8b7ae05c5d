"""The part of the fake daemon that knows when workflows are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from doubles.daemon.fake_errors import Context, abort, info
from toban.v1 import workflow_pb2, workflow_pb2_grpc

if TYPE_CHECKING:
    from doubles.daemon.fake_daemon import FakeDaemon


class Schedules(workflow_pb2_grpc.WorkflowServiceServicer):
    """Says what the test put there."""

    _daemon: FakeDaemon

    async def PreviewSchedule(
        self, request: workflow_pb2.PreviewScheduleRequest, context: Context
    ) -> workflow_pb2.PreviewScheduleResponse:
        async def work() -> workflow_pb2.PreviewScheduleResponse:
            await self._known(request.workflow, context)
            return workflow_pb2.PreviewScheduleResponse(due_times=self._daemon.due_times[: request.count])

        return await self._daemon.answer("PreviewSchedule", context, request, work)

    async def BackfillSchedule(
        self, request: workflow_pb2.BackfillScheduleRequest, context: Context
    ) -> workflow_pb2.BackfillScheduleResponse:
        async def work() -> workflow_pb2.BackfillScheduleResponse:
            await self._known(request.workflow, context)
            return workflow_pb2.BackfillScheduleResponse(times=self._daemon.backfilled)

        return await self._daemon.answer("BackfillSchedule", context, request, work)

    async def ExplainSchedule(
        self, request: workflow_pb2.ExplainScheduleRequest, context: Context
    ) -> workflow_pb2.ExplainScheduleResponse:
        async def work() -> workflow_pb2.ExplainScheduleResponse:
            await self._known(request.workflow, context)
            return self._daemon.explanation

        return await self._daemon.answer("ExplainSchedule", context, request, work)

    async def ListFires(
        self, request: workflow_pb2.ListFiresRequest, context: Context
    ) -> workflow_pb2.ListFiresResponse:
        async def work() -> workflow_pb2.ListFiresResponse:
            await self._known(request.workflow, context)
            fires = [each for each in self._daemon.fires if each.workflow == request.workflow]
            begin, size = int(request.page_token or 0), request.page_size or 100
            response = workflow_pb2.ListFiresResponse(fires=fires[begin : begin + size])
            if len(fires) > begin + size:
                response.next_page_token = str(begin + size)
            return response

        return await self._daemon.answer("ListFires", context, request, work)

    async def _known(self, name: str, context: Context) -> None:
        if name not in self._daemon.workflows and name not in self._daemon.jobs:
            await abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"no workflow {name!r}",
                info("WORKFLOW_NOT_FOUND", {"workflow": name}),
            )
