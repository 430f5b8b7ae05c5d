"""The log of a run as server-sent events: its lines, its progress, and its end.

A line has an `id`, from which another request goes on with the next line: no line is lost and none comes twice. Within
a process and a stream lines have an order, between them they have none. So an id is a position of the daemon's stream
and, for each process and stream, how many lines after it were sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

from toban.gateway.daemon_calls import DaemonCalls
from toban.gateway.failure_traceback import failure_traceback
from toban.gateway.problem_details import RefusedRequestError
from toban.gateway.seed_words import PROJECT_STATUS
from toban.gateway.server_sent_events import event, merged
from toban.message_json.message_data import enum_words, number
from toban.sdk.connection import Metadata
from toban.sdk.log_line import LogLine, LogLines
from toban.sdk.states import LogLevel, LogStream
from toban.v1 import run_pb2

RECONNECT: Final = 3600.0
"""Seconds for which a stream waits for a daemon that is away."""

_RUN_STATES: Final = enum_words(run_pb2.RunState.DESCRIPTOR)


async def log_events(
    calls: DaemonCalls, token: str, request: run_pb2.StreamLogsRequest, position: Mapping[str, Any] | None
) -> AsyncGenerator[bytes, None]:
    """The events of a run. Raises a TobanError."""
    if position is None:
        cursor = _Cursor("", {})
    else:
        cursor = _Cursor(*_position_parts(position))
        request.tail = 0
    lines = _line_events(calls, token, request, cursor)
    if not request.follow or request.step or request.attempt or request.process_execution_id:
        source = merged(lines)
    else:
        source = merged(lines, _progress_events(calls, token, request.run_id))
    async with aclosing(source):
        async for each in source:
            yield each
    yield await _end_event(calls, token, request.run_id)


class _Cursor:
    """Which lines were sent."""

    def __init__(self, base: str, sent: Mapping[str, int]) -> None:
        self.base = base
        self._sent = Counter(sent)
        self._skip = Counter(sent)

    def is_new(self, line: LogLine) -> bool:
        """Whether the next line of this process and stream is one that no earlier request has sent."""
        key = _key(line)
        if self._skip[key] > 0:
            self._skip[key] -= 1
            return False
        return True

    def sent(self, line: LogLine) -> None:
        """Counts a line."""
        self._sent[_key(line)] += 1

    def advance(self, position: str) -> None:
        """Everything up to here was sent."""
        self.base = position
        self._sent.clear()
        self._skip.clear()

    @property
    def position(self) -> dict[str, Any]:
        return {"p": self.base, "s": dict(self._sent)}


def _key(line: LogLine) -> str:
    return f"{line.process_execution_id}/{line.stream.value}"


async def _line_events(
    calls: DaemonCalls, token: str, request: run_pb2.StreamLogsRequest, cursor: _Cursor
) -> AsyncGenerator[bytes, None]:
    lines = LogLines()
    request.position = cursor.base
    over = False

    def opened(metadata: Metadata) -> Any:
        return calls.open_stream("RunService/StreamLogs", request)(metadata)

    def ended(in_good_order: bool) -> bool:
        return over or (in_good_order and not request.follow)

    messages = calls.connection(token).stream(opened, ended=ended, reconnect=RECONNECT)
    async with aclosing(messages):
        async for message in messages:
            if message.position:
                request.position, request.tail = message.position, 0
            over = message.HasField("end")
            news = [line for line in lines.feed(message.chunk) if cursor.is_new(line)]
            for index, line in enumerate(news, 1):
                cursor.sent(line)
                if index == len(news) and message.position and not lines.pending:
                    cursor.advance(message.position)
                yield _line_event(request.run_id, line, cursor)
            if not news and message.position and not lines.pending:
                cursor.advance(message.position)
    for line in lines.finish():
        if cursor.is_new(line):
            cursor.sent(line)
            yield _line_event(request.run_id, line, cursor)


def _line_event(run_id: str, line: LogLine, cursor: _Cursor) -> bytes:
    level = line.level or (LogLevel.WARNING if line.stream is LogStream.STDERR else LogLevel.INFO)
    data = {
        **_data(run_id, level.value, line.text, line.step),
        "attempt": line.attempt,
        "at": line.at.isoformat().replace("+00:00", "Z"),
        "stream": line.stream.value,
        "process_execution_id": line.process_execution_id,
    }
    return event(data, position=cursor.position)


async def _progress_events(calls: DaemonCalls, token: str, run_id: str) -> AsyncGenerator[bytes, None]:
    """What the run's steps report. It is state and no part of the log, so its events have no id."""
    request = run_pb2.WatchRunRequest(id=run_id)
    last: tuple[Any, ...] = ()
    over = False

    def opened(metadata: Metadata) -> Any:
        return calls.open_stream("RunService/WatchRun", request)(metadata)

    def ended(in_good_order: bool) -> bool:
        return over or in_good_order

    messages = calls.connection(token).stream(opened, ended=ended, reconnect=RECONNECT)
    async with aclosing(messages):
        async for message in messages:
            request.after_sequence = message.sequence
            run = message.run
            now = (run.current_step, run.progress_current, run.progress_total, run.progress_message)
            if now == last or not (run.progress_current or run.progress_total or run.progress_message):
                continue
            last = now
            yield event(
                {
                    **_data(run_id, LogLevel.INFO.value, run.progress_message, run.current_step),
                    "progress_current": number(run.progress_current),
                    "progress_total": number(run.progress_total) or None,
                    "current_term": run.progress_message or None,
                }
            )


async def _end_event(calls: DaemonCalls, token: str, run_id: str) -> bytes:
    """The end of the log; before that, of a failed run, its cause."""
    answer: run_pb2.GetRunResponse = await calls.call(
        "RunService/GetRun", run_pb2.GetRunRequest(id=run_id, step_page_size=1000), token
    )
    run = answer.run
    state = _RUN_STATES.get(run.state) or ""
    data = {
        "run_id": run_id,
        "complete": run.HasField("finished_at"),
        "db_status": PROJECT_STATUS.get(state, state),
        "state": state,
        # A state is stored before it is announced.
        "status_update_failed": False,
    }
    cause = b""
    if run.state in (run_pb2.RUN_STATE_FAILED, run_pb2.RUN_STATE_TIMED_OUT):
        step, trace = await failure_traceback(calls, token, run)
        cause = event({**_data(run_id, LogLevel.ERROR.value, run.error_message, step), "traceback": trace})
    return cause + event(data, name="complete")


def _data(run_id: str, level: str, message: str, step: str) -> dict[str, Any]:
    """The fields that every event has."""
    return {
        "run_id": run_id,
        "level": level,
        "message": message,
        "step": step or None,
        "progress_current": None,
        "progress_total": None,
        "current_term": None,
        "traceback": None,
    }


def _position_parts(found: Mapping[str, Any]) -> tuple[str, dict[str, int]]:
    """Raises RefusedRequestError."""
    base, sent = found.get("p"), found.get("s")
    if not isinstance(base, str) or not isinstance(sent, dict):
        raise RefusedRequestError(422, "INVALID_POSITION", "Last-Event-ID must be the id of an event of this log")
    if not all(isinstance(count, int) and 0 <= count < 2**53 for count in sent.values()):
        raise RefusedRequestError(422, "INVALID_POSITION", "Last-Event-ID must be the id of an event of this log")
    return base, sent
