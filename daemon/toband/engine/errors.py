"""Errors of the engine: why it refuses a request.

EngineError
├── WorkflowNotFoundError
├── JobNotFoundError
├── VersionNotFoundError
├── InvalidDefinitionError      has every problem
├── TooManyDueTimesError
├── UnknownScheduleError        of a definition
├── WorkflowRecursionError      has the names on the path
├── OwnedByFileError            has the path of the file
├── UnknownScopeError
├── UnknownStepError            of a definition
├── NothingToRunError
├── NoPriorResultError
├── QueueFullError
├── RunNotFoundError
├── NeverRunError
├── RunTerminalError            has the run
├── RunActiveError              has the run
├── RunInUseError
├── RunPinnedError
├── NothingToRetryError
├── StepNotFoundError           of a run
├── NotWaitingError
├── NotApproverError
├── AttemptNotFoundError
├── ArtifactNotFoundError
├── DeadLetterNotFoundError
├── EventNotFoundError
├── EventSourceNotFoundError
├── ScheduleNotFoundError
├── TimeNotUnderstoodError
├── UnclearActionError
├── BadPositionError
├── LogExpiredError
├── ZoneGoneError
├── InvalidCredentialError      has its reason
├── NotPermittedError           has its reason
├── TokenNotFoundError
├── ConfiguredTokenError
├── SessionNotFoundError
├── UnknownOwnerError
├── SessionOfSessionError
├── TooManySessionsError
├── HookNotFoundError
├── TooManyFailuresError        says when to try again
├── RateExceededError           says when to try again
├── StoppingError
└── RefusedError                has the health condition that is the cause
    └── DiskFullError           has the path and the free space
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from enum import StrEnum

from toban.definition import ParamError, Problem
from toband.domain.identity import Identity, IdentityKind
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.run_model import Run
from toband.domain.run_texts import state_text


class EngineError(Exception):
    pass


class WorkflowNotFoundError(EngineError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no workflow {name!r}")
        self.name = name


class JobNotFoundError(EngineError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no job {name!r}")
        self.name = name


class VersionNotFoundError(EngineError):
    def __init__(self, name: str, version: int) -> None:
        super().__init__(f"{name!r} has no version {version}")
        self.name, self.version = name, version


class InvalidDefinitionError(EngineError):
    def __init__(self, problems: Sequence[Problem]) -> None:
        count = len(problems)
        super().__init__(f"invalid definition: {count} problem{'s' if count != 1 else ''}")
        self.problems = problems


class TooManyDefinitionsError(EngineError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"cannot apply more than {limit:,} definitions in one call: split them into several calls")
        self.limit = limit


class TooManyDueTimesError(EngineError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"the interval has more than {limit:,} due times: choose a shorter one, or a single schedule")
        self.limit = limit


class UnknownScheduleError(EngineError):
    def __init__(self, workflow: str, index: int, count: int) -> None:
        known = "none" if not count else "0" if count == 1 else f"0 to {count - 1}"
        super().__init__(f"{workflow!r} has no schedule {index} (known: {known})")
        self.workflow, self.index = workflow, index


class WorkflowRecursionError(EngineError):
    """A workflow would start itself as a child. `path` begins and ends with its name."""

    def __init__(self, path: Sequence[str]) -> None:
        super().__init__(f"a workflow cannot be a child of itself: {' → '.join(path)}")
        self.path = tuple(path)


class OwnedByFileError(EngineError):
    """A definition file owns it and would overwrite the change."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(f"{name!r} is defined by the file {path}: change it there")
        self.name, self.path = name, path


class UnknownScopeError(EngineError):
    def __init__(self, workflow: str, scope: str, known: Collection[str] = ()) -> None:
        hint = f" (known: {', '.join(sorted(known))})" if known else ""
        super().__init__(f"workflow {workflow!r} has no scope {scope!r}{hint}")
        self.workflow, self.scope = workflow, scope


class UnknownStepError(EngineError):
    """The definition has no such step."""

    def __init__(self, workflow: str, step: str) -> None:
        of, bracket, _ = step.partition("[")
        hint = f": write {of}, not one of its instances" if bracket and step.endswith("]") else ""
        super().__init__(f"workflow {workflow!r} has no step {step!r}{hint}")
        self.workflow, self.step = workflow, step


class NothingToRunError(EngineError):
    """The scope, the chosen steps and the first steps of a run have no step in common."""

    def __init__(self, workflow: str, selection: str) -> None:
        super().__init__(f"no step of workflow {workflow!r} matches the selection: {selection}")
        self.workflow = workflow


class NoPriorResultError(EngineError):
    """A chosen step needs the result of a step that is not chosen and has never succeeded.

    `run` was to provide the result; None: any run of the workflow.
    """

    def __init__(self, step: str, run: Run | None = None) -> None:
        where = f"in run {run.name}" if run is not None else "in any stored run"
        super().__init__(f"step {step!r} has no result {where}; select it too")
        self.step, self.run_id = step, run.id if run is not None else ""


