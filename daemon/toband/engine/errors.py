"""What the engine refuses, and why.

EngineError
├── WorkflowNotFoundError
├── VersionNotFoundError
├── InvalidDefinitionError    carries every problem
├── RunNotFoundError
├── NeverRunError
├── RunTerminalError          carries the run
├── StepNotFoundError
├── AttemptNotFoundError
├── BadPositionError
├── LogExpiredError
├── StoppingError
└── RefusedError              carries the condition that is to blame
    └── DiskFullError         carries what is full
"""

from __future__ import annotations

from collections.abc import Sequence

from toban.definition import Problem
from toband.domain.model import Run


class EngineError(Exception):
    pass


class WorkflowNotFoundError(EngineError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no workflow {name!r}")
        self.name = name


class VersionNotFoundError(EngineError):
    def __init__(self, name: str, version: int) -> None:
        super().__init__(f"workflow {name!r} has no version {version}")
        self.name, self.version = name, version


class InvalidDefinitionError(EngineError):
    def __init__(self, problems: Sequence[Problem]) -> None:
        count = len(problems)
        super().__init__(f"the definition has {count} problem{'s' if count != 1 else ''}")
        self.problems = problems


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


class StepNotFoundError(EngineError):
    def __init__(self, run_id: str, step: str) -> None:
        super().__init__(f"run {run_id} has no step {step!r}")
        self.run_id, self.step = run_id, step


class AttemptNotFoundError(EngineError):
    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"there is no process execution {attempt_id!r}")
        self.attempt_id = attempt_id


class BadPositionError(EngineError):
    def __init__(self, position: str) -> None:
        shown = position if len(position) <= 100 else position[:100] + "…"
        super().__init__(f"the position {shown!r} is not one that StreamLogs gave")


class LogExpiredError(EngineError):
    """The log that a position is of is not there any more, while its run is."""

    def __init__(self, attempt_id: str, step: str) -> None:
        super().__init__(f"the log of step {step!r} is gone; read again without a position")
        self.attempt_id, self.step = attempt_id, step


class StoppingError(EngineError):
    """The daemon stops: a stream is cut short and can be taken up again at the next one, or a run is not begun."""

    def __init__(
        self, text: str = "the daemon is stopping; take the stream up again where it broke off"
    ) -> None:
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
