"""The asynchronous client."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from toban.sdk.address import Address, resolve
from toban.sdk.artifacts import ArtifactCalls
from toban.sdk.connection import Connection
from toban.sdk.dead_letters import DeadLetterCalls
from toban.sdk.events import EventCalls
from toban.sdk.jobs import JobCalls
from toban.sdk.runs import RunCalls
from toban.sdk.schedules import ScheduleCalls
from toban.sdk.system import SystemCalls
from toban.sdk.workflows import WorkflowCalls


class Client(
    WorkflowCalls,
    JobCalls,
    RunCalls,
    ArtifactCalls,
    EventCalls,
    ScheduleCalls,
    DeadLetterCalls,
    SystemCalls,
):
    """One method per RPC of `toban.v1`, and a few that combine them.

    Everything that creates carries a request id, so that a call repeated because its answer was lost does its
    work once. Lists page by themselves. Every failure is a TobanError.

    `server` is `unix:///path` or `host:port`; without it `TOBAN_SERVER` or a local daemon's socket is used.
    `timeout` bounds one try of a call, `retry_for` the seconds for which a call is repeated while the daemon is
    away, and `connect_for` the same until it was reached for the first time (by default the same).

        async with Client() as toban:
            run = await toban.start_run("nightly-report", {"day": "monday"})
            run = await toban.wait_run(run.id)
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        timeout: float = 30.0,
        retry_for: float = 10.0,
        connect_for: float | None = None,
    ) -> None:
        self._connection = Connection(
            resolve(server),
            timeout=timeout,
            retry_for=retry_for,
            connect_for=retry_for if connect_for is None else connect_for,
        )

    @property
    def address(self) -> Address:
        """Where the daemon is."""
        return self._connection.address

    async def close(self) -> None:
        """Ends every stream and closes the connection. May be repeated."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
