"""Writes the answer of an operation, with `ETag` and `304`."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from toban.gateway.operation import Operation
from toban.message_json.message_data import to_dict
from toban.safe_text import json_text

if TYPE_CHECKING:
    from google.protobuf.message import Message


def answer(operation: Operation, request: Request, message: Message) -> Response:
    """The message as JSON. A field `result` is the body, with the other fields of the message beside its own."""
    if operation.status == 204:
        return Response(status_code=204)
    data = to_dict(message)
    stored = ""
    if operation.result:
        inner = data.pop(operation.result, {})
        stored = str(inner.get(operation.etag, ""))
        data = {**inner, **data}
    return json_answer(request, data, operation.status, stored=stored)


def json_answer(request: Request, data: Any, status: int = 200, *, stored: str = "") -> Response:
    """JSON. `stored` is the daemon's own etag: the part before the dot, which `If-Match` compares."""
    body = json_text(data).encode()
    digest = hashlib.sha256(body).hexdigest()[:20]
    tag = f'"{stored}.{digest}"' if stored else f'"{digest}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.method == "GET" and _is_known(request, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers=headers, media_type="application/json")


def _is_known(request: Request, tag: str) -> bool:
    known = [each.strip().removeprefix("W/") for each in request.headers.get("If-None-Match", "").split(",")]
    return tag in known or known == ["*"]
