"""The gRPC server: what is served, where, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import sys
from collections.abc import Sequence
from urllib.parse import quote

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from toban.limits import MAX_MESSAGE_BYTES
from toban.v1 import (
    dead_letter_pb2_grpc,
    event_pb2_grpc,
    job_pb2_grpc,
    run_pb2,
    run_pb2_grpc,
    schedule_pb2_grpc,
    system_pb2_grpc,
    workflow_pb2_grpc,
)
from toband.api.dead_letter_service import DeadLetterService
from toband.api.event_service import EventService
from toband.api.interceptor import CallInterceptor
from toband.api.job_service import JobService
from toband.api.lanes import SERVED, Lanes
from toband.api.run_service import RunService
from toband.api.schedule_service import ScheduleService
from toband.api.system_service import SystemService
from toband.api.workflow_service import WorkflowService
from toband.engine.health import Health

PENDING_MOST = 20_000
"""gRPC ends calls beyond its own limit with a bare CANCELLED. Whether a call is taken is decided by `Lanes` alone."""
SOCKET_MODE = 0o660
RUNS = run_pb2.DESCRIPTOR.services_by_name["RunService"].full_name


class ListenError(Exception):
    """An address cannot be served; the text says why."""


def _told_of_departures(record: logging.LogRecord) -> bool:
    """False for an answer that could not be sent: its client has gone, which is not an error of the daemon."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or kind.__name__ != "ExecuteBatchError"


class Server:
    def __init__(self) -> None:
        self._server = grpc.aio.server(
            interceptors=[CallInterceptor(Lanes())],
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.server.max_pending_requests", PENDING_MOST),
                ("grpc.http2.write_buffer_size", 1024),
                ("grpc.server.max_pending_requests_hard_limit", PENDING_MOST),
            ],
        )
        logging.getLogger("grpc._cython.cygrpc").addFilter(_told_of_departures)
        self._health = health.aio.HealthServicer()
        self._telling: asyncio.Task[None] | None = None
        self._sockets: list[str] = []

    def bind(self, addresses: Sequence[str]) -> list[str]:
        """Takes the addresses; answers them with real ports. Raises ListenError."""
        return [self._bind(address) for address in addresses]

    async def start(
        self,
        *,
        workflows: WorkflowService,
        jobs: JobService,
        runs: RunService,
        dead_letters: DeadLetterService,
        events: EventService,
        schedules: ScheduleService,
        system: SystemService,
    ) -> None:
        workflow_pb2_grpc.add_WorkflowServiceServicer_to_server(workflows, self._server)
        job_pb2_grpc.add_JobServiceServicer_to_server(jobs, self._server)
        run_pb2_grpc.add_RunServiceServicer_to_server(runs, self._server)
        dead_letter_pb2_grpc.add_DeadLetterServiceServicer_to_server(dead_letters, self._server)
        event_pb2_grpc.add_EventServiceServicer_to_server(events, self._server)
        schedule_pb2_grpc.add_ScheduleServiceServicer_to_server(schedules, self._server)
        system_pb2_grpc.add_SystemServiceServicer_to_server(system, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [service.full_name for service in SERVED]
        reflection.enable_server_reflection(
            [*names, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server
        )
        for name in ("", *names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()

    def follow(self, condition: Health) -> None:
        """From here on RunService says NOT_SERVING while new runs are refused; all others serve as long as they do."""

        async def tell() -> None:
            states = health_pb2.HealthCheckResponse
            while True:
                serving = condition.refusing() is None
                await self._health.set(RUNS, states.SERVING if serving else states.NOT_SERVING)
                if serving == (condition.refusing() is None):
                    return

        def changed() -> None:
            if self._telling is None or self._telling.done():
                self._telling = asyncio.get_running_loop().create_task(tell())

        condition.on_change(changed)
        changed()

    async def stop(self, grace: float) -> None:
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)

    def close(self) -> None:
        """Leaves nothing behind, whether it has served or not."""
        for path in self._sockets:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self._sockets.clear()

    def _bind(self, address: str) -> str:
        if address.startswith("unix://"):
            path = address.removeprefix("unix://")
            _clear_stale(path)
            before = os.umask(0o777 & ~SOCKET_MODE)
            try:
                self._add(address, f"unix:{quote(path)}")
            finally:
                os.umask(before)
            self._sockets.append(path)
            return address
        host = address.rpartition(":")[0]
        return f"{host}:{self._add(address, address)}"

    def _add(self, address: str, target: str) -> int:
        try:
            port = self._server.add_insecure_port(target)
        except RuntimeError:
            port = 0
        if port == 0:
            raise ListenError(f"cannot listen on {address}: {_why_not(address)}")
        return port


def _why_not(address: str) -> str:
    """What the system says to somebody who tries the same; gRPC keeps it to itself."""
    where: str | tuple[str, int]
    if sys.platform != "win32" and address.startswith("unix://"):
        family, where = socket.AF_UNIX, address.removeprefix("unix://")
    else:
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if host == "[::1]" else socket.AF_INET
        where = (host.strip("[]"), int(port))
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(where)
    except OSError as error:
        return error.strerror or str(error)
    if isinstance(where, str):
        os.unlink(where)
    return "it cannot be bound"


def _clear_stale(path: str) -> None:
    """Removes the socket of a daemon that died; a living one is not disturbed. Raises ListenError."""
    if sys.platform == "win32":
        raise ListenError(f"cannot listen on unix://{path}: Windows has no unix sockets here")
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        raise ListenError(f"cannot listen on unix://{path}: there is no directory {directory}")
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ListenError(
                f"cannot listen on unix://{path}: there is something else of that name"
            )
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except (ConnectionRefusedError, TimeoutError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        except OSError as error:
            raise ListenError(f"cannot listen on unix://{path}: {error.strerror}") from error
    raise ListenError(f"cannot listen on unix://{path}: another process serves it")