class QueueFullError(EngineError):
    def __init__(self, workflow: str, limit: int) -> None:
        super().__init__(f"the queue of workflow {workflow!r} is full: {limit} runs are waiting")
        self.workflow, self.limit = workflow, limit


class RunNotFoundError(EngineError):
    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id!r}")
        self.run_id = run_id


class NeverRunError(EngineError):
    def __init__(self, workflow: str) -> None:
        super().__init__(f"workflow {workflow!r} has never run")
        self.workflow = workflow


class RunTerminalError(EngineError):
    def __init__(self, run: Run) -> None:
        super().__init__(f"run {run.name} has already ended: {state_text(run.state)}")
        self.run = run


class RunActiveError(EngineError):
    """The call needs a run that has ended."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"run {run.name} has not ended: {state_text(run.state)}")
        self.run = run


class RunInUseError(EngineError):
    """An active run needs it."""

    def __init__(self, run: Run) -> None:
        super().__init__(
            f"cannot delete run {run.name}: an active run reads its results, or started it and waits for it"
        )
        self.run = run


class RunPinnedError(EngineError):
    def __init__(self, run: Run) -> None:
        super().__init__(f"cannot delete run {run.name}: it is pinned; unpin it first")
        self.run = run


class NothingToRetryError(EngineError):
    def __init__(self, run_id: str) -> None:
        super().__init__("nothing to retry: every step of the run succeeded; name the steps to repeat, or repeat all")
        self.run_id = run_id


class StepNotSkippableError(EngineError):
    """`state` is the state of the step."""

    def __init__(self, run_id: str, step: str, state: str, *, is_finally: bool = False) -> None:
        why = f"it is {state}; only a step that failed or was cancelled can be"
        if is_finally:
            why = "every retry runs all finally steps again"
        super().__init__(f"cannot skip step {step!r}: {why}")
        self.run_id, self.step, self.state = run_id, step, state


class StepNotFoundError(EngineError):
    def __init__(self, run: Run, step: str) -> None:
        super().__init__(f"run {run.name} has no step {step!r}")
        self.run_id, self.step = run.id, step


class NotWaitingError(EngineError):
    """`state` is the state of the step."""

    def __init__(self, run_id: str, step: str, state: str = "") -> None:
        shown = f": it is {state}" if state else ""
        super().__init__(f"step {step!r} is not waiting for approval{shown}")
        self.run_id, self.step, self.state = run_id, step, state


class NotApproverError(EngineError):
    def __init__(self, step: str, caller: Identity, approvers: Sequence[str]) -> None:
        who = caller.name
        if caller.kind is IdentityKind.SOCKET:
            who = f"{who}, which says nothing about who calls,"
        elif caller.role is not None:
            who = f"{who} with the role {caller.role.label}"
        super().__init__(f"{who} cannot decide step {step!r}: its approvers are {', '.join(approvers)}")
        self.step, self.caller, self.approvers = step, caller.name, tuple(approvers)


class AttemptNotFoundError(EngineError):
    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"there is no process execution {attempt_id!r}")
        self.attempt_id = attempt_id


class ArtifactNotFoundError(EngineError):
    """`path` is set if the artifact exists, but not that file of it."""

    def __init__(self, run_id: str, step: str, name: str, path: str = "") -> None:
        what = f"file {path!r} in artifact {name!r}" if path else f"artifact {name!r}"
        super().__init__(f"step {step!r} has no {what}")
        self.run_id, self.step, self.name, self.path = run_id, step, name, path


class DeadLetterNotFoundError(EngineError):
    def __init__(self, letter_id: str) -> None:
        super().__init__(f"there is no dead letter {letter_id!r}")
        self.letter_id = letter_id


class EventNotFoundError(EngineError):
    def __init__(self, event_id: str) -> None:
        super().__init__(f"there is no event {event_id}; old events are deleted")
        self.event_id = event_id


class EventSourceNotFoundError(EngineError):
    """An event claims to come from an attempt that the run does not have."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"cannot accept the event: no step of run {run_id} has this token")
        self.run_id = run_id


class ScheduleNotFoundError(EngineError):
    def __init__(self, schedule_id: str) -> None:
        super().__init__(f"there is no schedule {schedule_id}")
        self.schedule_id = schedule_id


class TimeNotUnderstoodError(EngineError):
    """A phrase that is not a time, or a time in the past. The text has examples."""


class UnclearActionError(EngineError):
    """The action of a schedule is missing or given twice."""


class BadPositionError(EngineError):
    def __init__(self, position: str) -> None:
        shown = position if len(position) <= 100 else position[:100] + "…"
        super().__init__(f"invalid position {shown!r}: use a position that the same call returned")


