"""The gRPC server: its services, addresses and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from urllib.parse import quote

import grpc
import structlog
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
    secret_pb2_grpc,
    system_pb2_grpc,
    workflow_pb2_grpc,
)
from toband.api.call_limits import SERVED
from toband.api.dead_letter_service import DeadLetterService
from toband.api.event_service import EventService
from toband.api.interceptor import CallGate, CallInterceptor
from toband.api.job_service import JobService
from toband.api.run_service import RunService
from toband.api.schedule_service import ScheduleService
from toband.api.secret_service import SecretService
from toband.api.system_service import SystemService
from toband.api.workflow_service import WorkflowService
from toband.domain.identity import Role
from toband.engine.access.authentication import Door
from toband.engine.health.health_conditions import Health
from toband.ports import Conditions, HealthStatus

PENDING_MOST = 20_000
"""Beyond its own limit gRPC ends calls with a bare CANCELLED; only `Lanes` should refuse calls."""
SOCKET_MODE = 0o660
SOCKET = "socket"
LOOK_EVERY = 1.0
RUNS = run_pb2.DESCRIPTOR.services_by_name["RunService"].full_name


log = structlog.get_logger()


class ListenError(Exception):
    """The daemon cannot listen on an address; the text says why."""


def _not_a_disconnect(record: logging.LogRecord) -> bool:
    """False for an answer that could not be sent because its client disconnected: not an error of the daemon."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or kind.__name__ != "ExecuteBatchError"


class Server:
    def __init__(self) -> None:
        self._interceptor = CallInterceptor()
        # The first serves all addresses; there is one more for each socket that was recreated.
        self._servers = [self._new_server()]
        self._register: Callable[[grpc.aio.Server], None] = lambda _: None
        logging.getLogger("grpc._cython.cygrpc").addFilter(_not_a_disconnect)
        self._health = health.aio.HealthServicer()
        self._telling: asyncio.Task[None] | None = None
        self._sockets: dict[str, tuple[int, int] | None] = {}

    def _new_server(self) -> grpc.aio.Server:
        return grpc.aio.server(
            interceptors=[self._interceptor],
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.server.max_pending_requests", PENDING_MOST),
                ("grpc.http2.write_buffer_size", 1024),
                ("grpc.server.max_pending_requests_hard_limit", PENDING_MOST),
            ],
        )

    def bind(self, addresses: Sequence[str]) -> list[str]:
        """Binds the addresses and returns them with real ports. Raises ListenError."""
        return [self._bind(self._servers[0], address) for address in addresses]

    async def start(
        self,
        gate: CallGate,
        *,
        workflows: WorkflowService,
        jobs: JobService,
        runs: RunService,
        dead_letters: DeadLetterService,
        events: EventService,
        schedules: ScheduleService,
        secrets: SecretService,
        system: SystemService,
    ) -> None:
        names = [service.full_name for service in SERVED]
        self._interceptor.open(gate, Door(address="unix:///toban.sock", role=Role.ADMIN))

        def register(server: grpc.aio.Server) -> None:
            workflow_pb2_grpc.add_WorkflowServiceServicer_to_server(workflows, server)
            job_pb2_grpc.add_JobServiceServicer_to_server(jobs, server)
            run_pb2_grpc.add_RunServiceServicer_to_server(runs, server)
            dead_letter_pb2_grpc.add_DeadLetterServiceServicer_to_server(dead_letters, server)
            event_pb2_grpc.add_EventServiceServicer_to_server(events, server)
            schedule_pb2_grpc.add_ScheduleServiceServicer_to_server(schedules, server)
            secret_pb2_grpc.add_SecretServiceServicer_to_server(secrets, server)
            system_pb2_grpc.add_SystemServiceServicer_to_server(system, server)
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
            reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)

        self._register = register
        register(self._servers[0])
        for name in ("", *names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        await self._servers[0].start()

    def follow(self, condition: Health) -> None:
        """Keeps the health of RunService: NOT_SERVING while new runs are refused. The other services always serve."""

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

    async def guard_sockets(self, conditions: Conditions) -> None:
        """Recreates deleted sockets, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            failed = []
            for path, known in list(self._sockets.items()):
                if _identity(path) != known:
                    try:
                        await self._serve_again(path)
                    except ListenError as error:
                        failed.append(str(error))
            if failed:
                detail = f"{'; '.join(failed)}: it was deleted or replaced while in use"
                conditions.trouble(SOCKET, HealthStatus.DEGRADED, detail)
            else:
                conditions.well(SOCKET)

    async def _serve_again(self, path: str) -> None:
        """Starts another server for the socket, as a running server takes no new address. Raises ListenError."""
        server = self._new_server()
        self._register(server)
        self._bind(server, f"unix://{path}")
        self._servers.append(server)
        await server.start()
        log.warning("recreated a deleted socket", action="socket_restored", path=path)

    async def stop(self, grace: float) -> None:
        await self._health.enter_graceful_shutdown()
        await asyncio.gather(*(server.stop(grace) for server in self._servers))

    def close(self) -> None:
        """Removes the sockets, whether the server has started or not."""
        for path, known in self._sockets.items():
            if _identity(path) == known:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        self._sockets.clear()

    def _bind(self, server: grpc.aio.Server, address: str) -> str:
        if address.startswith("unix://"):
            path = address.removeprefix("unix://")
            _clear_stale(path)
            before = os.umask(0o777 & ~SOCKET_MODE)
            try:
                _add(server, address, f"unix:{quote(path)}")
            finally:
                os.umask(before)
            self._sockets[path] = _identity(path)
            return address
        host = address.rpartition(":")[0]
        return f"{host}:{_add(server, address, address)}"


def _add(server: grpc.aio.Server, address: str, target: str) -> int:
    try:
        port = server.add_insecure_port(target)
    except RuntimeError:
        port = 0
    if port == 0:
        raise ListenError(f"cannot listen on {address}: {_why_not(address)}")
    return port


def _identity(path: str) -> tuple[int, int] | None:
    """Identity of a file; None if it does not exist or cannot be read."""
    try:
        facts = os.lstat(path)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _why_not(address: str) -> str:
    """The system's error for the same attempt; gRPC does not report it."""
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
    return "the address cannot be bound"


def _clear_stale(path: str) -> None:
    """Removes the socket of a dead daemon, and does not disturb a live one. Raises ListenError."""
    if sys.platform == "win32":
        raise ListenError(f"cannot listen on unix://{path}: unix sockets are not supported on Windows")
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        raise ListenError(f"cannot listen on unix://{path}: directory {directory} does not exist")
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ListenError(f"cannot listen on unix://{path}: the path exists and is not a socket")
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
