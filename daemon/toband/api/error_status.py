"""The gRPC status of every error: a code, a text for people, and details that a program can act on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from urllib.parse import quote

import structlog
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from google.rpc.code_pb2 import (
    ABORTED,
    ALREADY_EXISTS,
    DEADLINE_EXCEEDED,
    FAILED_PRECONDITION,
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    OUT_OF_RANGE,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNAUTHENTICATED,
    UNAVAILABLE,
)

from toban.definition import DefinitionKind, ParamError, RenderError
from toban.safe_text import sendable
from toban.v1 import workflow_pb2
from toband.api.call_limits import TooManyCallsError
from toband.api.definition_messages import problem
from toband.api.request_errors import InvalidFieldError, SlowClientError, UnclearTimeError, UnreadableRequestError
from toband.engine import errors
from toband.engine.hooks.hook_admin import InvalidHookError
from toband.engine.secrets.secret_admin import InvalidSecretError
from toband.ports import (
    ActiveRunError,
    ConflictError,
    DeadLetterClosedError,
    EtagMismatchError,
    HookExistsError,
    JobInUseError,
    RequestReusedError,
    RunGoneError,
    SealError,
    SecretKeyError,
    SecretNotFoundError,
    SecretNotGrantedError,
    SecretUnavailableError,
    StoreError,
    StoreFullError,
    TokenExistsError,
    WorkflowExistsError,
)

DOMAIN = "toban"
# Clients take 8 KiB of trailers, with the details in base64 and the message percent-encoded.
MESSAGE_MOST = 1000
DETAILS_MOST = 4000
_TEXT_MOST = 400
RETRY_AFTER = 0.2
"""Seconds. When a call that was refused because of too many calls may be repeated."""

log = structlog.get_logger()


class Rule(NamedTuple):
    """The status of one class of errors. `metadata` names attributes of the error; `text` is by default its own."""

    code: int
    reason: str
    metadata: Mapping[str, str] = {}
    text: str = "{error}"


RULES: Mapping[type[Exception], Rule] = {
    # Not there, or no longer.
    errors.WorkflowNotFoundError: Rule(NOT_FOUND, "WORKFLOW_NOT_FOUND", {"workflow": "name"}),
    errors.JobNotFoundError: Rule(NOT_FOUND, "JOB_NOT_FOUND", {"job": "name"}),
    errors.VersionNotFoundError: Rule(NOT_FOUND, "VERSION_NOT_FOUND", {"workflow": "name", "version": "version"}),
    errors.RunNotFoundError: Rule(NOT_FOUND, "RUN_NOT_FOUND", {"run_id": "run_id"}),
    errors.NeverRunError: Rule(NOT_FOUND, "RUN_NOT_FOUND", {"workflow": "workflow"}),
    RunGoneError: Rule(NOT_FOUND, "RUN_NOT_FOUND", {"run_id": "args"}, "run {error} was deleted"),
    errors.StepNotFoundError: Rule(NOT_FOUND, "STEP_NOT_FOUND", {"run_id": "run_id", "step": "step"}),
    errors.AttemptNotFoundError: Rule(NOT_FOUND, "PROCESS_EXECUTION_NOT_FOUND", {"process_execution_id": "attempt_id"}),
    errors.ArtifactNotFoundError: Rule(
        NOT_FOUND, "ARTIFACT_NOT_FOUND", {"run_id": "run_id", "step": "step", "artifact": "name", "path": "path"}
    ),
    errors.DeadLetterNotFoundError: Rule(NOT_FOUND, "DEAD_LETTER_NOT_FOUND", {"dead_letter_id": "letter_id"}),
    errors.EventNotFoundError: Rule(NOT_FOUND, "EVENT_NOT_FOUND", {"event_id": "event_id"}),
    errors.EventSourceNotFoundError: Rule(NOT_FOUND, "EVENT_SOURCE_NOT_FOUND", {"run_id": "run_id"}),
    errors.ScheduleNotFoundError: Rule(NOT_FOUND, "SCHEDULE_NOT_FOUND", {"schedule_id": "schedule_id"}),
    errors.TokenNotFoundError: Rule(NOT_FOUND, "TOKEN_NOT_FOUND", {"token": "token"}),
    errors.SessionNotFoundError: Rule(NOT_FOUND, "SESSION_NOT_FOUND", {"session": "session"}),
    errors.HookNotFoundError: Rule(NOT_FOUND, "HOOK_NOT_FOUND", {"hook": "name"}),
    SecretNotFoundError: Rule(NOT_FOUND, "SECRET_NOT_FOUND", {"secret": "name"}),
    errors.LogExpiredError: Rule(OUT_OF_RANGE, "LOG_EXPIRED", {"process_execution_id": "attempt_id", "step": "step"}),
    # Refused however often it is asked for.
    UnreadableRequestError: Rule(INVALID_ARGUMENT, "UNREADABLE_REQUEST", text="cannot read the request: {error}"),
    SlowClientError: Rule(
        DEADLINE_EXCEEDED, "REQUEST_TOO_SLOW", {"seconds": "args"}, "the request did not arrive within {error} s"
    ),
    errors.UnknownScopeError: Rule(INVALID_ARGUMENT, "UNKNOWN_SCOPE", {"workflow": "workflow", "scope": "scope"}),
    errors.UnknownStepError: Rule(INVALID_ARGUMENT, "UNKNOWN_STEP", {"workflow": "workflow", "step": "step"}),
    errors.TooManyDefinitionsError: Rule(INVALID_ARGUMENT, "TOO_MANY_DEFINITIONS", {"limit": "limit"}),
    errors.TooManyDueTimesError: Rule(INVALID_ARGUMENT, "TOO_MANY_DUE_TIMES", {"limit": "limit"}),
    errors.UnknownScheduleError: Rule(
        INVALID_ARGUMENT, "UNKNOWN_SCHEDULE", {"workflow": "workflow", "schedule_index": "index"}
    ),
    errors.NothingToRunError: Rule(INVALID_ARGUMENT, "NOTHING_TO_RUN", {"workflow": "workflow"}),
    RequestReusedError: Rule(
        INVALID_ARGUMENT,
        "REQUEST_ID_REUSED",
        {"request_id": "args"},
        "request_id was already used for a different request",
    ),
    errors.NotApproverError: Rule(
        PERMISSION_DENIED, "NOT_AN_APPROVER", {"step": "step", "caller": "caller", "approvers": "approvers"}
    ),
    TokenExistsError: Rule(ALREADY_EXISTS, "TOKEN_EXISTS", {"token": "args"}, "token {error.args[0]!r} already exists"),
    HookExistsError: Rule(ALREADY_EXISTS, "HOOK_EXISTS", {"hook": "args"}, "hook {error.args[0]!r} already exists"),
    # In another state than it must be.
    errors.RunTerminalError: Rule(
        FAILED_PRECONDITION, "RUN_ALREADY_TERMINAL", {"run_id": "run.id", "state": "run.state.value"}
    ),
    errors.RunActiveError: Rule(
        FAILED_PRECONDITION, "RUN_NOT_TERMINAL", {"run_id": "run.id", "state": "run.state.value"}
    ),
    errors.RunInUseError: Rule(FAILED_PRECONDITION, "RUN_IN_USE", {"run_id": "run.id"}),
    errors.RunPinnedError: Rule(FAILED_PRECONDITION, "RUN_PINNED", {"run_id": "run.id"}),
    errors.StepNotSkippableError: Rule(
        FAILED_PRECONDITION, "STEP_NOT_SKIPPABLE", {"run_id": "run_id", "step": "step", "state": "state"}
    ),
    errors.NothingToRetryError: Rule(FAILED_PRECONDITION, "NOTHING_TO_RETRY", {"run_id": "run_id"}),
    errors.NoPriorResultError: Rule(FAILED_PRECONDITION, "NO_PRIOR_RESULT", {"step": "step", "run_id": "run_id"}),
    errors.NotWaitingError: Rule(
        FAILED_PRECONDITION, "STEP_NOT_WAITING", {"run_id": "run_id", "step": "step", "state": "state"}
    ),
    RenderError: Rule(FAILED_PRECONDITION, "TEMPLATE_FAILED"),
    errors.OwnedByFileError: Rule(FAILED_PRECONDITION, "OWNED_BY_FILE", {"name": "name", "path": "path"}),
    errors.ZoneGoneError: Rule(
        FAILED_PRECONDITION, "TIME_ZONE_NOT_FOUND", {"schedule_id": "schedule_id", "timezone": "zone"}
    ),
    SecretNotGrantedError: Rule(FAILED_PRECONDITION, "SECRET_NOT_GRANTED", {"secret": "name", "workflow": "workflow"}),
    SecretUnavailableError: Rule(FAILED_PRECONDITION, "SECRET_UNAVAILABLE", {"secret": "name"}),
    SecretKeyError: Rule(FAILED_PRECONDITION, "SECRETS_KEY_UNUSABLE"),
    SealError: Rule(FAILED_PRECONDITION, "SECRETS_KEY_UNUSABLE", {"place": "place"}),
    errors.ConfiguredTokenError: Rule(FAILED_PRECONDITION, "TOKEN_IN_CONFIGURATION", {"token": "token"}),
    errors.UnknownOwnerError: Rule(FAILED_PRECONDITION, "SESSION_OWNER_UNKNOWN"),
    errors.SessionOfSessionError: Rule(FAILED_PRECONDITION, "SESSION_OF_SESSION"),
    ActiveRunError: Rule(
        FAILED_PRECONDITION, "RUN_ALREADY_ACTIVE", {"run_id": "args", "run": "name"}, "run {error.name} is active"
    ),
    EtagMismatchError: Rule(
        ABORTED, "ETAG_MISMATCH", {"etag": "args", "name": "name"}, "{error.name!r} has changed; read it again"
    ),
    ConflictError: Rule(ABORTED, "CHANGED_MEANWHILE", {"name": "args"}, "{error} keeps changing; try again"),
    # Not possible at the moment.
    errors.TooManySessionsError: Rule(RESOURCE_EXHAUSTED, "TOO_MANY_SESSIONS", {"limit": "limit"}),
    errors.QueueFullError: Rule(RESOURCE_EXHAUSTED, "QUEUE_FULL", {"workflow": "workflow", "limit": "limit"}),
    errors.DiskFullError: Rule(RESOURCE_EXHAUSTED, "DISK_FULL", {"path": "path", "free": "free", "reserve": "reserve"}),
    errors.RefusedError: Rule(UNAVAILABLE, "DAEMON_UNHEALTHY", {"condition": "condition"}),
    StoreFullError: Rule(RESOURCE_EXHAUSTED, "DISK_FULL"),
    errors.StoppingError: Rule(UNAVAILABLE, "STOPPING"),
    StoreError: Rule(UNAVAILABLE, "STORE_FAILED", text="cannot use the database: {error}"),
}


def status_of(error: Exception) -> status_pb2.Status:
    """The status of an error. An unexpected error is logged and becomes INTERNAL."""
    for kind in type(error).__mro__:
        if (make := _SPECIAL.get(kind)) is not None:
            return make(error)
        if (rule := RULES.get(kind)) is not None:
            metadata = {key: _shown(attrgetter(name)(error)) for key, name in rule.metadata.items()}
            return _make(rule.code, rule.text.format(error=error), rule.reason, **metadata)
    log.error("a request failed", action="request_failed", exc_info=error)
    return _make(INTERNAL, "internal error: see the daemon's log", "INTERNAL")


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _invalid_params(error: ParamError) -> status_pb2.Status:
    violations = [(f"params.{name}" if name else "params", text) for name, text in error.problems]
    text = "; ".join(f"{name}: {text}" if name else text for name, text in error.problems)
    return _invalid("INVALID_PARAMS", f"invalid parameters: {text}", violations)


def _name_taken(error: WorkflowExistsError) -> status_pb2.Status:
    name, kind = str(error.args[0]), error.kind
    text = f"a {kind.value} {name!r} already exists"
    if kind is DefinitionKind.JOB:
        return _make(ALREADY_EXISTS, text, "JOB_EXISTS", job=name)
    return _make(ALREADY_EXISTS, text, "WORKFLOW_EXISTS", workflow=name)


def _job_in_use(error: JobInUseError) -> status_pb2.Status:
    names = ", ".join(error.args[0])
    users = names or "workflows that the caller may not see"
    return _make(FAILED_PRECONDITION, f"the job is used by {users}", "JOB_IN_USE", workflows=names)


def _too_many_calls(error: TooManyCallsError) -> status_pb2.Status:
    again = _again(RETRY_AFTER)
    reason = "TOO_MANY_STREAMS" if error.lane == "stream" else "TOO_MANY_CALLS"
    limit = error.limit
    return _make(
        RESOURCE_EXHAUSTED, error, reason, again, kind=error.lane, limit=str(limit.active), waiting=str(limit.waiting)
    )


def _rate_exceeded(error: errors.RateExceededError) -> status_pb2.Status:
    again = _again(error.wait)
    return _make(RESOURCE_EXHAUSTED, error, "TOO_MANY_CALLS", again, kind="rate", limit=f"{error.rate:g}")


def _too_many_failures(error: errors.TooManyFailuresError) -> status_pb2.Status:
    return _make(RESOURCE_EXHAUSTED, error, "TOO_MANY_FAILURES", _again(error.wait))


def _again(seconds: float) -> error_details_pb2.RetryInfo:
    again = error_details_pb2.RetryInfo()
    again.retry_delay.FromMilliseconds(max(1, round(seconds * 1000)))
    return again


def _dead_letter_closed(error: DeadLetterClosedError) -> status_pb2.Status:
    letter = error.letter
    outcome = f"requeued as run {error.run or letter.requeued_as}" if letter.requeued_as else "discarded"
    return _make(
        FAILED_PRECONDITION,
        f"the dead letter was already {outcome}",
        "DEAD_LETTER_CLOSED",
        dead_letter_id=letter.id,
        state=letter.state.value,
        requeued_as=letter.requeued_as,
    )


def _invalid_definition(error: errors.InvalidDefinitionError) -> status_pb2.Status:
    """With as many problems as every client can take, and the number of all."""
    bad = error_details_pb2.BadRequest()
    problems = workflow_pb2.DefinitionProblems()
    for found in error.problems:
        problems.problems.add().CopyFrom(problem(found))
        problems.problems[-1].message = _cut(found.message)
        problems.problems[-1].path = _cut(found.path)
        if not found.warning:
            place = f"{problems.problems[-1].file}:{found.line}:{found.column}".removeprefix(":")
            _add_violation(bad, found.path, f"{place}: {found.message}")
        if bad.ByteSize() + problems.ByteSize() > DETAILS_MOST:
            del problems.problems[-1]
            if not found.warning:
                del bad.field_violations[-1]
            break
    given, count = len(problems.problems), len(error.problems)
    text = str(error) if given == count else f"{error}, of which {given} are given here"
    return _make(INVALID_ARGUMENT, text, "INVALID_DEFINITION", bad, problems, problems=str(count))


def _invalid(reason: str, message: str, violations: Sequence[Any]) -> status_pb2.Status:
    bad = error_details_pb2.BadRequest()
    for field, text in violations:
        _add_violation(bad, field, text)
        if bad.ByteSize() > DETAILS_MOST:
            del bad.field_violations[-1]
            break
    return _make(INVALID_ARGUMENT, message, reason, bad)


def _invalid_field(field: str, error: Exception) -> status_pb2.Status:
    return _invalid("INVALID_ARGUMENT", f"{field}: {error}", [(field, str(error))])


def _add_violation(bad: Any, field: str, text: str) -> None:
    bad.field_violations.add(field=_cut(field), description=_cut(text))


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


# Errors whose text or details are more than a rule can say.
_SPECIAL: Mapping[type[BaseException], Callable[[Any], status_pb2.Status]] = {
    errors.InvalidDefinitionError: _invalid_definition,
    ParamError: _invalid_params,
    InvalidFieldError: lambda error: _invalid("INVALID_ARGUMENT", f"{error.args[0]}: {error.args[1]}", [error.args]),
    InvalidSecretError: lambda error: _invalid(
        "INVALID_ARGUMENT", f"{error.field}: {error}", [(error.field, str(error))]
    ),
    InvalidHookError: lambda error: _invalid(
        "INVALID_ARGUMENT", f"{error.field}: {error}", [(error.field, str(error))]
    ),
    UnclearTimeError: lambda error: _invalid("TIME_NOT_UNDERSTOOD", error.args[1], [error.args]),
    errors.TimeNotUnderstoodError: lambda error: _invalid("TIME_NOT_UNDERSTOOD", str(error), [("rule", str(error))]),
    errors.UnclearActionError: lambda error: _invalid("INVALID_ARGUMENT", f"action: {error}", [("action", str(error))]),
    errors.BadPositionError: lambda error: _invalid("INVALID_POSITION", str(error), [("position", str(error))]),
    errors.WorkflowRecursionError: lambda error: _make(
        FAILED_PRECONDITION, error, "WORKFLOW_RECURSION", path=" → ".join(error.path)
    ),
    WorkflowExistsError: _name_taken,
    JobInUseError: _job_in_use,
    TooManyCallsError: _too_many_calls,
    errors.RateExceededError: _rate_exceeded,
    errors.TooManyFailuresError: _too_many_failures,
    errors.InvalidCredentialError: lambda error: _make(UNAUTHENTICATED, error, error.reason.value),
    errors.NotPermittedError: lambda error: _make(PERMISSION_DENIED, error, error.reason.value),
    DeadLetterClosedError: _dead_letter_closed,
}