class LogExpiredError(EngineError):
    """The log of a position was deleted; its run still exists."""

    def __init__(self, attempt_id: str, step: str) -> None:
        super().__init__(f"the log of step {step!r} was deleted; read again without a position")
        self.attempt_id, self.step = attempt_id, step


class ZoneGoneError(EngineError):
    """This machine does not know the time zone of a schedule."""

    def __init__(self, schedule_id: str, zone: str) -> None:
        super().__init__(
            f'the time zone "{zone}" of schedule {schedule_id} is not in the time zone database of this machine; '
            "install a newer tzdata, or give the schedule another zone"
        )
        self.schedule_id, self.zone = schedule_id, zone


class CredentialReason(StrEnum):
    """Why the identity of a call could not be established."""

    REQUIRED = "CREDENTIAL_REQUIRED"
    INVALID = "CREDENTIAL_INVALID"
    EXPIRED = "CREDENTIAL_EXPIRED"
    REVOKED = "CREDENTIAL_REVOKED"
    STEP_ENDED = "STEP_ENDED"


class PermissionReason(StrEnum):
    """Why an identity may not make a call."""

    ROLE = "ROLE_REQUIRED"
    WORKFLOW = "WORKFLOW_NOT_PERMITTED"
    STEP = "STEP_NOT_PERMITTED"


class InvalidCredentialError(EngineError):
    """The caller must present another credential. The text reveals nothing to an outsider.

    `detail` is for the audit log alone.
    """

    def __init__(self, text: str, reason: CredentialReason, *, detail: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        self.detail = detail


class NotPermittedError(EngineError):
    """The identity of the call may not make it."""

    def __init__(self, text: str, reason: PermissionReason) -> None:
        super().__init__(text)
        self.reason = reason


class TokenNotFoundError(EngineError):
    def __init__(self, token: str) -> None:
        super().__init__(f"there is no token {token!r}, or it was revoked before")
        self.token = token


class ConfiguredTokenError(EngineError):
    def __init__(self, token: str) -> None:
        super().__init__(f"token {token!r} is defined by the configuration: remove it there, and restart the daemon")
        self.token = token


class SessionNotFoundError(EngineError):
    def __init__(self, session: str) -> None:
        super().__init__(f"there is no session {session!r}, or it has ended")
        self.session = session


class UnknownOwnerError(EngineError):
    """A session is requested by a caller of whom only the socket is known."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a session needs an owner, and of {name} only the socket is known: log in, or use a token")


class SessionOfSessionError(EngineError):
    """A session is requested with a session: it could be renewed for ever."""

    def __init__(self) -> None:
        super().__init__("a session cannot create another one: log in again, or use a token")


class TooManySessionsError(EngineError):
    """`limit` sessions are valid."""

    def __init__(self, limit: int, *, mine: bool) -> None:
        whose = "of this identity " if mine else ""
        super().__init__(f"{limit} sessions {whose}are valid; revoke some: `toban sessions revoke`")
        self.limit = limit


class HookNotFoundError(EngineError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no hook {name!r}: create it with 'toban hooks create {name}'")
        self.name = name


class TooManyFailuresError(EngineError):
    """Too many invalid credentials came from the source of the call. `wait` in seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"too many invalid credentials came from this address: try again in {math.ceil(wait)} s")
        self.wait = wait


class RateExceededError(EngineError):
    """The identity makes more than `rate` calls per second. `wait` in seconds."""

    def __init__(self, rate: float, wait: float) -> None:
        super().__init__(f"this identity makes more than {rate:g} calls per second; try again later")
        self.rate, self.wait = rate, wait


class StoppingError(EngineError):
    """The daemon is stopping: it ends streams, which the next daemon continues, and starts no runs."""

    def __init__(self, text: str = "the daemon is stopping; resume the stream after its restart") -> None:
        super().__init__(text)


class RefusedError(EngineError):
    """The daemon accepts nothing new until a health condition recovers."""

    def __init__(self, doing: str, why: str, *, condition: str) -> None:
        super().__init__(f"cannot {doing}: {why}")
        self.condition = condition


class DiskFullError(RefusedError):
    """`free` and `reserve` are bytes, or inodes if those run out."""

    def __init__(self, doing: str, why: str, *, path: str, free: int, reserve: int) -> None:
        super().__init__(doing, why, condition="disk")
        self.path, self.free, self.reserve = path, free, reserve


def not_started(error: EngineError | ParamError) -> NotStarted:
    """Why a schedule or an event did not start a run."""
    match error:
        case ParamError():
            reason = NotStartedReason.INVALID_PARAMS
        case WorkflowNotFoundError():
            reason = NotStartedReason.DELETED
        case QueueFullError():
            reason = NotStartedReason.QUEUE_FULL
        case DiskFullError():
            reason = NotStartedReason.DISK_FULL
        case RefusedError():
            reason = NotStartedReason.UNHEALTHY
        case _:
            reason = NotStartedReason.OTHER
    return NotStarted(reason, str(error))
