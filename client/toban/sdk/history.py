"""Calls of the HistoryService."""

from __future__ import annotations

from functools import cached_property

from toban.sdk.base import Calls
from toban.v1 import history_pb2, history_pb2_grpc


class HistoryCalls(Calls):
    """Sums up what ran."""

    @cached_property
    def _history(self) -> history_pb2_grpc.HistoryServiceAsyncStub:
        return history_pb2_grpc.HistoryServiceStub(self._connection.channel)

    async def count_runs_by_day(
        self, workflow: str = "", *, timezone: str = "", first_day: str = "", days: int = 0
    ) -> history_pb2.CountRunsByDayResponse:
        """The runs that were created on each day, by state; the last day is today if `first_day` is not given.

        Raises InvalidArgument.
        """
        request = history_pb2.CountRunsByDayRequest(
            workflow=workflow, timezone=timezone, first_day=first_day, days=days
        )
        return await self._connection.call(self._history.CountRunsByDay, request)

    async def list_run_grid(
        self, workflow: str, *, page_size: int = 0, page_token: str = ""
    ) -> history_pb2.ListRunGridResponse:
        """A page of the newest runs of a workflow with the state and the times of each step. Raises NotFound."""
        request = history_pb2.ListRunGridRequest(workflow=workflow, page_size=page_size, page_token=page_token)
        return await self._connection.call(self._history.ListRunGrid, request)

    async def get_event_chain(self, event_id: str) -> history_pb2.GetEventChainResponse:
        """What an event started: runs, the events that these emitted, and so on. Raises NotFound."""
        request = history_pb2.GetEventChainRequest(id=event_id)
        return await self._connection.call(self._history.GetEventChain, request)
