"""The asynchronous client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from toban.sdk.access import AccessCalls
from toban.sdk.address import Address
from toban.sdk.artifacts import ArtifactCalls
from toban.sdk.connection import Connection
from toban.sdk.credentials import ClientCredentials, Pem
from toban.sdk.dead_letters import DeadLetterCalls
from toban.sdk.endpoint import resolve
from toban.sdk.errors import NotFound
from toban.sdk.events import EventCalls
from toban.sdk.history import HistoryCalls
from toban.sdk.hooks import HookCalls
from toban.sdk.jobs import JobCalls
from toban.sdk.logs import LogCalls
from toban.sdk.runs import RunCalls
from toban.sdk.schedules import ScheduleCalls
from toban.sdk.secrets import SecretCalls
from toban.sdk.system import SystemCalls
from toban.sdk.workflows import WorkflowCalls

if TYPE_CHECKING:
    from toban.sdk.run_handle import Run
    from toban.sdk.states import RunState
    from toban.v1 import run_pb2


class Client(
    WorkflowCalls,
    JobCalls,
    RunCalls,
    LogCalls,
    ArtifactCalls,
    EventCalls,
    ScheduleCalls,
    DeadLetterCalls,
    SecretCalls,
    HookCalls,
    HistoryCalls,
    SystemCalls,
    AccessCalls,
):
    """Runs as objects (`run`, `find_run`, `find_runs`), and one method per RPC of `toban.v1` with its messages.

    Every call that creates something carries a request id, so a call repeated because its answer was lost takes effect
    once. Lists fetch their pages as needed. Every failure is a TobanError.

    `server` is `unix:///path`, `tls://host:port` or `127.0.0.1:port`. Without it the context with the name `context` is
    used, else `TOBAN_SERVER`, else the context of `TOBAN_CONTEXT`, else the current one (see `toban context`), else a
    local daemon's socket.
    `token`, or `token_file`, identifies the caller. `ca` are the certificates that the daemon's must be signed by,
    `certificate` and `key` those of the caller: paths of PEM files, or their content as bytes. What is not given comes
    from the context, else from `TOBAN_TOKEN`, `TOBAN_TOKEN_FILE`, `TOBAN_CA`, `TOBAN_CERT` and `TOBAN_KEY`.
    `timeout` limits one try of a call. `retry_for` is how many seconds a call is retried while the daemon is
    unavailable, as during its restart. `connect_for` is the same until the first successful connection: one second, so
    that a daemon that is not running is reported soon. Inside of a step of that daemon it is `retry_for`.

        async with Client() as toban:
            run = await toban.run("nightly-report", {"day": "monday"})
            await run.wait()
            print(run.state, run.error)
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        context: str | None = None,
        token: str = "",
        token_file: str = "",
        ca: Pem = b"",
        certificate: Pem = b"",
        key: Pem = b"",
        timeout: float = 30.0,
        retry_for: float = 10.0,
        connect_for: float | None = None,
    ) -> None:
        given = ClientCredentials(token=token, token_file=token_file, ca=ca, certificate=certificate, key=key)
        self._connection = Connection(
            resolve(server, context, given=given),
            timeout=timeout,
            retry_for=retry_for,
            connect_for=connect_for,
        )

    @property
    def address(self) -> Address:
        """The daemon's address."""
        return self._connection.address

    async def run(
        self,
        workflow: str,
        params: Mapping[str, Any] | None = None,
        *,
        scope: str = "",
        only: Iterable[str] = (),
        from_steps: Iterable[str] = (),
        from_run: str = "",
        labels: Mapping[str, str] | None = None,
        request_id: str | None = None,
    ) -> Run:
        """Starts a run of a workflow, or of a job. Takes and raises the same as `start_run`."""
        return _handle(
            self,
            await self.start_run(
                workflow,
                params,
                scope=scope,
                only=only,
                from_steps=from_steps,
                from_run=from_run,
                labels=labels,
                request_id=request_id,
            ),
        )

    async def find_run(self, run: str) -> Run:
        """A run by its id, or by its name, such as `nightly#12`, with all of its steps. Raises NotFound."""
        workflow, sign, number = run.rpartition("#")
        if sign and number.isascii() and number.isdigit():
            async with aclosing(self.list_runs(workflow=workflow, number=int(number))) as found:
                message = await anext(found, None)
            if message is None:
                raise NotFound(f"no run {run}", reason="RUN_NOT_FOUND")
            run = message.id
        return _handle(self, await self.get_run(run))

    async def find_runs(
        self,
        *,
        workflow: str = "",
        states: Iterable[RunState] = (),
        labels: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        text: str = "",
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> AsyncGenerator[Run, None]:
        """Runs, newest first, without their steps, which `refresh` reads. Takes and raises the same as `list_runs`."""
        from toban.sdk.states import to_number

        found = self.list_runs(
            workflow=workflow,
            states=[to_number(each) for each in states],
            labels=labels,
            params=params,
            text=text,
            created_after=created_after,
            created_before=created_before,
        )
        async with aclosing(found):
            async for run in found:
                yield _handle(self, run)

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


def _handle(client: Client, run: run_pb2.Run) -> Run:
    from toban.sdk.run_handle import Run  # not needed by all programs

    return Run(client, run)
