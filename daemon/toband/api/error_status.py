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

from toban.definition import DefinitionKind, ParamError, Problem, RenderError
from toban.safe_text import sendable
from toban.v1 import workflow_pb2
from toband.api.call_limits import TooManyCallsError
from toband.engine import errors
from toband.ports import (
    ActiveRunError,
    ConflictError,
    DeadLetterClosedError,
    EtagMismatchError,
    JobInUseError,
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
RETRY_AFTER_MS = 200
"""When a call that was refused because there were too many may be tried again."""

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]
_Method = TypeVar("_Method", bound=Callable[..., Any])


class InvalidFieldError(Exception):
    """A field of a request that cannot be taken. `args` are its path and what is wrong with it."""


class UnreadableRequestError(Exception):
    """Bytes that are not the message of the call; the text says why."""


class UnclearTimeError(Exception):
    """A field that should say when something is due, and does not. `args` are its path and why, for people."""


def unary(method: _Method) -> _Method:
    """Answers errors of a handler as statuses; whatever nobody expected becomes INTERNAL, and is logged."""
    handler = cast(Callable[[Any, Any, Context], Awaitable[Any]], method)

    @functools.wraps(method)
    async def wrapped(self: Any, request: Any, context: Context) -> Any:
        try:
            return await handler(self, request, context)
        except Exception as error:
            await abort(context, error)

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
            await abort(context, error)

    return cast(_Method, wrapped)


def problem(found: Problem) -> workflow_pb2.DefinitionProblem:
    return workflow_pb2.DefinitionProblem(
        path=sendable(found.path),
        line=found.line,
        column=found.column,
        message=sendable(found.message),
        warning=found.warning,
    )


