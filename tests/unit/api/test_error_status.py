"""Every refusal has a code and a reason of its own."""

from __future__ import annotations

from datetime import UTC, datetime

import grpc
import pytest
from google.rpc import error_details_pb2

from toban.definition import DefinitionKind, RenderError
from toban.definition import ErrorClass as Class
from toband.api.call_limits import Limit, TooManyCallsError
from toband.api.error_status import status_of
from toband.api.request_errors import SlowClientError, UnclearTimeError, UnreadableRequestError
from toband.domain.identity import user_identity
from toband.domain.run_model import DeadLetter, DeadLetterState, Run, RunState
from toband.engine import errors
from toband.engine.hooks.hook_admin import InvalidHookError
from toband.ports import (
    ConflictError,
    DeadLetterClosedError,
    HookExistsError,
    JobInUseError,
    SecretNotGrantedError,
    TokenExistsError,
    WorkflowExistsError,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
RUN = Run(id="r", workflow="w", version=1, created_at=NOW, state=RunState.FAILED)
LETTER = DeadLetter(
    id="d",
    run_id="r",
    workflow="w",
    step="s",
    attempt_id="a",
    attempts=4,
    error="e",
    error_class=Class.FATAL,
    created_at=NOW,
    state=DeadLetterState.REQUEUED,
    requeued_as="r2",
)

CASES: list[tuple[Exception, str, str]] = [
    (TooManyCallsError("read", Limit(1, 2)), "RESOURCE_EXHAUSTED", "TOO_MANY_CALLS"),
    (TooManyCallsError("stream", Limit(1, 0)), "RESOURCE_EXHAUSTED", "TOO_MANY_STREAMS"),
    (errors.RateExceededError(500, 0.01), "RESOURCE_EXHAUSTED", "TOO_MANY_CALLS"),
    (errors.TooManyFailuresError(2.5), "RESOURCE_EXHAUSTED", "TOO_MANY_FAILURES"),
    (SlowClientError(30), "DEADLINE_EXCEEDED", "REQUEST_TOO_SLOW"),
    (UnreadableRequestError("why"), "INVALID_ARGUMENT", "UNREADABLE_REQUEST"),
    (errors.WorkflowNotFoundError("w"), "NOT_FOUND", "WORKFLOW_NOT_FOUND"),
    (errors.JobNotFoundError("j"), "NOT_FOUND", "JOB_NOT_FOUND"),
    (errors.VersionNotFoundError("w", 3), "NOT_FOUND", "VERSION_NOT_FOUND"),
    (errors.RunNotFoundError("r"), "NOT_FOUND", "RUN_NOT_FOUND"),
    (errors.NeverRunError("w"), "NOT_FOUND", "RUN_NOT_FOUND"),
    (errors.StepNotFoundError(RUN, "s"), "NOT_FOUND", "STEP_NOT_FOUND"),
    (errors.AttemptNotFoundError("a"), "NOT_FOUND", "PROCESS_EXECUTION_NOT_FOUND"),
    (errors.ArtifactNotFoundError("r", "s", "n"), "NOT_FOUND", "ARTIFACT_NOT_FOUND"),
    (errors.DeadLetterNotFoundError("d"), "NOT_FOUND", "DEAD_LETTER_NOT_FOUND"),
    (errors.EventNotFoundError("e"), "NOT_FOUND", "EVENT_NOT_FOUND"),
    (errors.EventSourceNotFoundError("r"), "NOT_FOUND", "EVENT_SOURCE_NOT_FOUND"),
    (errors.ScheduleNotFoundError("s"), "NOT_FOUND", "SCHEDULE_NOT_FOUND"),
    (errors.TimeNotUnderstoodError("what"), "INVALID_ARGUMENT", "TIME_NOT_UNDERSTOOD"),
    (UnclearTimeError("words", "why"), "INVALID_ARGUMENT", "TIME_NOT_UNDERSTOOD"),
    (errors.UnclearActionError("what"), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    (errors.LogExpiredError("a", "s"), "OUT_OF_RANGE", "LOG_EXPIRED"),
    (errors.BadPositionError("p"), "INVALID_ARGUMENT", "INVALID_POSITION"),
    (errors.InvalidDefinitionError([]), "INVALID_ARGUMENT", "INVALID_DEFINITION"),
    (errors.UnknownScopeError("w", "s", ["t"]), "INVALID_ARGUMENT", "UNKNOWN_SCOPE"),
    (errors.TooManyDueTimesError(5), "INVALID_ARGUMENT", "TOO_MANY_DUE_TIMES"),
    (errors.UnknownScheduleError("w", 3, 1), "INVALID_ARGUMENT", "UNKNOWN_SCHEDULE"),
    (errors.UnknownStepError("w", "s"), "INVALID_ARGUMENT", "UNKNOWN_STEP"),
    (errors.TooManyDefinitionsError(1000), "INVALID_ARGUMENT", "TOO_MANY_DEFINITIONS"),
    (errors.NothingToRunError("w", "only s"), "INVALID_ARGUMENT", "NOTHING_TO_RUN"),
    (errors.NotApproverError("s", user_identity(7, "me", None), ["you"]), "PERMISSION_DENIED", "NOT_AN_APPROVER"),
    *[(errors.InvalidCredentialError("why", each), "UNAUTHENTICATED", each.value) for each in errors.CredentialReason],
    *[(errors.NotPermittedError("why", each), "PERMISSION_DENIED", each.value) for each in errors.PermissionReason],
    (errors.TokenNotFoundError("ci"), "NOT_FOUND", "TOKEN_NOT_FOUND"),
    (errors.SessionNotFoundError("1f00"), "NOT_FOUND", "SESSION_NOT_FOUND"),
    (errors.UnknownOwnerError("socket:toban.sock"), "FAILED_PRECONDITION", "SESSION_OWNER_UNKNOWN"),
    (errors.SessionOfSessionError(), "FAILED_PRECONDITION", "SESSION_OF_SESSION"),
    (errors.TooManySessionsError(100, mine=True), "RESOURCE_EXHAUSTED", "TOO_MANY_SESSIONS"),
    (errors.ConfiguredTokenError("ci"), "FAILED_PRECONDITION", "TOKEN_IN_CONFIGURATION"),
    (errors.HookNotFoundError("deploy"), "NOT_FOUND", "HOOK_NOT_FOUND"),
    (HookExistsError("deploy"), "ALREADY_EXISTS", "HOOK_EXISTS"),
    (SecretNotGrantedError("key", "deploy"), "FAILED_PRECONDITION", "SECRET_NOT_GRANTED"),
    (InvalidHookError("params", "why"), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    (TokenExistsError("ci"), "ALREADY_EXISTS", "TOKEN_EXISTS"),
    (errors.RunTerminalError(RUN), "FAILED_PRECONDITION", "RUN_ALREADY_TERMINAL"),
    (errors.RunActiveError(RUN), "FAILED_PRECONDITION", "RUN_NOT_TERMINAL"),
    (errors.RunInUseError(RUN), "FAILED_PRECONDITION", "RUN_IN_USE"),
    (errors.RunPinnedError(RUN), "FAILED_PRECONDITION", "RUN_PINNED"),
    (errors.StepNotSkippableError("r", "s", "SUCCEEDED"), "FAILED_PRECONDITION", "STEP_NOT_SKIPPABLE"),
    (errors.NothingToRetryError("r"), "FAILED_PRECONDITION", "NOTHING_TO_RETRY"),
    (errors.NoPriorResultError("s"), "FAILED_PRECONDITION", "NO_PRIOR_RESULT"),
    (errors.NotWaitingError("r", "s"), "FAILED_PRECONDITION", "STEP_NOT_WAITING"),
    (errors.WorkflowRecursionError(["w", "w"]), "FAILED_PRECONDITION", "WORKFLOW_RECURSION"),
    (errors.OwnedByFileError("w", "/w.yaml"), "FAILED_PRECONDITION", "OWNED_BY_FILE"),
    (RenderError("cannot render"), "FAILED_PRECONDITION", "TEMPLATE_FAILED"),
    (errors.ZoneGoneError("w/0", "No/Where"), "FAILED_PRECONDITION", "TIME_ZONE_NOT_FOUND"),
    (DeadLetterClosedError(LETTER), "FAILED_PRECONDITION", "DEAD_LETTER_CLOSED"),
    (JobInUseError(["w"]), "FAILED_PRECONDITION", "JOB_IN_USE"),
    (WorkflowExistsError("w"), "ALREADY_EXISTS", "WORKFLOW_EXISTS"),
    (WorkflowExistsError("j", DefinitionKind.JOB), "ALREADY_EXISTS", "JOB_EXISTS"),
    (ConflictError("w"), "ABORTED", "CHANGED_MEANWHILE"),
    (errors.QueueFullError("w", 9), "RESOURCE_EXHAUSTED", "QUEUE_FULL"),
    (errors.StoppingError(), "UNAVAILABLE", "STOPPING"),
    (errors.RefusedError("do", "why", condition="c"), "UNAVAILABLE", "DAEMON_UNHEALTHY"),
    (
        errors.DiskFullError("do", "why", path="/", free=1, reserve=2),
        "RESOURCE_EXHAUSTED",
        "DISK_FULL",
    ),
    (KeyError("a bug"), "INTERNAL", "INTERNAL"),
]


@pytest.mark.parametrize(("error", "code", "reason"), CASES, ids=[type(error).__name__ for error, *_ in CASES])
def test_an_error_has_its_code_and_its_reason(error: Exception, code: str, reason: str) -> None:
    status = status_of(error)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == ("toban", reason)
    assert status.code == grpc.StatusCode[code].value[0]
    assert status.message


def test_every_refusal_of_the_engine_is_known() -> None:
    known = {type(error) for error, *_ in CASES}
    every = {errors.EngineError}
    for kind in list(every):
        every |= set(kind.__subclasses__())
    for kind in list(every):
        every |= set(kind.__subclasses__())
    assert every - {errors.EngineError} <= known
