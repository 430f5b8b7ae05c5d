"""Implementation of grpc.health.v1.Health, which load balancers and probes ask without a credential.

The servicer of the library holds a lock while a watcher takes its message, so one watcher that does not read would
delay every change of a state, and the stop of the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from toband.api.handler import Context

_Answer = health_pb2.HealthCheckResponse


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # it has no types
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._states: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._stopping = False

    def set(self, services: Iterable[str], *, serving: bool) -> None:
        """`""` is the daemon as a whole. Without effect once the daemon is stopping."""
        if not self._stopping:
            self._tell(dict.fromkeys(services, _Answer.SERVING if serving else _Answer.NOT_SERVING))

    def stop(self) -> None:
        """Reports NOT_SERVING for every service from now on."""
        self._stopping = True
        self._tell(dict.fromkeys(self._states, _Answer.NOT_SERVING))

    async def Check(self, request: Any, context: Context) -> Any:
        state = self._states.get(request.service)
        if state is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return _Answer(status=state)

    async def List(self, request: Any, context: Context) -> Any:
        states = {name: _Answer(status=state) for name, state in self._states.items()}
        return health_pb2.HealthListResponse(statuses=states)

    async def Watch(self, request: Any, context: Context) -> AsyncIterator[Any]:
        """The state now, and each one that a reader finds when it has taken the one before. Ends with the daemon."""
        told = None
        while True:
            changed, state = self._changed, self._states.get(request.service, _Answer.SERVICE_UNKNOWN)
            if state != told:
                told = state
                yield _Answer(status=state)
            elif self._stopping:
                return
            else:
                await changed.wait()

    def _tell(self, states: dict[str, int]) -> None:
        self._states |= states
        self._changed.set()
        self._changed = asyncio.Event()
