"""Calls of the SystemService."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import cached_property
from typing import Any

import grpc.aio

from toban.sdk.base import Calls
from toban.sdk.connection import Metadata
from toban.v1 import system_pb2, system_pb2_grpc

DOCTOR_WITHIN = 600.0
"""Seconds: checking a large database takes a while."""


class SystemCalls(Calls):
    """Reports on the daemon and controls it as a whole."""

    @cached_property
    def _system(self) -> system_pb2_grpc.SystemServiceAsyncStub:
        return system_pb2_grpc.SystemServiceStub(self._connection.channel)

    async def get_info(self) -> system_pb2.GetInfoResponse:
        """Version, uptime, running work, health, and the actions of the last recovery."""
        return await self._connection.call(self._system.GetInfo, system_pb2.GetInfoRequest())

    async def get_config(self) -> list[system_pb2.ConfigValue]:
        """The effective configuration and the origin of each value."""
        answer = await self._connection.call(self._system.GetConfig, system_pb2.GetConfigRequest())
        return list(answer.values)

    async def reload_config(self) -> system_pb2.ReloadConfigResponse:
        """Reads the configuration of the daemon again, and reports what changed; may be repeated.

        With `problems` in the answer nothing changed.
        """
        return await self._connection.call(self._system.ReloadConfig, system_pb2.ReloadConfigRequest())

    async def collect_garbage(
        self, *, dry_run: bool = False, within: float = 3600.0
    ) -> system_pb2.CollectGarbageResponse:
        """Removes now everything past its retention; with `dry_run` only reports what would be removed.

        May take a while, here at most `within` seconds; the daemon finishes it in any case.
        """
        request = system_pb2.CollectGarbageRequest(dry_run=dry_run)
        return await self._connection.call(self._system.CollectGarbage, request, within=within)

    async def doctor(self, *, repair: bool = False) -> list[system_pb2.Finding]:
        """Every check and its result; with `repair`, repairs what can be repaired safely."""
        request = system_pb2.DoctorRequest(repair=repair)
        answer = await self._connection.call(self._system.Doctor, request, within=DOCTOR_WITHIN)
        return list(answer.findings)

    async def drain(self) -> bool:
        """Stops schedules from starting runs until `resume` or a restart. False if paused already; may be repeated."""
        answer = await self._connection.call(self._system.Drain, system_pb2.DrainRequest())
        return answer.changed

    async def resume(self) -> bool:
        """Lets schedules start runs again. False if they were not paused; may be repeated."""
        answer = await self._connection.call(self._system.Resume, system_pb2.ResumeRequest())
        return answer.changed

    async def backup(self, *, with_key: bool = False) -> AsyncGenerator[system_pb2.BackupResponse, None]:
        """A backup of the daemon's state: messages with `data`, its bytes, and with `progress`; at last the `summary`.

        The archive is whole only after the summary. `with_key` includes the key of the secrets. Raises Unreachable if
        the connection is lost: the backup must then be started again from the beginning.
        """
        request = system_pb2.BackupRequest(with_key=with_key)

        def open_stream(metadata: Metadata) -> grpc.aio.UnaryStreamCall[Any, system_pb2.BackupResponse]:
            return self._system.Backup(request, metadata=metadata)

        messages = self._connection.stream(open_stream, ended=lambda whole: whole, reconnect=0.0)
        async with aclosing(messages):
            async for message in messages:
                yield message

    async def list_locks(self) -> list[system_pb2.Lock]:
        """The locks of the configuration and those that are held or waited for, by name."""
        answer = await self._connection.call(self._system.ListLocks, system_pb2.ListLocksRequest())
        return list(answer.locks)

    async def release_lock(self, name: str, *, run_id: str = "") -> list[system_pb2.LockLeftover]:
        """Frees a lock that only processes of ended attempts keep held; returns what kept it. May be repeated.

        With `run_id`, only what that run left behind.
        """
        request = system_pb2.ReleaseLockRequest(name=name, run_id=run_id)
        answer = await self._connection.call(self._system.ReleaseLock, request)
        return list(answer.released)

    async def reload(self, *, within: float = 600.0) -> system_pb2.ReloadResponse:
        """Reads every definition file again, and reports the changes; may be repeated.

        Many files may take a while, here at most `within` seconds; the daemon finishes it in any case.
        """
        return await self._connection.call(self._system.Reload, system_pb2.ReloadRequest(), within=within)
