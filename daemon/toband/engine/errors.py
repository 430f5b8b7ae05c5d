"""What the engine refuses, and why.

EngineError
├── WorkflowNotFoundError
├── JobNotFoundError
├── VersionNotFoundError
├── InvalidDefinitionError    carries every problem
├── WorkflowRecursionError    carries the names on the way
├── OwnedByFileError          carries the path
├── UnknownScopeError
├── UnknownStepError          of a definition
├── NothingToRunError
├── NoPriorResultError
├── QueueFullError
├── RunNotFoundError
├── NeverRunError
├── RunTerminalError          carries the run
├── RunActiveError            carries the run
├── RunInUseError
├── NothingToRetryError
├── StepNotFoundError         of a run
├── NotWaitingError
├── NotApproverError
├── AttemptNotFoundError
├── ArtifactNotFoundError
├── DeadLetterNotFoundError
├── ZoneGoneError
├── BadPositionError
├── LogExpiredError
├── StoppingError
└── RefusedError              carries the condition that is to blame
    └── DiskFullError         carries what is full
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from toban.definition import Problem
from toband.domain.run_model import Run


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
        super().__init__(f"the definition has {count} problem{'s' if count != 1 else ''}")
        self.problems = problems


class WorkflowRecursionError(EngineError):
    """A workflow would start itself as a child. `path` begins and ends with its name."""

    def __init__(self, path: Sequence[str]) -> None:
        super().__init__(f"a workflow cannot be a child of itself: {' → '.join(path)}")
        self.path = tuple(path)


class OwnedByFileError(EngineError):
    """A definition file owns it: whatever is changed here, the file would change back."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(f"{name!r} is defined by the file {path}: change it there")
        self.name, self.path = name, path


class UnknownScopeError(EngineError):
    def __init__(self, workflow: str, scope: str, known: Collection[str] = ()) -> None:
        hint = f"; it has {', '.join(sorted(known))}" if known else ""
        super().__init__(f"workflow {workflow!r} has no scope {scope!r}{hint}")
        self.workflow, self.scope = workflow, scope


class UnknownStepError(EngineError):
    """The definition has no such step."""

    def __init__(self, workflow: str, step: str) -> None:
        super().__init__(f"workflow {workflow!r} has no step {step!r}")
        self.workflow, self.step = workflow, step


class NothingToRunError(EngineError):
    """No step is in all that was asked for at once."""

    def __init__(self, workflow: str, selection: str) -> None:
        super().__init__(f"no step of {workflow!r} is chosen by: {selection}")
        self.workflow = workflow


class NoPriorResultError(EngineError):
    """A step that is not to run has never succeeded where its result is looked for, and one that is to run needs it.

    `run_id` is the only run that was to be looked into; empty: any of the workflow.
    """

    def __init__(self, step: str, run_id: str = "") -> None:
        where = f"in run {run_id}" if run_id else "in any run that is kept"
        super().__init__(f"step {step!r} has no result {where}; let it run too")
        self.step, self.run_id = step, run_id


class QueueFullError(EngineError):
    def __init__(self, workflow: str, limit: int) -> None:
        super().__init__(f"{limit} runs of {workflow!r} wait already, no more may")
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
        super().__init__(f"the run has already ended: {run.state.value}")
        self.run = run


class RunActiveError(EngineError):
    """Only a run that has ended can be treated so."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"the run has not ended: {run.state.value}")
        self.run = run


class RunInUseError(EngineError):
    """An active run needs it."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"cannot delete run {run_id}: an active run reads its results, or started it and waits for it")
        self.run_id = run_id


class NothingToRetryError(EngineError):
    def __init__(self, run_id: str) -> None:
        super().__init__("every step of the run has succeeded; say which to repeat, or all")
        self.run_id = run_id


class StepNotFoundError(EngineError):
    def __init__(self, run_id: str, step: str) -> None:
        super().__init__(f"run {run_id} has no step {step!r}")
        self.run_id, self.step = run_id, step


class NotWaitingError(EngineError):
    """`state` is that of the step."""

    def __init__(self, run_id: str, step: str, state: str = "") -> None:
        shown = f": it is {state}" if state else ""
        super().__init__(f"step {step!r} does not wait for approval{shown}")
        self.run_id, self.step, self.state = run_id, step, state


class NotApproverError(EngineError):
    def __init__(self, step: str, caller: str, approvers: Sequence[str]) -> None:
        super().__init__(f"{caller} may not decide step {step!r}: {', '.join(approvers)} may")
        self.step, self.caller, self.approvers = step, caller, tuple(approvers)


class AttemptNotFoundError(EngineError):
    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"there is no process execution {attempt_id!r}")
        self.attempt_id = attempt_id


class ArtifactNotFoundError(EngineError):
    """`path` is empty unless the artifact is there and that file of it is not."""

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
        super().__init__(f"there is no event {event_id}; it may have been forgotten")
        self.event_id = event_id


class EventSourceNotFoundError(EngineError):
    """The attempt that is said to emit an event is none of the run."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"cannot take the event: no step of run {run_id} has that token")
        self.run_id = run_id


class ScheduleNotFoundError(EngineError):
    def __init__(self, schedule_id: str) -> None:
        super().__init__(f"there is no schedule {schedule_id} of a subject")
        self.schedule_id = schedule_id


class TimeNotUnderstoodError(EngineError):
    """Words that cannot be read as a time, or a time that is over. The text has examples of what can be."""


class UnclearActionError(EngineError):
    """What a schedule of a subject is to do is not said, or in two ways."""


class BadPositionError(EngineError):
    def __init__(self, position: str) -> None:
        shown = position if len(position) <= 100 else position[:100] + "…"
        super().__init__(f"the position {shown!r} is not one that StreamLogs gave")


class LogExpiredError(EngineError):
    """The log that a position is of is not there any more, while its run is."""

    def __init__(self, attempt_id: str, step: str) -> None:
        super().__init__(f"the log of step {step!r} is gone; read again without a position")
        self.attempt_id, self.step = attempt_id, step


class ZoneGoneError(EngineError):
    """A schedule lives in a time zone that this machine does not know, or not any more."""

    def __init__(self, schedule_id: str, zone: str) -> None:
        super().__init__(
            f'the time zone "{zone}" of schedule {schedule_id} is not in the time zone database of '
            "this machine; install a newer tzdata, or give the schedule another zone"
        )
        self.schedule_id, self.zone = schedule_id, zone


class StoppingError(EngineError):
    """The daemon stops: a stream is cut short and can be taken up again at the next one, or a run is not begun."""

    def __init__(self, text: str = "the daemon is stopping; take the stream up again where it broke off") -> None:
        super().__init__(text)


class RefusedError(EngineError):
    """Nothing new is taken in for now. It gets better by itself when what is wrong does."""

    def __init__(self, doing: str, why: str, *, condition: str) -> None:
        super().__init__(f"cannot {doing}: {why}")
        self.condition = condition


class DiskFullError(RefusedError):
    """`free` and `reserve` are bytes, or inodes where those are what is short."""

    def __init__(self, doing: str, why: str, *, path: str, free: int, reserve: int) -> None:
        super().__init__(doing, why, condition="disk")
        self.path, self.free, self.reserve = path, free, reserve