async def abort(context: Context, error: Exception) -> NoReturn:
    """Ends a call with the status that stands for the error."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    status = rpc_status.to_status(status_of(error))
    await cast(Any, context).abort_with_status(status)
    raise AssertionError("abort_with_status raises")


def status_of(error: Exception) -> status_pb2.Status:
    """What the client is told; an error that nobody expected is logged."""
    return _missing(error) or _wrong_request(error) or _wrong_state(error) or _unable(error) or _unexpected(error)


def _missing(error: Exception) -> status_pb2.Status | None:
    """Something that is not there, or not any more."""
    match error:
        case errors.WorkflowNotFoundError():
            return _make(code_pb2.NOT_FOUND, error, "WORKFLOW_NOT_FOUND", workflow=error.name)
        case errors.JobNotFoundError():
            return _make(code_pb2.NOT_FOUND, error, "JOB_NOT_FOUND", job=error.name)
        case errors.VersionNotFoundError():
            return _make(
                code_pb2.NOT_FOUND,
                error,
                "VERSION_NOT_FOUND",
                workflow=error.name,
                version=str(error.version),
            )
        case errors.RunNotFoundError():
            return _make(code_pb2.NOT_FOUND, error, "RUN_NOT_FOUND", run_id=error.run_id)
        case errors.NeverRunError():
            return _make(code_pb2.NOT_FOUND, error, "RUN_NOT_FOUND", workflow=error.workflow)
        case errors.StepNotFoundError():
            return _make(code_pb2.NOT_FOUND, error, "STEP_NOT_FOUND", run_id=error.run_id, step=error.step)
        case errors.AttemptNotFoundError():
            return _make(
                code_pb2.NOT_FOUND,
                error,
                "PROCESS_EXECUTION_NOT_FOUND",
                process_execution_id=error.attempt_id,
            )
        case RunGoneError():
            return _make(
                code_pb2.NOT_FOUND,
                f"run {error.args[0]} is not kept any more",
                "RUN_NOT_FOUND",
                run_id=error.args[0],
            )
        case errors.LogExpiredError():
            return _make(
                code_pb2.OUT_OF_RANGE,
                error,
                "LOG_EXPIRED",
                process_execution_id=error.attempt_id,
                step=error.step,
            )
        case errors.ArtifactNotFoundError():
            return _make(
                code_pb2.NOT_FOUND,
                error,
                "ARTIFACT_NOT_FOUND",
                run_id=error.run_id,
                step=error.step,
                artifact=error.name,
                path=error.path,
            )
        case errors.DeadLetterNotFoundError():
            return _make(code_pb2.NOT_FOUND, error, "DEAD_LETTER_NOT_FOUND", dead_letter_id=error.letter_id)
        case errors.EventNotFoundError():
            return _make(code_pb2.NOT_FOUND, error, "EVENT_NOT_FOUND", event_id=error.event_id)
        case errors.EventSourceNotFoundError():
            return _make(code_pb2.NOT_FOUND, error, "EVENT_SOURCE_NOT_FOUND", run_id=error.run_id)
        case errors.ScheduleNotFoundError():
            return _make(code_pb2.NOT_FOUND, error, "SCHEDULE_NOT_FOUND", schedule_id=error.schedule_id)
        case _:
            return None


def _wrong_request(error: Exception) -> status_pb2.Status | None:
    """Something that will be refused however often it is asked for."""
    match error:
        case errors.BadPositionError():
            return _invalid("INVALID_POSITION", str(error), [("position", str(error))])
        case errors.InvalidDefinitionError():
            return _invalid_definition(error)
        case ParamError():
            violations = [(f"params.{name}" if name else "params", text) for name, text in error.problems]
            text = "; ".join(f"{name}: {text}" if name else text for name, text in error.problems)
            return _invalid("INVALID_PARAMS", f"the parameters do not fit: {text}", violations)
        case InvalidFieldError():
            return _invalid("INVALID_ARGUMENT", f"{error.args[0]}: {error.args[1]}", [error.args])
        case UnreadableRequestError():
            text = f"cannot read the request: {error}"
            return _make(code_pb2.INVALID_ARGUMENT, text, "UNREADABLE_REQUEST")
        case UnclearTimeError():
            return _invalid("TIME_NOT_UNDERSTOOD", error.args[1], [error.args])
        case errors.TimeNotUnderstoodError():
            return _invalid("TIME_NOT_UNDERSTOOD", str(error), [("rule", str(error))])
        case errors.UnclearActionError():
            return _invalid("INVALID_ARGUMENT", f"action: {error}", [("action", str(error))])
        case errors.UnknownScopeError():
            return _make(
                code_pb2.INVALID_ARGUMENT,
                error,
                "UNKNOWN_SCOPE",
                workflow=error.workflow,
                scope=error.scope,
            )
        case errors.UnknownStepError():
            return _make(
                code_pb2.INVALID_ARGUMENT,
                error,
                "UNKNOWN_STEP",
                workflow=error.workflow,
                step=error.step,
            )
        case errors.NothingToRunError():
            return _make(code_pb2.INVALID_ARGUMENT, error, "NOTHING_TO_RUN", workflow=error.workflow)
        case RequestReusedError():
            return _make(
                code_pb2.INVALID_ARGUMENT,
                "this request_id was used before, for another request",
                "REQUEST_ID_REUSED",
                request_id=str(error.args[0]),
            )
        case errors.NotApproverError():
            return _make(
                code_pb2.PERMISSION_DENIED,
                error,
                "NOT_AN_APPROVER",
                step=error.step,
                caller=error.caller,
                approvers=", ".join(error.approvers),
            )
        case _:
            return None


def _wrong_state(error: Exception) -> status_pb2.Status | None:
    """Something that is there, but is not as it would have to be."""
    match error:
        case errors.RunTerminalError():
            return _make(
                code_pb2.FAILED_PRECONDITION,
                error,
                "RUN_ALREADY_TERMINAL",
                run_id=error.run.id,
                state=error.run.state.value,
            )
        case errors.RunActiveError():
            return _make(
                code_pb2.FAILED_PRECONDITION,
                error,
                "RUN_NOT_TERMINAL",
                run_id=error.run.id,
                state=error.run.state.value,
            )
        case errors.RunInUseError():
            return _make(code_pb2.FAILED_PRECONDITION, error, "RUN_IN_USE", run_id=error.run_id)
        case errors.NothingToRetryError():
            return _make(code_pb2.FAILED_PRECONDITION, error, "NOTHING_TO_RETRY", run_id=error.run_id)
        case errors.NoPriorResultError():
            return _make(
                code_pb2.FAILED_PRECONDITION,
                error,
                "NO_PRIOR_RESULT",
                step=error.step,
                run_id=error.run_id,
            )
        case errors.NotWaitingError():
            return _make(
                code_pb2.FAILED_PRECONDITION,
                error,
                "STEP_NOT_WAITING",
                run_id=error.run_id,
                step=error.step,
                state=error.state,
            )
        case RenderError():
            return _make(code_pb2.FAILED_PRECONDITION, error, "TEMPLATE_FAILED")
        case errors.WorkflowRecursionError():
            return _make(
                code_pb2.FAILED_PRECONDITION,
                error,
                "WORKFLOW_RECURSION",
                path=" → ".join(error.path),
            )
        case errors.OwnedByFileError():
            return _make(
                code_pb2.FAILED_PRECONDITION,
                error,
                "OWNED_BY_FILE",
                name=error.name,
                path=error.path,
            )
        case errors.ZoneGoneError():
            return _make(
                code_pb2.FAILED_PRECONDITION,
                error,
                "TIME_ZONE_NOT_FOUND",
                schedule_id=error.schedule_id,
                timezone=error.zone,
            )
        case DeadLetterClosedError():
            return _dead_letter_closed(error)
        case JobInUseError():
            names = ", ".join(error.args[0])
            return _make(
                code_pb2.FAILED_PRECONDITION,
                f"the job is used by {names}",
                "JOB_IN_USE",
                workflows=names,
            )
        case ActiveRunError():
            return _make(
                code_pb2.FAILED_PRECONDITION,
                f"a run is active already: {error.args[0]}",
                "RUN_ALREADY_ACTIVE",
                run_id=error.args[0],
            )
        case WorkflowExistsError():
            name, kind = str(error.args[0]), error.kind
            text = f"there is a {kind.value} {name!r} already"
            if kind is DefinitionKind.JOB:
                return _make(code_pb2.ALREADY_EXISTS, text, "JOB_EXISTS", job=name)
            return _make(code_pb2.ALREADY_EXISTS, text, "WORKFLOW_EXISTS", workflow=name)
        case EtagMismatchError():
            text = "it was changed meanwhile; read it again"
            return _make(code_pb2.ABORTED, text, "ETAG_MISMATCH", etag=str(error.args[0]))
        case ConflictError():
            text = f"{error.args[0]} was changed meanwhile, more than once; try again"
            return _make(code_pb2.ABORTED, text, "CHANGED_MEANWHILE", name=str(error.args[0]))
        case _:
            return None


def _unable(error: Exception) -> status_pb2.Status | None:
    """Something that cannot be done now, whatever it is."""
    match error:
        case TooManyCallsError():
            return _too_many_calls(error)
        case errors.QueueFullError():
            return _make(
                code_pb2.RESOURCE_EXHAUSTED,
                error,
                "QUEUE_FULL",
                workflow=error.workflow,
                limit=str(error.limit),
            )
        case errors.DiskFullError():
            return _make(
                code_pb2.RESOURCE_EXHAUSTED,
                error,
                "DISK_FULL",
                path=error.path,
                free=str(error.free),
                reserve=str(error.reserve),
            )
        case errors.RefusedError():
            return _make(code_pb2.UNAVAILABLE, error, "DAEMON_UNHEALTHY", condition=error.condition)
        case StoreFullError():
            return _make(code_pb2.RESOURCE_EXHAUSTED, error, "DISK_FULL")
        case errors.StoppingError():
            return _make(code_pb2.UNAVAILABLE, error, "STOPPING")
        case StoreError():
            return _make(code_pb2.UNAVAILABLE, f"cannot use the database: {error}", "STORE_FAILED")
        case _:
            return None


def _unexpected(error: Exception) -> status_pb2.Status:
    log.error("a request failed", action="request_failed", exc_info=error)
    text = "something went wrong inside the daemon; its log says more"
    return _make(code_pb2.INTERNAL, text, "INTERNAL")


def _too_many_calls(error: TooManyCallsError) -> status_pb2.Status:
    again = error_details_pb2.RetryInfo()
    again.retry_delay.FromMilliseconds(RETRY_AFTER_MS)
    reason = "TOO_MANY_STREAMS" if error.lane == "stream" else "TOO_MANY_CALLS"
    return _make(
        code_pb2.RESOURCE_EXHAUSTED,
        error,
        reason,
        again,
        kind=error.lane,
        limit=str(error.limit.active),
        waiting=str(error.limit.waiting),
    )


def _dead_letter_closed(error: DeadLetterClosedError) -> status_pb2.Status:
    letter = error.letter
    become = f"requeued as run {letter.requeued_as}" if letter.requeued_as else "discarded"
    return _make(
        code_pb2.FAILED_PRECONDITION,
        f"the dead letter was {become} before",
        "DEAD_LETTER_CLOSED",
        dead_letter_id=letter.id,
        state=letter.state.value,
        requeued_as=letter.requeued_as,
    )


def _make(code: int, message: object, reason: str, *details: Message, **metadata: str) -> status_pb2.Status:
    shown = {key: _cut(value) for key, value in metadata.items()}
    info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=shown)
    text = sendable(str(message))
    while len(quote(text)) > MESSAGE_MOST:
        text = text[: len(text) * 3 // 4] + "…"
    status = status_pb2.Status(code=code, message=text)
    for detail in (info, *details):
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def _cut(text: str) -> str:
    text = sendable(text)
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
    return _make(code_pb2.INVALID_ARGUMENT, text, "INVALID_DEFINITION", bad, problems, problems=str(count))
