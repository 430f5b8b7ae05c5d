"""Calls of the RunService about processes and their logs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from datetime import datetime
from functools import cached_property
from typing import Any

import grpc.aio

from toban.sdk.base import Calls, paged
from toban.sdk.connection import Metadata
from toban.sdk.message_values import to_timestamp
from toban.sdk.runs import RECONNECT
from toban.v1 import run_pb2, run_pb2_grpc


class LogCalls(Calls):
    """Reads, follows and searches the logs of runs, and lists the processes that wrote them."""

    @cached_property
    def _logs(self) -> run_pb2_grpc.RunServiceAsyncStub:
        return run_pb2_grpc.RunServiceStub(self._connection.channel)

    async def read_log(
        self,
        process_execution_id: str = "",
        *,
        run_id: str = "",
        step: str = "",
        attempt: int = 0,
        first_line: int = 1,
        lines: int = 0,
        offset: int | None = None,
        raw: bool = False,
        line_bytes: int = 0,
    ) -> run_pb2.ReadLogResponse:
        """Lines of the log of one process by their numbers, from `first_line` or from the byte `offset` on.

        A negative `first_line` counts from the end. Raises InvalidArgument, and NotFound, also for a deleted log.
        """
        request = run_pb2.ReadLogRequest(
            process_execution_id=process_execution_id,
            run_id=run_id,
            step=step,
            attempt=attempt,
            first_line=first_line if offset is None else 0,
            lines=lines,
            offset=offset,
            raw=raw,
            line_bytes=line_bytes,
        )
        return await self._connection.call(self._logs.ReadLog, request)

    def search_logs(
        self,
        text: str,
        *,
        run_id: str = "",
        process_execution_id: str = "",
        step: str = "",
        attempt: int = 0,
        ignore_case: bool = False,
        raw: bool = False,
        line_bytes: int = 0,
        page_size: int = 0,
    ) -> AsyncGenerator[run_pb2.LogMatch, None]:
        """Lines with a text in the logs of a run, of a step or of one process. Raises InvalidArgument, NotFound."""

        async def fetch(page: str) -> tuple[list[run_pb2.LogMatch], str]:
            request = run_pb2.SearchLogsRequest(
                process_execution_id=process_execution_id,
                run_id=run_id,
                step=step,
                attempt=attempt,
                text=text,
                ignore_case=ignore_case,
                raw=raw,
                line_bytes=line_bytes,
                page_size=page_size,
                page_token=page,
            )
            answer = await self._connection.call(self._logs.SearchLogs, request)
            return list(answer.matches), answer.next_page_token

        return paged(fetch)

    async def stream_logs(
        self,
        run_id: str = "",
        *,
        process_execution_id: str = "",
        step: str = "",
        attempt: int = 0,
        streams: Iterable[run_pb2.LogStream.ValueType] = (),
        tail: int = 0,
        since: datetime | None = None,
        follow: bool = False,
        position: str = "",
        raw: bool = False,
        level: run_pb2.LogLevel.ValueType = run_pb2.LOG_LEVEL_UNSPECIFIED,
        reconnect: float = RECONNECT,
    ) -> AsyncGenerator[run_pb2.StreamLogsResponse, None]:
        """The output of a run's steps, or of one process; with `follow` until the run (or what is selected) has ended.

        `raw` returns the bytes as stored. Otherwise `::progress` lines are left out, `::log` lines are records with a
        level and a message, and `level` is the lowest level to return.
        Resumes after a restart of the daemon, without losing or repeating a byte. Raises NotFound, and Unreachable when
        the daemon is unavailable for `reconnect` seconds.
        """
        request = run_pb2.StreamLogsRequest(
            run_id=run_id,
            process_execution_id=process_execution_id,
            step=step,
            attempt=attempt,
            streams=list(streams),
            tail=tail,
            since=to_timestamp(since) if since is not None else None,
            follow=follow,
            position=position,
            raw=raw,
            level=level,
        )
        over = False

        def open_stream(metadata: Metadata) -> grpc.aio.UnaryStreamCall[Any, run_pb2.StreamLogsResponse]:
            return self._logs.StreamLogs(request, metadata=metadata)

        def ended(in_good_order: bool) -> bool:
            return over or (in_good_order and not follow)

        messages = self._connection.stream(open_stream, ended=ended, reconnect=reconnect)
        async with aclosing(messages):
            async for message in messages:
                if message.position:
                    request.position = message.position
                    request.tail = 0
                over = message.HasField("end")
                yield message

    def list_process_executions(
        self,
        *,
        run_id: str = "",
        step: str = "",
        workflow: str = "",
        job: str = "",
        states: Iterable[run_pb2.ProcessState.ValueType] = (),
        launched_after: datetime | None = None,
        launched_before: datetime | None = None,
        page_size: int = 0,
    ) -> AsyncGenerator[run_pb2.ProcessExecution, None]:
        """Launched processes, newest first, without their output: those that match everything that is given."""
        wanted = run_pb2.ListProcessExecutionsRequest(
            run_id=run_id,
            step=step,
            workflow=workflow,
            job=job,
            states=list(states),
            launched_after=None if launched_after is None else to_timestamp(launched_after),
            launched_before=None if launched_before is None else to_timestamp(launched_before),
            page_size=page_size,
        )

        async def fetch(token: str) -> tuple[list[run_pb2.ProcessExecution], str]:
            wanted.page_token = token
            answer = await self._connection.call(self._logs.ListProcessExecutions, wanted)
            return list(answer.process_executions), answer.next_page_token

        return paged(fetch)

    async def get_process_execution(self, execution_id: str, *, output: bool = True) -> run_pb2.ProcessExecution:
        """One process, with the end of its output unless `output` is False. Raises NotFound."""
        answer = await self._connection.call(
            self._logs.GetProcessExecution,
            run_pb2.GetProcessExecutionRequest(id=execution_id, without_output=not output),
        )
        return answer.process_execution
