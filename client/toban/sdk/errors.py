"""Errors of calls to the daemon.

TobanError
├── Unreachable           the daemon does not answer (UNAVAILABLE, DEADLINE_EXCEEDED, no socket found)
├── NotFound              no such workflow, job, version, run, artifact…; a log that has expired
├── Conflict              the object's state does not allow it (ALREADY_EXISTS, FAILED_PRECONDITION, ABORTED)
├── InvalidDefinition     the text of a definition is invalid; `problems` says where
├── InvalidArgument       another part of the request is invalid; `violations` lists the fields
├── Refused               the caller may not do this (PERMISSION_DENIED)
│   └── Unauthenticated   its credential is missing, unknown or has ended (UNAUTHENTICATED)
├── ResourceExhausted     the daemon accepts no more work now: disk, queue or limit
├── InternalError         a fault of the daemon, or a daemon that does not know this call
└── RunFailed             a run that was waited for with `check` did not succeed; `run` is that run

Each error carries the daemon's stable `reason` (such as `WORKFLOW_NOT_FOUND`) and its `metadata`; both are empty if the
error did not come from the daemon itself.
"""

# ruff: noqa: N818 - the names describe the failure; the suffix `Error` would add nothing
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import grpc
from google.protobuf import message
from google.rpc import error_details_pb2, status_pb2

from toban.v1 import workflow_pb2

if TYPE_CHECKING:
    from toban.sdk.run_facts import RunFacts

DETAILS_KEY: Final = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One wrong field of a request."""

    field: str
    description: str

    def __str__(self) -> str:
        return f"{self.field}: {self.description}" if self.field else self.description


class TobanError(Exception):
    """Any failure of a call; its text can be shown to a user."""

    def __init__(self, message: str, *, reason: str = "", metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        # The text alone, without the violations and problems that str() adds.
        self.message: Final = message
        self.reason: Final = reason
        self.metadata: Final = dict(metadata or {})


class Unreachable(TobanError):
    """The daemon does not answer. A later try may succeed."""


class NotFound(TobanError):
    """The requested object does not exist."""


class Conflict(TobanError):
    """The current state does not allow the call."""


class InvalidArgument(TobanError):
    """The request is invalid; repeating it does not help."""

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        violations: Iterable[Violation] = (),
    ) -> None:
        super().__init__(message, reason=reason, metadata=metadata)
        self.violations: Final = tuple(violations)

    def __str__(self) -> str:
        # The daemon's text often has the first of them already.
        return "\n".join(
            [self.message, *(f"  {each}" for each in self.violations if each.description not in self.message)]
        )


class InvalidDefinition(TobanError):
    """The text of a definition is invalid."""

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        problems: Iterable[workflow_pb2.DefinitionProblem] = (),
    ) -> None:
        super().__init__(message, reason=reason, metadata=metadata)
        self.problems: Final = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {problem_text(each)}" for each in self.problems)])


class Refused(TobanError):
    """The caller may not do this."""


class Unauthenticated(Refused):
    """The caller has no credential, or one that is unknown or has ended."""


class ResourceExhausted(TobanError):
    """The daemon accepts no more work now."""


class InternalError(TobanError):
    """A fault of the daemon, or a daemon that does not know this call."""


class RunFailed(TobanError):
    """A run that was waited for did not succeed."""

    def __init__(self, message: str, *, run: RunFacts) -> None:
        super().__init__(message)
        self.run: Final = run


def problem_text(problem: workflow_pb2.DefinitionProblem) -> str:
    """A problem on one line: where it is, and what is wrong."""
    place = f"{problem.file}:{problem.line}:{problem.column}".removeprefix(":")
    kind = "warning: " if problem.warning else ""
    path = f"{problem.path}: " if problem.path else ""
    return f"{place}: {kind}{path}{problem.message}"


_CLASSES: Final[Mapping[grpc.StatusCode, type[TobanError]]] = {
    grpc.StatusCode.UNAVAILABLE: Unreachable,
    grpc.StatusCode.DEADLINE_EXCEEDED: Unreachable,
    grpc.StatusCode.CANCELLED: Unreachable,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.OUT_OF_RANGE: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: Conflict,
    grpc.StatusCode.FAILED_PRECONDITION: Conflict,
    grpc.StatusCode.ABORTED: Conflict,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: Refused,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
}


@dataclass(slots=True)
class _Details:
    """The error details of one answer that this client knows."""

    reason: str = ""
    metadata: Mapping[str, str] | None = None
    violations: tuple[Violation, ...] = ()
    problems: tuple[workflow_pb2.DefinitionProblem, ...] | None = None


def from_rpc_error(error: grpc.aio.AioRpcError) -> TobanError:
    """The exception for a failed call."""
    code, text = error.code(), error.details() or ""
    details = _details(error)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        if details.problems is not None or details.reason == "INVALID_DEFINITION":
            return InvalidDefinition(
                text or "the definition is not valid",
                reason=details.reason,
                metadata=details.metadata,
                problems=details.problems or (),
            )
        return InvalidArgument(
            text or "the request is not valid",
            reason=details.reason,
            metadata=details.metadata,
            violations=details.violations,
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        text = f"the daemon does not know this call ({text}): it may be older than this client"
    kind = _CLASSES.get(code, InternalError)
    return kind(
        text or code.name.lower().replace("_", " "),
        reason=details.reason,
        metadata=details.metadata,
    )


def _details(error: grpc.aio.AioRpcError) -> _Details:
    found = _Details()
    for detail in _status(error).details:
        info = error_details_pb2.ErrorInfo()
        request = error_details_pb2.BadRequest()
        problems = workflow_pb2.DefinitionProblems()
        # A damaged or unknown detail must not hide the error that it came with.
        try:
            if detail.Unpack(info):
                found.reason, found.metadata = info.reason, dict(info.metadata)
            elif detail.Unpack(request):
                found.violations = tuple(
                    Violation(field=violation.field, description=violation.description)
                    for violation in request.field_violations
                )
            elif detail.Unpack(problems):
                found.problems = tuple(problems.problems)
        except message.DecodeError:
            continue
    return found


def _status(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    # The type stubs describe the metadata of the blocking API.
    metadata = dict(cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ()))
    value = metadata.get(DETAILS_KEY)
    try:
        return status_pb2.Status.FromString(value if isinstance(value, bytes) else b"")
    except message.DecodeError:
        return status_pb2.Status()
