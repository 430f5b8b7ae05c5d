"""RPCs of the RunService about lines of logs: ReadLog and SearchLogs."""

from __future__ import annotations

import re

from toban.limits import MIB
from toban.v1 import run_pb2 as pb
from toband.api import pages
from toband.api.request_errors import InvalidFieldError
from toband.engine.runs.line_queries import LineQueries, LogChoice
from toband.ports import LineQuery, NumberedLine, TextQuery

LINES_MOST = 10_000
_LINES = 1000
_LINE_BYTES = 4096
_TEXT_BYTES = 1000
_TOKEN = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})")


class LogLineRpcs:
    def __init__(self, lines: LineQueries) -> None:
        self._lines = lines

    async def read(self, request: pb.ReadLogRequest) -> pb.ReadLogResponse:
        """Raises InvalidFieldError, and as `LineQueries.read`."""
        choice = _choice(request)
        if not choice.process and not choice.step:
            raise InvalidFieldError("process_execution_id", "choose one log: a process, or a step of a run")
        if request.lines < 0 or request.lines > LINES_MOST:
            raise InvalidFieldError("lines", f"must be 0 to {LINES_MOST}, found {request.lines}")
        if request.HasField("offset") and (request.offset < 0 or request.first_line):
            raise InvalidFieldError("offset", "must be 0 or more, and not together with `first_line`")
        query = LineQuery(
            first=request.first_line or 1,
            count=request.lines or _LINES,
            offset=request.offset if request.HasField("offset") else None,
            raw=request.raw,
            line_bytes=_line_bytes(request),
        )
        attempt, page = await self._lines.read(choice, query)
        answer = pb.ReadLogResponse(
            process_execution_id=attempt.id,
            step=attempt.step,
            attempt=attempt.number,
            total_lines=page.total,
            ended=page.over or attempt.state.terminal,
            complete=page.over,
        )
        answer.lines.extend(_line(line) for line in page.lines)
        return answer

    async def search(self, request: pb.SearchLogsRequest) -> pb.SearchLogsResponse:
        """Raises InvalidFieldError, and as `LineQueries.search`."""
        if not request.text or "\n" in request.text or len(request.text.encode()) > _TEXT_BYTES:
            raise InvalidFieldError("text", f"must be 1 to {_TEXT_BYTES} bytes, without a line break")
        query = TextQuery(
            text=request.text,
            ignore_case=request.ignore_case,
            count=pages.size(request.page_size, 100),
            raw=request.raw,
            line_bytes=_line_bytes(request),
        )
        page = await self._lines.search(_choice(request), query, _start(request.page_token))
        answer = pb.SearchLogsResponse()
        for attempt, line in page.found:
            answer.matches.add(
                process_execution_id=attempt.id, step=attempt.step, attempt=attempt.number, line=_line(line)
            )
        if page.next is not None:
            answer.next_page_token = pages.token(f"{page.next[0]}.{page.next[1]}")
        return answer


def _choice(request: pb.ReadLogRequest | pb.SearchLogsRequest) -> LogChoice:
    """Raises InvalidFieldError."""
    if request.process_execution_id and (request.step or request.attempt):
        raise InvalidFieldError("process_execution_id", "cannot be combined with `step` or `attempt`")
    if not request.process_execution_id and not request.run_id:
        raise InvalidFieldError("run_id", "is required, or `process_execution_id`")
    if request.attempt < 0 or (request.attempt and not request.step):
        raise InvalidFieldError("attempt", "must be 0 or more, and needs `step`")
    return LogChoice(
        process=request.process_execution_id, run_id=request.run_id, step=request.step, attempt=request.attempt
    )


def _line_bytes(request: pb.ReadLogRequest | pb.SearchLogsRequest) -> int:
    """Raises InvalidFieldError."""
    if not 0 <= request.line_bytes <= MIB:
        raise InvalidFieldError("line_bytes", f"must be 0 to {MIB}, found {request.line_bytes}")
    return request.line_bytes or _LINE_BYTES


def _start(token: str) -> tuple[int, int]:
    """Raises InvalidFieldError."""
    if not token:
        return 0, 0
    match = _TOKEN.fullmatch(pages.last(token))
    if match is None:
        raise InvalidFieldError("page_token", "must be a token of this list")
    return int(match[1]), int(match[2])


def _line(line: NumberedLine) -> pb.LogLine:
    made = pb.LogLine(
        number=line.number,
        offset=line.offset,
        stream=pb.LogStream.ValueType(line.kind),
        data=line.data,
        bytes=line.size,
        unfinished=line.unfinished,
    )
    made.at.FromMicroseconds(line.at)
    if line.level is not None:
        made.level = pb.LogLevel.ValueType(line.level)
    return made
