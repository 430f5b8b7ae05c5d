"""A run as an object: its facts, and the calls that control and follow it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from toban.sdk.errors import RunFailed
from toban.sdk.log_line import LogLine, LogLines
from toban.sdk.run_facts import Artifact, RunFacts, artifact_of, updated
from toban.sdk.runs import RECONNECT
from toban.sdk.states import LogLevel, LogStream, to_number
from toban.v1 import run_pb2

if TYPE_CHECKING:
    from toban.sdk.client import Client


class Run(RunFacts):
    """A run, as it was when it was last read: `refresh`, `wait`, `watch` and every call that changes it read it again.

    run = await toban.run("nightly", {"day": "monday"})
    async for line in run.logs():
        print(line.step, line)
    await run.wait(check=True)
    print(run.steps["build"].result)
    """

    def __init__(self, client: Client, message: run_pb2.Run) -> None:
        self._client = client
        self._message = message

    @property
    def message(self) -> run_pb2.Run:
        """The protobuf message, with every fact. It must not be changed."""
        return self._message

    async def refresh(self) -> Self:
        """Reads the run with all of its steps. Raises NotFound."""
        self._message = await self._client.get_run(self.id)
        return self

    async def wait(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the blocking client has no other way
        check: bool = False,
        reconnect: float = RECONNECT,
    ) -> Self:
        """Waits for the end of the run. With `check` raises RunFailed unless it succeeded.

        Goes on after a restart of the daemon. Raises NotFound, TimeoutError after `timeout` seconds, and Unreachable
        when the daemon is unavailable for `reconnect` seconds.
        """
        self._message = await self._client.wait_run(self.id, timeout=timeout, reconnect=reconnect)
        if check and not self.succeeded:
            word = str(self.state).replace("_", " ")
            text = f"run {self.name} {'was ' if word == 'cancelled' else ''}{word}"
            raise RunFailed(f"{text}: {self.error}" if self.error else text, run=self)
        return self

    async def watch(self, *, reconnect: float = RECONNECT) -> AsyncGenerator[Self, None]:
        """The run itself, now and after each of its changes, until it has ended.

        Goes on after a restart of the daemon. Raises NotFound, and Unreachable when the daemon is unavailable for
        `reconnect` seconds.
        """
        async with aclosing(self._client.watch_run(self.id, reconnect=reconnect)) as changes:
            async for change in changes:
                whole = change.change == run_pb2.RUN_CHANGE_KIND_UNSPECIFIED
                self._message = change.run if whole else updated(self._message, change.run)
                yield self

    async def logs(
        self,
        *,
        step: str = "",
        attempt: int = 0,
        streams: Iterable[LogStream] = (),
        level: LogLevel | None = None,
        tail: int = 0,
        since: datetime | None = None,
        follow: bool = True,
        reconnect: float = RECONNECT,
    ) -> AsyncGenerator[LogLine, None]:
        """The lines that the steps printed, live, until the run has ended; without `follow` those that there are now.

        `level` is the lowest level to return, `tail` begins with the last lines of each process. Neither a line is lost
        nor repeated over a restart of the daemon. Raises NotFound, and Unreachable when the daemon is unavailable for
        `reconnect` seconds.
        """
        lines = LogLines()
        messages = self._client.stream_logs(
            self.id,
            step=step,
            attempt=attempt,
            streams=[to_number(stream) for stream in streams],
            level=run_pb2.LOG_LEVEL_UNSPECIFIED if level is None else to_number(level),
            tail=tail,
            since=since,
            follow=follow,
            reconnect=reconnect,
        )
        async with aclosing(messages):
            async for message in messages:
                for line in lines.feed(message.chunk):
                    yield line
        for line in lines.finish():
            yield line

    async def artifacts(self, *, step: str = "") -> AsyncGenerator[Artifact, None]:
        """The artifacts of the run, or of one step and its instances. Raises NotFound."""
        async with aclosing(self._client.list_artifacts(self.id, step=step)) as found:
            async for artifact in found:
                yield artifact_of(artifact)

    async def artifact_data(self, step: str, name: str, *, path: str = "") -> AsyncGenerator[bytes, None]:
        """The bytes of an artifact's only file or of the file `path`, else a tar archive of all files.

        Raises NotFound, and Unreachable if the connection is lost: the data is then incomplete.
        """
        async with aclosing(self._client.download_artifact(self.id, step, name, path=path)) as messages:
            async for message in messages:
                if message.data:
                    yield message.data

    async def cancel(self, *, reason: str = "") -> Self:
        """Requests the cancellation, as `Client.cancel_run`. Raises Conflict `RUN_ALREADY_TERMINAL`."""
        await self._client.cancel_run(self.id, reason=reason)
        return await self.refresh()

    async def pause(self) -> Self:
        """Starts no further steps. Raises Conflict `RUN_ALREADY_TERMINAL`."""
        await self._client.pause_run(self.id)
        return await self.refresh()

    async def resume(self) -> Self:
        """Resumes the paused run. Raises Conflict `RUN_ALREADY_TERMINAL`."""
        await self._client.resume_run(self.id)
        return await self.refresh()

    async def approve(self, step: str, *, note: str = "") -> Self:
        """Approves a step that waits for approval. Raises Conflict `STEP_NOT_WAITING` and Refused `NOT_AN_APPROVER`."""
        await self._client.decide_approval(self.id, step, approved=True, note=note)
        return await self.refresh()

    async def reject(self, step: str, *, note: str = "") -> Self:
        """Rejects a step that waits for approval: it fails. Raises the same as `approve`."""
        await self._client.decide_approval(self.id, step, approved=False, note=note)
        return await self.refresh()

    async def retry(
        self,
        *,
        from_steps: Iterable[str] = (),
        everything: bool = False,
        newest_version: bool = False,
        params: Mapping[str, Any] | None = None,
        skip: Iterable[str] = (),
        skip_note: str = "",
        request_id: str | None = None,
    ) -> Run:
        """Starts a new run that repeats what failed in this ended one. Takes and raises the same as
        `Client.start_retry`.
        """
        answer = await self._client.start_retry(
            self.id,
            from_steps=from_steps,
            everything=everything,
            newest_version=newest_version,
            params=params,
            skip=skip,
            skip_note=skip_note,
            request_id=request_id,
        )
        return Run(self._client, answer.run)

    async def pin(self, *, note: str = "") -> Self:
        """Keeps the run from retention and deletion."""
        await self._client.pin_run(self.id, note=note)
        return await self.refresh()

    async def unpin(self) -> Self:
        """Removes the pin."""
        await self._client.unpin_run(self.id)
        return await self.refresh()

    async def delete(self) -> None:
        """Deletes the ended run, its logs and artifacts. Raises Conflict `RUN_NOT_TERMINAL`, `RUN_IN_USE` and
        `RUN_PINNED`.
        """
        await self._client.delete_run(self.id)
