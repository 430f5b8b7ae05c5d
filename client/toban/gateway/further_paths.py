"""The paths that are more than one call of the daemon, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Any, Final

from toban.gateway.composed_routes import LOG_FILTERS, RAW_LOG_FILTERS
from toban.gateway.oidc_login import CALLBACK
from toban.gateway.open_api import PREFIX, described, json_response, parameter
from toban.gateway.project_runs import SCHEMA as PROJECT_RUN
from toban.message_json.message_schema import FLAG, INTEGER, TEXT, array_of, object_of, schema_of_field
from toban.v1 import run_pb2

_READING: Final = (400, 401, 403, 404, 422, 429, 500, 503)
_CHANGING: Final = (*_READING, 409, 413, 415, 507)


def _message(name: str) -> dict[str, Any]:
    return {"$ref": f"{PREFIX}{name}"}


def _path(name: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return parameter("path", name, schema or {**TEXT, "minLength": 1})


def _events(description: str) -> dict[str, Any]:
    return {"200": {"description": description, "content": {"text/event-stream": {"schema": TEXT}}}}


def _file() -> dict[str, Any]:
    kinds = ("application/octet-stream", "application/x-tar")
    return {"200": {"description": "The file, or an archive.", "content": {kind: {} for kind in kinds}}}


def _answered(schema: dict[str, Any], status: str = "200") -> dict[str, Any]:
    made = {status: json_response(schema, "The answer.")}
    return (
        {**made, "304": {"description": "It is the same as the one that `If-None-Match` names."}}
        if status == "200"
        else made
    )


_RESUMED: Final = (
    parameter("header", "Last-Event-ID", TEXT, description="The `id` of the last event: the next one follows."),
    parameter("query", "position", TEXT, description="The same, for a client that cannot set the header."),
)
_LOG_REQUEST: Final = run_pb2.StreamLogsRequest.DESCRIPTOR


def _log_parameters(names: tuple[str, ...] = LOG_FILTERS) -> list[dict[str, Any]]:
    found = []
    for name in names:
        schema = schema_of_field(_LOG_REQUEST.fields_by_name[name], PREFIX)
        inner = schema.get("items", schema)
        if "enum" in inner:
            word = {"type": "string", "enum": [each for each in inner["enum"] if each is not None]}
            schema = array_of(word) if "items" in schema else word
        found.append(parameter("query", name, schema))
    return found


_LOG_TEXT: Final = (
    "A line per event, as JSON with `run_id`, `level`, `message`, `step`, `progress_current`, `progress_total`, "
    "`current_term` and `traceback`; at the end an event `complete` with `run_id`, `complete`, `db_status` and "
    "`status_update_failed`. Of an ended run all of it comes at once. See docs/http.md."
)
_SESSION_BODY: Final = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "oneOf": [
                    {**object_of({"code": TEXT}), "additionalProperties": False},
                    {**object_of({"token": TEXT}), "additionalProperties": False},
                ]
            }
        }
    },
}
_CSRF: Final = parameter(
    "header", "Toban-Request", TEXT, required=True, description="Any value: a page of another site cannot send it."
)
_START_BODY: Final = {
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {"scope": TEXT, "params": {"type": "object"}},
                "additionalProperties": False,
            }
        }
    }
}
_SENT_ON: Final = {"303": {"description": "To the issuer, to the console, or to `/login#error=…`."}}
_APPROVAL: Final = object_of({"run": _message("Run"), "step": _message("Step")})
_PROJECT: Final = "/api/projects/{workflow}/runs"
_DIFF: Final = object_of({"name": TEXT, "from": INTEGER, "to": INTEGER, "diff": TEXT})

FURTHER: Final[dict[str, dict[str, Any]]] = {
    "/api/openapi.json": {
        "get": described(
            id="getOpenApi",
            tag="api",
            summary="Returns this document.",
            responses={"200": json_response({"type": "object"}, "The document.")},
            public=True,
            statuses=(),
        )
    },
    "/api/definition_schema": {
        "get": described(
            id="getDefinitionSchema",
            tag="api",
            summary="Returns the JSON Schema of definitions, as `toban validate --schema` prints it.",
            responses={"200": json_response({"type": "object"}, "The schema.")},
            public=True,
            statuses=(),
        )
    },
    "/api/session": {
        "get": described(
            id="getSession",
            tag="session",
            summary="Returns who the caller is, and what it may do.",
            responses=_answered(_message("WhoAmIResponse")),
            statuses=_READING,
        ),
        "post": described(
            id="logIn",
            tag="session",
            summary="Exchanges the code of a link, or a token, for a session in a cookie.",
            parameters=(_CSRF,),
            body=_SESSION_BODY,
            responses=_answered(_message("WhoAmIResponse"), "201"),
            public=True,
            statuses=_CHANGING,
        ),
        "delete": described(
            id="logOut",
            tag="session",
            summary="Ends the session in the daemon, and forgets the cookie.",
            responses={"204": {"description": "Done."}},
            statuses=_CHANGING,
        ),
    },
    "/api/login": {
        "get": described(
            id="listLoginMethods",
            tag="session",
            summary="Lists the issuers with whose accounts people can log in, besides a link and a token.",
            responses=_answered(object_of({"issuers": array_of(object_of({"name": TEXT, "url": TEXT}))})),
            public=True,
            statuses=(),
        )
    },
    "/api/login/oidc": {
        "get": described(
            id="beginLogin",
            tag="session",
            summary="Sends a browser to the issuer, to log in there.",
            responses=_SENT_ON,
            public=True,
            statuses=(),
        )
    },
    CALLBACK: {
        "get": described(
            id="finishLogin",
            tag="session",
            summary="Takes a browser back from the issuer, logs it in, and sends it to the console.",
            parameters=[
                parameter("query", name, TEXT) for name in ("code", "state", "error", "error_description", "iss")
            ],
            responses=_SENT_ON,
            public=True,
            statuses=(),
        )
    },
    "/hooks/{name}": {
        "post": described(
            id="deliverHook",
            tag="hooks",
            summary="Takes a delivery to a hook. Its signature is its only credential: see docs/hooks.md.",
            parameters=(_path("name"),),
            body={"content": {"application/json": {}}},
            responses={
                "200": json_response(_message("DeliverHookResponse"), "It was delivered before, or is ignored."),
                "201": json_response(_message("DeliverHookResponse"), "It became an event."),
            },
            public=True,
            statuses=_CHANGING,
        )
    },
    "/api/workflow_runs/{id}/logs": {
        "get": described(
            id="streamRunLogs",
            tag="workflow_runs",
            summary="Streams the log of a run as server-sent events, and its end.",
            parameters=(_path("id"), *_log_parameters(), *_RESUMED),
            responses=_events(_LOG_TEXT),
            role="viewer",
            statuses=(*_READING, 410),
        )
    },
    "/api/workflow_runs/{id}/logs/raw": {
        "get": described(
            id="downloadRunLog",
            tag="workflow_runs",
            summary="Returns what a run has printed so far, byte for byte.",
            parameters=(_path("id"), *_log_parameters(RAW_LOG_FILTERS)),
            responses={"200": {"description": "The bytes.", "content": {"application/octet-stream": {}}}},
            role="viewer",
            statuses=(*_READING, 410),
        )
    },
    "/api/stream": {
        "get": described(
            id="streamChanges",
            tag="stream",
            summary="Streams every change of runs (`run`) and events (`event`) as server-sent events.",
            parameters=(parameter("query", "workflow", TEXT), *_RESUMED),
            responses=_events("A change per event, as JSON: a WatchRunsResponse or a WatchEventsResponse."),
            role="viewer",
            statuses=_READING,
        )
    },
    "/api/artifacts/{run_id}/{step}/{name}": {
        "get": described(
            id="downloadArtifact",
            tag="artifacts",
            summary="Returns an artifact: its only file, the file `path`, or a tar archive of all files.",
            parameters=(_path("run_id"), _path("step"), _path("name"), parameter("query", "path", TEXT)),
            responses=_file(),
            role="viewer",
            statuses=_READING,
        )
    },
    "/api/approvals": {
        "get": described(
            id="listApprovals",
            tag="approvals",
            summary="Lists the steps that wait for approval, of the newest runs first.",
            parameters=(parameter("query", "workflow", TEXT),),
            responses=_answered(object_of({"approvals": array_of(_APPROVAL), "complete": FLAG})),
            role="viewer",
            statuses=_READING,
        )
    },
    "/api/workflows/{workflow}/versions/{version}/diff": {
        "get": described(
            id="diffWorkflowVersions",
            tag="workflows",
            summary="Returns how a version differs from the one before it, or from `against`.",
            parameters=(_path("workflow"), _path("version", INTEGER), parameter("query", "against", INTEGER)),
            responses=_answered(_DIFF),
            role="viewer",
            statuses=_READING,
        )
    },
    _PROJECT: {
        "get": described(
            id="listProjectRuns",
            tag="projects",
            summary="Lists the runs of a workflow, newest first.",
            parameters=(
                _path("workflow"),
                parameter("query", "page_size", INTEGER),
                parameter("query", "page_token", TEXT),
            ),
            responses=_answered(object_of({"runs": array_of(PROJECT_RUN), "next_page_token": TEXT})),
            role="viewer",
            statuses=_READING,
        ),
        "post": described(
            id="startProjectRun",
            tag="projects",
            summary="Starts a run of a scope: 409 if the workflow may have one run at a time, and one is active.",
            parameters=(_path("workflow"),),
            body=_START_BODY,
            responses=_answered(PROJECT_RUN, "201"),
            role="operator",
            statuses=_CHANGING,
        ),
    },
    f"{_PROJECT}/current": {
        "get": described(
            id="getCurrentProjectRun",
            tag="projects",
            summary="Returns the active run, or the latest one.",
            parameters=(_path("workflow"),),
            responses=_answered(PROJECT_RUN),
            role="viewer",
            statuses=_READING,
        )
    },
    f"{_PROJECT}/{{id}}": {
        "get": described(
            id="getProjectRun",
            tag="projects",
            summary="Returns one run.",
            parameters=(_path("workflow"), _path("id")),
            responses=_answered(PROJECT_RUN),
            role="viewer",
            statuses=_READING,
        ),
        "delete": described(
            id="cancelProjectRun",
            tag="projects",
            summary="Requests cancellation, and returns at once.",
            parameters=(_path("workflow"), _path("id")),
            responses={"200": json_response(PROJECT_RUN, "The run as it is now.")},
            role="operator",
            statuses=_CHANGING,
        ),
    },
    f"{_PROJECT}/{{id}}/logs": {
        "get": described(
            id="streamProjectRunLogs",
            tag="projects",
            summary="Streams the log of a run as server-sent events, and its end.",
            parameters=(_path("workflow"), _path("id"), *_log_parameters(), *_RESUMED),
            responses=_events(_LOG_TEXT),
            role="viewer",
            statuses=(*_READING, 410),
        )
    },
}
