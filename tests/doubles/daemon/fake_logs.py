"""Lines of logs of the fake daemon, from the chunks that a test gave a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import grpc

from doubles.daemon.fake_control import Control
from doubles.daemon.fake_errors import Context, abort, info
from doubles.daemon.fake_workflows import TERMINAL
from toban.v1 import run_pb2

if TYPE_CHECKING:
    from doubles.daemon.fake_daemon import RunRecord

_LINES = 1000
_MATCHES = 100
_LINE_BYTES = 4096


class Logs(Control):
    """Everything is one page."""

    async def ReadLog(self, request: run_pb2.ReadLogRequest, context: Context) -> run_pb2.ReadLogResponse:
        async def work() -> run_pb2.ReadLogResponse:
            record, process = await self._chosen(request, context)
            found = list(_lines(record, process, request.line_bytes))
            first = request.first_line if request.first_line >= 0 else len(found) + request.first_line + 1
            begin = max(first - 1, 0)
            ended = record.run.state in TERMINAL
            return run_pb2.ReadLogResponse(
                process_execution_id=process.id,
                step=process.step,
                attempt=process.attempt,
                lines=found[begin : begin + (request.lines or _LINES)],
                total_lines=len(found),
                ended=ended,
                complete=ended,
            )

        return await self._daemon.answer("ReadLog", context, request, work)

    async def SearchLogs(self, request: run_pb2.SearchLogsRequest, context: Context) -> run_pb2.SearchLogsResponse:
        async def work() -> run_pb2.SearchLogsResponse:
            if request.process_execution_id:
                record = await self._of_process(request.process_execution_id, context)
            else:
                record = await self._existing(request.run_id, context)
            matches = [
                run_pb2.LogMatch(process_execution_id=process.id, step=process.step, attempt=process.attempt, line=line)
                for process in record.processes
                if request.process_execution_id in ("", process.id)
                and request.step in ("", process.step)
                and request.attempt in (0, process.attempt)
                for line in _lines(record, process, request.line_bytes)
                if _has(line.data, request)
            ]
            return run_pb2.SearchLogsResponse(matches=matches[: request.page_size or _MATCHES])

        return await self._daemon.answer("SearchLogs", context, request, work)

    async def _chosen(
        self, request: run_pb2.ReadLogRequest, context: Context
    ) -> tuple[RunRecord, run_pb2.ProcessExecution]:
        """The process of the id, or the last one of the step."""
        if request.process_execution_id:
            record = await self._of_process(request.process_execution_id, context)
            return record, next(each for each in record.processes if each.id == request.process_execution_id)
        record = await self._existing(request.run_id, context)
        of_step = [
            each for each in record.processes if each.step == request.step and request.attempt in (0, each.attempt)
        ]
        if not of_step:
            await _no_process(request.step, context)
        return record, max(of_step, key=lambda each: each.attempt)

    async def _of_process(self, process_id: str, context: Context) -> RunRecord:
        for record in self._daemon.runs.values():
            if any(process.id == process_id for process in record.processes):
                return record
        return await _no_process(process_id, context)


async def _no_process(name: str, context: Context) -> RunRecord:
    return await abort(
        context,
        grpc.StatusCode.NOT_FOUND,
        f"no process {name!r}",
        info("PROCESS_EXECUTION_NOT_FOUND"),
    )


def _lines(record: RunRecord, process: run_pb2.ProcessExecution, line_bytes: int) -> Iterator[run_pb2.LogLine]:
    """The lines that have ended, and the rest of each stream. Two streams do not share a line."""
    number, offset = 0, 0
    rests: dict[run_pb2.LogStream.ValueType, bytes] = {}
    for chunk in record.chunks:
        if chunk.process_execution_id not in ("", process.id) or chunk.step != process.step:
            continue
        for each in chunk.records:
            *ended, rests[each.stream] = (rests.get(each.stream, b"") + each.data).split(b"\n")
            for data in ended:
                number += 1
                yield _line(number, offset, each.stream, data, line_bytes)
                offset += len(data) + 1
    for stream, data in rests.items():
        if data:
            number += 1
            yield _line(number, offset, stream, data, line_bytes, unfinished=record.run.state not in TERMINAL)


def _line(
    number: int,
    offset: int,
    stream: run_pb2.LogStream.ValueType,
    data: bytes,
    line_bytes: int,
    *,
    unfinished: bool = False,
) -> run_pb2.LogLine:
    return run_pb2.LogLine(
        number=number,
        offset=offset,
        stream=stream,
        data=data[: line_bytes or _LINE_BYTES],
        bytes=len(data),
        unfinished=unfinished,
    )


def _has(data: bytes, request: run_pb2.SearchLogsRequest) -> bool:
    text = request.text.encode()
    return text.lower() in data.lower() if request.ignore_case else text in data
