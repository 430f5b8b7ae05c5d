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

    Every call that creates something carries a request id, so a call repeated because its answer was lost takes effect
    once. Lists fetch their pages as needed. Every failure is a TobanError.

    `server` is `unix:///path` or `host:port`; without it `TOBAN_SERVER` or a local daemon's socket is used. `timeout`
    limits one try of a call. `retry_for` is how many seconds a call is retried while the daemon is unavailable;
    `connect_for` is the same until the first successful connection (default: `retry_for`).

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
        """The daemon's address."""
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
