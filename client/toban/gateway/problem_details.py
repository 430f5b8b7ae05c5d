"""Refusals as problem details (RFC 9457), with the reasons of gRPC."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from starlette.responses import JSONResponse

from toban import sdk
from toban.message_json.message_data import to_dict

MEDIA_TYPE: Final = "application/problem+json"
ETAG_MISMATCH: Final = "ETAG_MISMATCH"

# The daemon is expected back within seconds, and a place becomes free soon.
_RETRY_AFTER: Final = {429: "1", 503: "1"}

_BY_REASON: Final = {ETAG_MISMATCH: 412, "LOG_EXPIRED": 410, "DISK_FULL": 507}
_BY_CLASS: Final[tuple[tuple[type[sdk.TobanError], int], ...]] = (
    (sdk.Unauthenticated, 401),
    (sdk.Refused, 403),
    (sdk.NotFound, 404),
    (sdk.Conflict, 409),
    (sdk.InvalidDefinition, 422),
    (sdk.InvalidArgument, 422),
    (sdk.ResourceExhausted, 429),
    (sdk.Unreachable, 503),
)

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "reason"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "For people: what is wrong, and what to do."},
        "reason": {"type": "string", "description": "Stable: the reason of the gRPC error, or one of the gateway."},
        "metadata": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "What it is about, such as `run_id` of the active run.",
        },
        "violations": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "description"],
                "properties": {"field": {"type": "string"}, "description": {"type": "string"}},
            },
        },
        "problems": {"type": "array", "items": {"$ref": "#/components/schemas/DefinitionProblem"}},
    },
}


class RefusedRequestError(Exception):
    """The gateway itself refuses a request."""

    def __init__(self, status: int, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason


def problem(status: int, reason: str, detail: str, **members: Any) -> JSONResponse:
    """A refusal. Members that are empty are left out."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "reason": reason,
        **{name: value for name, value in members.items() if value},
    }
    headers = {"Cache-Control": "no-store"}
    if status in _RETRY_AFTER:
        headers["Retry-After"] = _RETRY_AFTER[status]
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="toban"'
    return JSONResponse(body, status, headers=headers, media_type=MEDIA_TYPE)


def problem_of(error: sdk.TobanError) -> JSONResponse:
    """The refusal for an error of a call."""
    violations = getattr(error, "violations", ())
    problems = getattr(error, "problems", ())
    return problem(
        http_status(error),
        error.reason or ("DAEMON_UNREACHABLE" if isinstance(error, sdk.Unreachable) else "INTERNAL"),
        error.message,
        metadata=dict(sorted(error.metadata.items())),
        violations=[{"field": each.field, "description": each.description} for each in violations],
        problems=[to_dict(each) for each in problems],
    )


def http_status(error: sdk.TobanError) -> int:
    if error.reason in _BY_REASON:
        return _BY_REASON[error.reason]
    if isinstance(error, sdk.Refused) and not error.reason:
        # The socket is closed to the gateway itself.
        return 503
    return next((status for kind, status in _BY_CLASS if isinstance(error, kind)), 500)
