"""`/projects/{workflow}/runs`: runs with the words, fields and answers of a pipeline manager with one run at a time."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from toban.gateway.caller_credential import SessionCookie, caller_token
from toban.gateway.composed_routes import ComposedRoutes, read_query
from toban.gateway.daemon_calls import DaemonCalls
from toban.gateway.operation_answer import json_answer
from toban.gateway.operation_request import json_object, read_body
from toban.gateway.seed_words import PROJECT_STATUS, PROJECT_TRIGGER
from toban.message_json.message_data import to_dict
from toban.message_json.message_reader import MessageReader
from toban.message_json.message_schema import INTEGER, TEXT, TIME, object_of
from toban.sdk.errors import NotFound
from toban.v1 import run_pb2, workflow_pb2

_MAYBE_TEXT: Final = {"type": ["string", "null"]}
_MAYBE_TIME: Final = {"type": ["string", "null"], "format": "date-time"}
_MAYBE_NUMBER: Final = {"type": ["number", "null"]}

SCHEMA: Final = object_of(
    {
        "id": TEXT,
        "scope": TEXT,
        "status": {"enum": sorted(set(PROJECT_STATUS.values()))},
        "started_at": _MAYBE_TIME,
        "finished_at": _MAYBE_TIME,
        "triggered_by": {"enum": sorted(set(PROJECT_TRIGGER.values()))},
        "error_message": _MAYBE_TEXT,
        "progress_current": _MAYBE_NUMBER,
        "progress_total": _MAYBE_NUMBER,
        "current_step": _MAYBE_TEXT,
        "created_at": TIME,
        "number": INTEGER,
    }
)


class ProjectRuns:
    """Each method is an endpoint. They raise RefusedRequestError and TobanError."""

    def __init__(self, calls: DaemonCalls, cookie: SessionCookie, composed: ComposedRoutes) -> None:
        self._calls = calls
        self._cookie = cookie
        self._composed = composed

    async def start(self, request: Request) -> Response:
        """Starts a run of a scope."""
        token = caller_token(request, self._cookie)
        message = run_pb2.StartRunRequest(workflow=request.path_params["workflow"])
        reader = MessageReader()
        for name, value in json_object(request, await read_body(request)).items():
            if name in ("scope", "params"):
                reader.set(message, message.DESCRIPTOR.fields_by_name[name], value, name)
            else:
                reader.refuse_unknown(name, ("scope", "params"))
        reader.check()
        answer: run_pb2.StartRunResponse = await self._calls.call("RunService/StartRun", message, token)
        return json_answer(request, project_run(answer.run), 201)

    async def list(self, request: Request) -> Response:
        """The runs, newest first: one page."""
        token = caller_token(request, self._cookie)
        message = run_pb2.ListRunsRequest(workflow=request.path_params["workflow"])
        read_query(request, message, ("page_size", "page_token"))
        # A list of nothing would hide a wrong name.
        await self._calls.call(
            "WorkflowService/GetWorkflow", workflow_pb2.GetWorkflowRequest(name=message.workflow), token
        )
        page: run_pb2.ListRunsResponse = await self._calls.call("RunService/ListRuns", message, token)
        data = {"runs": [project_run(each) for each in page.runs], "next_page_token": page.next_page_token}
        return json_answer(request, data)

    async def current(self, request: Request) -> Response:
        """The active run, or the latest one."""
        token = caller_token(request, self._cookie)
        message = run_pb2.GetCurrentRunRequest(workflow=request.path_params["workflow"])
        answer: run_pb2.GetCurrentRunResponse = await self._calls.call("RunService/GetCurrentRun", message, token)
        return json_answer(request, project_run(answer.run))

    async def get(self, request: Request) -> Response:
        """One run."""
        token = caller_token(request, self._cookie)
        return json_answer(request, project_run(await self._run(request, token)))

    async def cancel(self, request: Request) -> Response:
        """Requests cancellation."""
        token = caller_token(request, self._cookie)
        run = await self._run(request, token)
        message = run_pb2.CancelRunRequest(id=run.id)
        answer: run_pb2.CancelRunResponse = await self._calls.call("RunService/CancelRun", message, token)
        return json_answer(request, project_run(answer.run))

    async def logs(self, request: Request) -> Response:
        """The log as server-sent events."""
        await self._run(request, caller_token(request, self._cookie))
        return await self._composed.logs(request)

    async def _run(self, request: Request, token: str) -> run_pb2.Run:
        """A run of this workflow. Raises NotFound for one of another."""
        message = run_pb2.GetRunRequest(id=request.path_params["id"], step_page_size=1)
        answer: run_pb2.GetRunResponse = await self._calls.call("RunService/GetRun", message, token)
        if answer.run.workflow != request.path_params["workflow"]:
            raise NotFound(f"no run {message.id} of this workflow", reason="RUN_NOT_FOUND")
        return answer.run


def project_run(run: run_pb2.Run) -> dict[str, Any]:
    """A run in these words."""
    data = to_dict(run)
    reported = bool(run.progress_current or run.progress_total)
    return {
        "id": run.id,
        "scope": run.scope,
        "status": PROJECT_STATUS.get(data["state"], data["state"]),
        "started_at": data.get("started_at"),
        "finished_at": data.get("finished_at"),
        "triggered_by": PROJECT_TRIGGER.get(data["triggered_by"], data["triggered_by"]),
        "error_message": run.error_message or None,
        "progress_current": data["progress_current"] if reported else None,
        "progress_total": data["progress_total"] if reported else None,
        "current_step": run.current_step or None,
        "created_at": data.get("created_at"),
        "number": run.number,
    }
