"""States and kinds as enums with lower-case values, as `toban` shows them.

Each has the values of the protobuf enum of the same name. UNKNOWN is a value that a newer daemon sent and this client
does not know.
"""

from __future__ import annotations

from enum import StrEnum, auto
from typing import Any, TypeVar, cast

from toban.v1 import run_pb2


class RunState(StrEnum):
    """State of a run. A terminal state never changes."""

    UNKNOWN = auto()
    PENDING = auto()
    RUNNING = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    TIMED_OUT = auto()
    CANCELLED = auto()

    @property
    def terminal(self) -> bool:
        """Whether the run has ended."""
        return self in _ENDED_RUN


class StepState(StrEnum):
    """State of a step. A terminal state never changes."""

    UNKNOWN = auto()
    PENDING = auto()
    READY = auto()
    RUNNING = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    SKIPPED = auto()
    CANCELLED = auto()
    CHECKING = auto()
    INCOMPLETE = auto()

    @property
    def terminal(self) -> bool:
        """Whether the step has ended."""
        return self in _ENDED_STEP


class ProcessState(StrEnum):
    """State of a process."""

    UNKNOWN = auto()
    STARTING = auto()
    RUNNING = auto()
    COMPLETED = auto()
    FAILED = auto()
    TIMED_OUT = auto()
    CANCELLED = auto()
    LOST = auto()


class Trigger(StrEnum):
    """What started a run."""

    UNKNOWN = auto()
    API = auto()
    MANUAL = auto()
    RETRY = auto()
    PARENT = auto()
    SCHEDULE = auto()
    EVENT = auto()
    BACKFILL = auto()


class WaitingFor(StrEnum):
    """What a run or a step waits for."""

    UNKNOWN = auto()
    START = auto()
    QUEUE = auto()
    EVENT_SLOT = auto()
    PROCESSES = auto()
    RESUME = auto()
    SLOT = auto()
    BACKOFF = auto()
    APPROVAL = auto()
    INTERVAL = auto()
    LOCK = auto()
    TIME = auto()
    EVENT = auto()
    FILE = auto()


class SkipReason(StrEnum):
    """Why a step was skipped."""

    UNKNOWN = auto()
    WHEN = auto()
    EMPTY = auto()
    SCOPE = auto()
    UPSTREAM = auto()
    ABORTED = auto()
    CANCELLED = auto()
    TIMED_OUT = auto()
    REQUESTED = auto()


class ErrorClass(StrEnum):
    """Class of a failure: whether a retry may help."""

    UNKNOWN = auto()
    RETRYABLE_TRANSIENT = auto()
    RETRYABLE_RATE_LIMIT = auto()
    NON_RETRYABLE = auto()
    FATAL = auto()


class LogStream(StrEnum):
    """An output stream of a process; `system` has the notes of Toban about it."""

    UNKNOWN = auto()
    STDOUT = auto()
    STDERR = auto()
    SYSTEM = auto()


class LogLevel(StrEnum):
    """Importance of a line of the log."""

    UNKNOWN = auto()
    DEBUG = auto()
    INFO = auto()
    WARNING = auto()
    ERROR = auto()


_ENDED_RUN = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.TIMED_OUT, RunState.CANCELLED})
_ENDED_STEP = frozenset(
    {StepState.SUCCEEDED, StepState.FAILED, StepState.SKIPPED, StepState.CANCELLED, StepState.INCOMPLETE}
)

_Kind = TypeVar("_Kind", bound=StrEnum)

# The protobuf enum of each, and the prefix of its names.
_MESSAGES: dict[type[StrEnum], tuple[Any, str]] = {
    RunState: (run_pb2.RunState, "RUN_STATE_"),
    StepState: (run_pb2.StepState, "STEP_STATE_"),
    ProcessState: (run_pb2.ProcessState, "PROCESS_STATE_"),
    Trigger: (run_pb2.Trigger, "TRIGGER_"),
    WaitingFor: (run_pb2.WaitingFor, "WAITING_FOR_"),
    SkipReason: (run_pb2.SkipReason, "SKIP_REASON_"),
    ErrorClass: (run_pb2.ErrorClass, "ERROR_CLASS_"),
    LogStream: (run_pb2.LogStream, "LOG_STREAM_"),
    LogLevel: (run_pb2.LogLevel, "LOG_LEVEL_"),
}


def from_number(kind: type[_Kind], number: int) -> _Kind:
    """The member for a protobuf value."""
    return maybe_from_number(kind, number) or kind("unknown")


def maybe_from_number(kind: type[_Kind], number: int) -> _Kind | None:
    """The member for a protobuf value; None if it is unspecified."""
    if not number:
        return None
    numbers, prefix = _MESSAGES[kind]
    try:
        return kind(numbers.Name(number).removeprefix(prefix).lower())
    except ValueError:
        return kind("unknown")


def to_number(member: StrEnum) -> Any:
    """The protobuf value of a member. UNKNOWN is unspecified."""
    numbers, prefix = _MESSAGES[type(member)]
    name = "UNSPECIFIED" if member == "unknown" else member.name
    return cast("int", numbers.Value(f"{prefix}{name}"))
