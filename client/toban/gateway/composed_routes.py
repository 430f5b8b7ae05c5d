"""Routes that are more than one call of the daemon, or no JSON: streams, downloads, approvals, differences."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from toban.gateway.caller_credential import SessionCookie, caller_token
from toban.gateway.change_stream import ChangeStream
from toban.gateway.daemon_calls import DaemonCalls
from toban.gateway.log_events import log_events
from toban.gateway.operation_answer import json_answer
from toban.gateway.server_sent_events import resumed_position, streaming
from toban.message_json.message_data import to_dict
from toban.message_json.message_reader import MessageReader
from toban.sdk.errors import InternalError, NotFound
from toban.v1 import access_pb2, run_pb2, workflow_pb2

LOG_FILTERS: Final = ("step", "attempt", "streams", "tail", "since", "follow", "level")
"""Fields of StreamLogsRequest that the query of a log may set."""
RAW_LOG_FILTERS: Final = ("step", "attempt", "streams")
_PAGES: Final = 10
"""Of 1,000 active runs each: the most that are looked through for approvals."""
_LOOKED_AT: Final = 200
"""Of these runs the most whose steps are read."""
_AT_ONCE: Final = 8


class ComposedRoutes:
    """Each method is an endpoint. They raise RefusedRequestError and TobanError."""

    def __init__(self, calls: DaemonCalls, cookie: SessionCookie) -> None:
        self._calls = calls
        self._cookie = cookie

    async def logs(self, request: Request) -> Response:
        """The log of a run as server-sent events."""
        token = caller_token(request, self._cookie)
        message = run_pb2.StreamLogsRequest(run_id=request.path_params["id"], follow=True)
        read_query(request, message, LOG_FILTERS, apart=("position",))
        position = resumed_position(request)
        # So that a refusal is an answer, and no event.
        await self._calls.call("RunService/GetRun", run_pb2.GetRunRequest(id=message.run_id, step_page_size=1), token)
        return streaming(log_events(self._calls, token, message, position))

    async def raw_log(self, request: Request) -> Response:
        """The bytes that a run has printed so far, as a file to save."""
        token = caller_token(request, self._cookie)
        message = run_pb2.StreamLogsRequest(run_id=request.path_params["id"], raw=True)
        read_query(request, message, RAW_LOG_FILTERS)
        wanted = run_pb2.GetRunRequest(id=message.run_id, step_page_size=1)
        answer: run_pb2.GetRunResponse = await self._calls.call("RunService/GetRun", wanted, token)
        parts = _parts(self._calls, token, self._calls.open_stream("RunService/StreamLogs", message))
        # So that a refusal is an answer, and no broken file.
        first = await anext(parts, None)
        name = f"{answer.run.workflow}-{answer.run.number}{f'-{message.step}' if message.step else ''}.log"
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "Cache-Control": "no-store",
        }
        return StreamingResponse(_printed(first, parts), headers=headers, media_type="application/octet-stream")

    async def stream(self, request: Request) -> Response:
        """All changes as server-sent events."""
        token = caller_token(request, self._cookie)
        message = run_pb2.WatchRunsRequest()
        read_query(request, message, ("workflow",), apart=("position",))
        changes = ChangeStream(self._calls, token, resumed_position(request), message.workflow)
        # So that a refusal is an answer, and no event.
        await self._calls.call("AccessService/WhoAmI", access_pb2.WhoAmIRequest(), token)
        await changes.begin()
        return streaming(changes.changes())

    async def download(self, request: Request) -> Response:
        """An artifact, as a file to save."""
        token = caller_token(request, self._cookie)
        message = run_pb2.DownloadArtifactRequest(**request.path_params)
        read_query(request, message, ("path",))
        opened = self._calls.open_stream("RunService/DownloadArtifact", message)
        parts = _parts(self._calls, token, opened)
        first = await anext(parts, None)
        if first is None or not first.HasField("header"):
            await parts.aclose()
            raise InternalError("the daemon sent no header")
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(first.header.file_name, safe='')}",
            "Cache-Control": "no-store",
        }
        if first.header.HasField("bytes"):
            headers["Content-Length"] = str(first.header.bytes)
        kind = "application/x-tar" if first.header.tar else "application/octet-stream"
        return StreamingResponse(_data(parts), headers=headers, media_type=kind)

    async def approvals(self, request: Request) -> Response:
        """The steps that wait for approval, of the newest runs first."""
        token = caller_token(request, self._cookie)
        wanted = run_pb2.ListRunsRequest(states=[run_pb2.RUN_STATE_RUNNING], page_size=1000)
        read_query(request, wanted, ("workflow",))
        candidates: list[str] = []
        for _ in range(_PAGES):
            page: run_pb2.ListRunsResponse = await self._calls.call("RunService/ListRuns", wanted, token)
            # A step that waits is RUNNING; the counts say whether there may be one, without reading the steps.
            candidates += [run.id for run in page.runs if _may_wait(run)]
            wanted.page_token = page.next_page_token
            if not wanted.page_token or len(candidates) > _LOOKED_AT:
                break
        found: list[dict[str, Any]] = []
        for first in range(0, min(len(candidates), _LOOKED_AT), _AT_ONCE):
            some = candidates[first : min(first + _AT_ONCE, _LOOKED_AT)]
            for steps in await asyncio.gather(*(self._waiting_steps(each, token) for each in some)):
                found += steps
        complete = not wanted.page_token and len(candidates) <= _LOOKED_AT
        return json_answer(request, {"approvals": found, "complete": complete})

    async def _waiting_steps(self, run_id: str, token: str) -> list[dict[str, Any]]:
        wanted = run_pb2.GetRunRequest(id=run_id, step_page_size=1000)
        try:
            answer: run_pb2.GetRunResponse = await self._calls.call("RunService/GetRun", wanted, token)
        except NotFound:
            # It has ended and was deleted since.
            return []
        waiting = [step for step in answer.run.steps if step.waiting_for == run_pb2.WAITING_FOR_APPROVAL]
        del answer.run.steps[:]
        return [{"run": to_dict(answer.run), "step": to_dict(step)} for step in waiting]

    async def difference(self, request: Request) -> Response:
        """How a version differs from another one: `against`, or the one before it."""
        token = caller_token(request, self._cookie)
        new = workflow_pb2.GetWorkflowVersionRequest()
        reader = MessageReader()
        for name in ("workflow", "version"):
            field = new.DESCRIPTOR.fields_by_name[name]
            reader.set_words(new, field, [request.path_params[name]], name)
        old = workflow_pb2.GetWorkflowVersionRequest(workflow=new.workflow, version=new.version - 1)
        if "against" in request.query_params:
            field = old.DESCRIPTOR.fields_by_name["version"]
            reader.set_words(old, field, request.query_params.getlist("against"), "against")
        reader.check()
        after: workflow_pb2.GetWorkflowVersionResponse = await self._version(new, token)
        before = await self._version(old, token) if old.version > 0 else workflow_pb2.GetWorkflowVersionResponse()
        lines = difflib.unified_diff(
            before.version.definition.source.splitlines(),
            after.version.definition.source.splitlines(),
            fromfile=f"{new.workflow} (version {old.version})",
            tofile=f"{new.workflow} (version {new.version})",
            lineterm="",
        )
        data = {"name": new.workflow, "from": old.version, "to": new.version, "diff": "\n".join(lines)}
        return json_answer(request, data)

    async def _version(self, request: workflow_pb2.GetWorkflowVersionRequest, token: str) -> Any:
        return await self._calls.call("WorkflowService/GetWorkflowVersion", request, token)


def read_query(request: Request, message: Any, names: tuple[str, ...], *, apart: tuple[str, ...] = ()) -> None:
    """Sets fields from the query. Raises InvalidArgument."""
    reader = MessageReader()
    for name in dict.fromkeys(request.query_params.keys()):
        if name in names:
            field = message.DESCRIPTOR.fields_by_name[name]
            reader.set_words(message, field, request.query_params.getlist(name), name)
        elif name not in apart:
            reader.refuse_unknown(name, names)
    reader.check()


def _may_wait(run: run_pb2.Run) -> bool:
    running = any(each.state == run_pb2.STEP_STATE_RUNNING and each.count for each in run.summary.counts)
    return running or run.waiting_for == run_pb2.WAITING_FOR_APPROVAL


async def _parts(calls: DaemonCalls, token: str, opened: Any) -> AsyncGenerator[Any, None]:
    # A download is not resumed: an end without all bytes is seen by the length.
    messages = calls.connection(token).stream(opened, ended=lambda good: good, reconnect=0)
    async with aclosing(messages):
        async for message in messages:
            yield message


async def _data(parts: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(parts):
        async for message in parts:
            yield message.data


async def _printed(
    first: run_pb2.StreamLogsResponse | None, rest: AsyncGenerator[Any, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        if first is not None:
            yield _bytes_of(first)
        async for message in rest:
            yield _bytes_of(message)


def _bytes_of(message: run_pb2.StreamLogsResponse) -> bytes:
    return b"".join(record.data for record in message.chunk.records)
