"""One place that turns what went wrong into a gRPC status with details that a program can act on."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeVar, cast
from urllib.parse import quote

import grpc
import structlog
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from toban.definition import ParamError, Problem
from toban.v1 import workflow_pb2
from toband.engine import errors
from toband.ports import (
    ActiveRunError,
    EtagMismatchError,
    RequestReusedError,
    RunGoneError,
    StoreError,
    StoreFullError,
    WorkflowExistsError,
)

DOMAIN = "toban"
# Clients take 8 KiB of trailers, in which the details stand in base64 and the message percent-encoded.
MESSAGE_MOST = 1000
DETAILS_MOST = 4000
_TEXT_MOST = 400

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]
_Method = TypeVar("_Method", bound=Callable[..., Any])


class InvalidFieldError(Exception):
    """A field of a request that cannot be taken. `args` are its path and what is wrong with it."""


def unary(method: _Method) -> _Method:
    """Answers errors of a handler as statuses; whatever nobody expected becomes INTERNAL, and is logged."""
    handler = cast(Callable[[Any, Any, Context], Awaitable[Any]], method)

    @functools.wraps(method)
    async def wrapped(self: Any, request: Any, context: Context) -> Any:
        try:
            return await handler(self, request, context)
        except Exception as error:
            await _abort(context, error)

    return cast(_Method, wrapped)


def streaming(method: _Method) -> _Method:
    """As `unary`, for a handler that gives many answers."""
    handler = cast(Callable[[Any, Any, Context], AsyncIterator[Any]], method)

    @functools.wraps(method)
    async def wrapped(self: Any, request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            async for answer in handler(self, request, context):
                yield answer
        except Exception as error:
            await _abort(context, error)

    return cast(_Method, wrapped)


def problem(found: Problem) -> workflow_pb2.DefinitionProblem:
    return workflow_pb2.DefinitionProblem(
        path=found.path,
        line=found.line,
        column=found.column,
        message=found.message,
        warning=found.warning,
    )


async def _abort(context: Context, error: Exception) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    status = rpc_status.to_status(_status(error))
    await cast(Any, context).abort_with_status(status)
    raise AssertionError("abort_with_status raises")


def _status(error: Exception) -> status_pb2.Status:
    match error:
        case errors.WorkflowNotFoundError():
            return _make(code_pb2.NOT_FOUND, error, "WORKFLOW_NOT_FOUND", workflow=error.name)
        case errors.VersionNotFoundError():
            return _make(
                code_pb2.NOT_FOUND, error, "VERSION_NOT_FOUND",
                workflow=error.name, version=str(error.version),
            )  # fmt: skip
        case errors.RunNotFoundError():
            return _make(code_pb2.NOT_FOUND, error, "RUN_NOT_FOUND", run_id=error.run_id)
        case errors.NeverRunError():
            return _make(code_pb2.NOT_FOUND, error, "RUN_NOT_FOUND", workflow=error.workflow)
        case errors.StepNotFoundError():
            return _make(
                code_pb2.NOT_FOUND, error, "STEP_NOT_FOUND", run_id=error.run_id, step=error.step
            )
        case errors.AttemptNotFoundError():
            return _make(
                code_pb2.NOT_FOUND, error, "PROCESS_EXECUTION_NOT_FOUND",
                process_execution_id=error.attempt_id,
            )  # fmt: skip
        case errors.RunTerminalError():
            return _make(
                code_pb2.FAILED_PRECONDITION, error, "RUN_ALREADY_TERMINAL",
                run_id=error.run.id, state=error.run.state.value,
            )  # fmt: skip
        case RunGoneError():
            return _make(
                code_pb2.NOT_FOUND, f"run {error.args[0]}, which this request made, is not kept any more",
                "RUN_NOT_FOUND", run_id=error.args[0],
            )  # fmt: skip
        case errors.LogExpiredError():
            return _make(
                code_pb2.OUT_OF_RANGE, error, "LOG_EXPIRED",
                process_execution_id=error.attempt_id, step=error.step,
            )  # fmt: skip
        case errors.BadPositionError():
            return _invalid("INVALID_POSITION", str(error), [("position", str(error))])
        case errors.InvalidDefinitionError():
            return _invalid_definition(error)
        case ParamError():
            violations = [(f"params.{name}", text) for name, text in error.problems]
            text = "; ".join(f"{name}: {text}" for name, text in error.problems)
            return _invalid("INVALID_PARAMS", f"the parameters do not fit: {text}", violations)
        case InvalidFieldError():
            return _invalid("INVALID_ARGUMENT", f"{error.args[0]}: {error.args[1]}", [error.args])
        case ActiveRunError():
            return _make(
                code_pb2.FAILED_PRECONDITION, f"a run is active already: {error.args[0]}",
                "RUN_ALREADY_ACTIVE", run_id=error.args[0],
            )  # fmt: skip
        case WorkflowExistsError():
            return _make(
                code_pb2.ALREADY_EXISTS, f"there is a workflow {error.args[0]!r} already",
                "WORKFLOW_EXISTS", workflow=str(error.args[0]),
            )  # fmt: skip
        case EtagMismatchError():
            text = "it was changed meanwhile; read it again"
            return _make(code_pb2.ABORTED, text, "ETAG_MISMATCH", etag=str(error.args[0]))
        case RequestReusedError():
            return _make(
                code_pb2.INVALID_ARGUMENT, "this request_id was used before, for another request",
                "REQUEST_ID_REUSED", request_id=str(error.args[0]),
            )  # fmt: skip
        case errors.DiskFullError():
            return _make(
                code_pb2.RESOURCE_EXHAUSTED, error, "DISK_FULL",
                path=error.path, free=str(error.free), reserve=str(error.reserve),
            )  # fmt: skip
        case errors.RefusedError():
            return _make(code_pb2.UNAVAILABLE, error, "DAEMON_UNHEALTHY", condition=error.condition)
        case StoreFullError():
            return _make(code_pb2.RESOURCE_EXHAUSTED, error, "DISK_FULL")
        case errors.StoppingError():
            return _make(code_pb2.UNAVAILABLE, error, "STOPPING")
        case StoreError():
            return _make(code_pb2.UNAVAILABLE, f"cannot use the database: {error}", "STORE_FAILED")
        case _:
            log.error("a request failed", action="request_failed", exc_info=error)
            text = "something went wrong inside the daemon; its log says more"
            return _make(code_pb2.INTERNAL, text, "INTERNAL")


def _make(
    code: int, message: object, reason: str, *details: Message, **metadata: str
) -> status_pb2.Status:
    shown = {key: _cut(value) for key, value in metadata.items()}
    info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=shown)
    text = str(message)
    while len(quote(text)) > MESSAGE_MOST:
        text = text[: len(text) * 3 // 4] + "…"
    status = status_pb2.Status(code=code, message=text)
    for detail in (info, *details):
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MOST else text[: _TEXT_MOST - 1] + "…"


def _invalid(reason: str, message: str, violations: list[Any]) -> status_pb2.Status:
    bad = error_details_pb2.BadRequest()
    for field, text in violations:
        _add_violation(bad, field, text)
        if bad.ByteSize() > DETAILS_MOST:
            del bad.field_violations[-1]
            break
    return _make(code_pb2.INVALID_ARGUMENT, message, reason, bad)


def _add_violation(bad: Any, field: str, text: str) -> None:
    bad.field_violations.add(field=_cut(field), description=_cut(text))


def _invalid_definition(error: errors.InvalidDefinitionError) -> status_pb2.Status:
    """With as many problems as a client is sure to take, and their number."""
    bad = error_details_pb2.BadRequest()
    problems = workflow_pb2.DefinitionProblems()
    for found in error.problems:
        problems.problems.add().CopyFrom(problem(found))
        problems.problems[-1].message = _cut(found.message)
        problems.problems[-1].path = _cut(found.path)
        if not found.warning:
            _add_violation(bad, found.path, f"{found.line}:{found.column}: {found.message}")
        if bad.ByteSize() + problems.ByteSize() > DETAILS_MOST:
            del problems.problems[-1]
            if not found.warning:
                del bad.field_violations[-1]
            break
    given, count = len(problems.problems), len(error.problems)
    text = str(error) if given == count else f"{error}, of which {given} are given here"
    return _make(
        code_pb2.INVALID_ARGUMENT, text, "INVALID_DEFINITION", bad, problems, problems=str(count)
    )
