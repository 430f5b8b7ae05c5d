"""Calls of the SystemService."""

from __future__ import annotations

from functools import cached_property

from toban.sdk.base import Calls
from toban.v1 import system_pb2, system_pb2_grpc


class SystemCalls(Calls):
    """Tells what the daemon is."""

    @cached_property
    def _system(self) -> system_pb2_grpc.SystemServiceAsyncStub:
        return system_pb2_grpc.SystemServiceStub(self._connection.channel)

    async def get_info(self) -> system_pb2.GetInfoResponse:
        """Version, uptime, what runs, and what recovery did."""
        return await self._connection.call(self._system.GetInfo, system_pb2.GetInfoRequest())

    async def get_config(self) -> list[system_pb2.ConfigValue]:
        """The effective configuration and where each value came from."""
        answer = await self._connection.call(self._system.GetConfig, system_pb2.GetConfigRequest())
        return list(answer.values)
