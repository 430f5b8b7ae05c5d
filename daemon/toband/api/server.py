"""The gRPC servers of all doors: their services, health and shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from toban.v1 import (
    access_pb2_grpc,
    dead_letter_pb2_grpc,
    event_pb2_grpc,
    history_pb2_grpc,
    hook_pb2_grpc,
    job_pb2_grpc,
    run_pb2,
    run_pb2_grpc,
    schedule_pb2_grpc,
    secret_pb2_grpc,
    system_pb2_grpc,
    workflow_pb2_grpc,
)
from toband.api.access_service import AccessService
from toband.api.call_limits import SERVED
from toband.api.dead_letter_service import DeadLetterService
from toband.api.event_service import EventService
from toband.api.health_service import HealthService
from toband.api.history_service import HistoryService
from toband.api.hook_service import HookService
from toband.api.interceptor import CallGate
from toband.api.job_service import JobService
from toband.api.open_door import OpenDoor
from toband.api.run_service import RunService
from toband.api.schedule_service import ScheduleService
from toband.api.secret_service import SecretService
from toband.api.system_service import SystemService
from toband.api.unix_socket import ListenError
from toband.api.workflow_service import WorkflowService
from toband.config import ServerLimits
from toband.config.listeners import ListenAddress
from toband.config.settings import TlsSettings
from toband.engine.access.door import Door
from toband.engine.access.login_tokens import LoginTokens
from toband.engine.health.health_conditions import Health
from toband.ports import Conditions, HealthStatus

SOCKET = "socket"
LOOK_EVERY = 1.0
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
RUNS = run_pb2.DESCRIPTOR.services_by_name["RunService"].full_name


_OF_CLIENTS = frozenset({"ExecuteBatchError", "UnicodeDecodeError"})
"""An answer that could not be sent because its client disconnected, and metadata that are no text: gRPC would log these
as errors, the latter with their content, which may be a token.
"""


def _is_of_the_daemon(record: logging.LogRecord) -> bool:
    """False for an error that a client causes."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or kind.__name__ not in _OF_CLIENTS


class Server:
    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._doors: list[OpenDoor] = []
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_of_the_daemon)
        self._health = HealthService()

    def bind(self, listeners: Sequence[ListenAddress], tls: TlsSettings) -> Sequence[Door]:
        """Binds the addresses and returns them with real ports. Raises ListenError."""
        for listener in listeners:
            door = OpenDoor(listener, tls, self._limits)
            self._doors.append(door)
            door.bind()
        return [each.door for each in self._doors]

    async def start(
        self,
        gate: CallGate,
        logins: LoginTokens,
        *,
        access: AccessService,
        workflows: WorkflowService,
        jobs: JobService,
        runs: RunService,
        dead_letters: DeadLetterService,
        events: EventService,
        history: HistoryService,
        hooks: HookService,
        schedules: ScheduleService,
        secrets: SecretService,
        system: SystemService,
    ) -> None:
        names = [service.full_name for service in SERVED]

        def register(server: grpc.aio.Server) -> None:
            access_pb2_grpc.add_AccessServiceServicer_to_server(access, server)
            workflow_pb2_grpc.add_WorkflowServiceServicer_to_server(workflows, server)
            job_pb2_grpc.add_JobServiceServicer_to_server(jobs, server)
            run_pb2_grpc.add_RunServiceServicer_to_server(runs, server)
            dead_letter_pb2_grpc.add_DeadLetterServiceServicer_to_server(dead_letters, server)
            event_pb2_grpc.add_EventServiceServicer_to_server(events, server)
            history_pb2_grpc.add_HistoryServiceServicer_to_server(history, server)
            hook_pb2_grpc.add_HookServiceServicer_to_server(hooks, server)
            schedule_pb2_grpc.add_ScheduleServiceServicer_to_server(schedules, server)
            secret_pb2_grpc.add_SecretServiceServicer_to_server(secrets, server)
            system_pb2_grpc.add_SystemServiceServicer_to_server(system, server)
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
            reflection.enable_server_reflection([*names, HEALTH, reflection.SERVICE_NAME], server)

        self._health.set(["", *names], serving=True)
        for door in self._doors:
            await door.start(gate, logins, register)

    def follow(self, condition: Health) -> None:
        """Keeps the health of RunService: NOT_SERVING while new runs are refused. The other services always serve."""

        def changed() -> None:
            self._health.set([RUNS], serving=condition.refusing() is None)

        condition.on_change(changed)
        changed()

    async def guard_sockets(self, conditions: Conditions) -> None:
        """Recreates deleted sockets, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            failed = []
            for door in self._doors:
                try:
                    await door.restore()
                except (ListenError, OSError) as error:
                    failed.append(str(error))
            if failed:
                detail = f"{'; '.join(failed)}: it was deleted or replaced while in use"
                conditions.trouble(SOCKET, HealthStatus.DEGRADED, detail)
            else:
                conditions.well(SOCKET)

    async def stop(self, grace: float) -> None:
        self._health.stop()
        await asyncio.gather(*(door.stop(grace) for door in self._doors))

    def close(self) -> None:
        """Removes the sockets, whether the server has started or not."""
        for door in self._doors:
            door.close()
        self._doors.clear()
