"""Fails calls the way the daemon does: with a code, a text and error details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

Context = grpc.aio.ServicerContext[Any, Any]


async def abort(context: Context, code: grpc.StatusCode, text: str, *details: Message) -> NoReturn:
    """Fails a call with error details, as the daemon does."""
    status = status_pb2.Status(code=code.value[0], message=text)
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    await context.abort(code, text, trailing_metadata=(("grpc-status-details-bin", status.SerializeToString()),))
    raise AssertionError("abort returns never")


def violation(field: str, text: str) -> error_details_pb2.BadRequest:
    made = error_details_pb2.BadRequest()
    made.field_violations.add(field=field, description=text)
    return made


def info(reason: str, metadata: Mapping[str, str] | None = None) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain="toban", metadata=metadata or {})
