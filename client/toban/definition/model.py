"""A workflow as the daemon knows it: normalised, immutable, independent of how it was written.

Standard library only: the daemon loads stored workflows with `Workflow.from_dict` and needs neither
the YAML reader nor the expression compiler for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class ParamType(StrEnum):
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    MAPPING = "mapping"


class JobType(StrEnum):
    SHELL = "shell"
    EXEC = "exec"
    CMD = "cmd"
    POWERSHELL = "powershell"
    PYTHON = "python"


class FailurePolicy(StrEnum):
    ABORT = "abort"
    CONTINUE = "continue"


class Overlap(StrEnum):
    SKIP = "skip"
    ALLOW = "allow"


class OnLost(StrEnum):
    """What becomes of a step whose process vanished without a result."""

    FAIL = "fail"
    RERUN = "rerun"


DEFAULT_KILL_GRACE = 10.0
DEFAULT_SUCCESS_CODES = frozenset({0})


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One declared parameter of a workflow."""

    name: str
    type: ParamType
    default: Any = None
    has_default: bool = False
    required: bool = False
    choices: tuple[Any, ...] = ()
    description: str = ""

    @property
    def nullable(self) -> bool:
        """Whether a run may see null here: nothing demands a value and no default gives one."""
        return not self.required and self.default is None

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type.value,
            "default": self.default,
            "has_default": self.has_default,
            "required": self.required,
            "choices": list(self.choices),
            "description": self.description,
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Param:
        return Param(
            name=data["name"],
            type=ParamType(data["type"]),
            default=data["default"],
            has_default=data["has_default"],
            required=data["required"],
            choices=tuple(data["choices"]),
            description=data["description"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Limits of one attempt's process tree: bytes, cores, processes, niceness. None: no limit."""

    memory: int | None = None
    cpu: float | None = None
    pids: int | None = None
    nice: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Resources:
        return Resources(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long a workflow's runs are kept: seconds, a number of runs, bytes. None: as the daemon has it."""

    age: float | None = None
    runs: int | None = None
    bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Retention:
        return Retention(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step; `defaults` of the workflow are already merged in."""

    id: str
    name: str
    description: str = ""
    job_type: JobType
    target: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any]
    env: dict[str, str]
    workspace: str | None = None
    depends_on: tuple[str, ...] = ()
    timeout: float | None = None
    kill_grace: float = DEFAULT_KILL_GRACE
    success_codes: frozenset[int] = DEFAULT_SUCCESS_CODES
    on_failure: FailurePolicy = FailurePolicy.ABORT
    on_lost: OnLost = OnLost.FAIL
    user: str = ""
    resources: Resources | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "job_type": self.job_type.value,
            "target": self.target,
            "args": list(self.args),
            "kwargs": self.kwargs,
            "env": self.env,
            "workspace": self.workspace,
            "depends_on": list(self.depends_on),
            "timeout": self.timeout,
            "kill_grace": self.kill_grace,
            "success_codes": sorted(self.success_codes),
            "on_failure": self.on_failure.value,
            "on_lost": self.on_lost.value,
            "user": self.user,
            "resources": None if self.resources is None else self.resources.to_dict(),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Step:
        resources = data.get("resources")
        return Step(
            id=data["id"],
            name=data["name"],
            description=data["description"],
            job_type=JobType(data["job_type"]),
            target=data["target"],
            args=tuple(data["args"]),
            kwargs=data["kwargs"],
            env=data["env"],
            workspace=data["workspace"],
            depends_on=tuple(data["depends_on"]),
            timeout=data["timeout"],
            kill_grace=data["kill_grace"],
            success_codes=frozenset(data["success_codes"]),
            on_failure=FailurePolicy(data["on_failure"]),
            # What was stored before these fields existed does not have them.
            on_lost=OnLost(data.get("on_lost", OnLost.FAIL)),
            user=data.get("user", ""),
            resources=None if resources is None else Resources.from_dict(resources),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """One workflow; `steps` keeps the order of the file, `depends_on` says what really orders it."""

    name: str
    title: str
    version: str = "1"
    description: str = ""
    labels: dict[str, str]
    enabled: bool = True
    params: dict[str, Param]
    env: dict[str, str]
    timeout: float | None = None
    concurrency: int | None = None
    max_active_runs: int = 1
    overlap: Overlap = Overlap.SKIP
    priority: int = 0
    retention: Retention | None = None
    steps: dict[str, Step]

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; `from_dict` gives back an equal workflow."""
        return {
            "name": self.name,
            "title": self.title,
            "version": self.version,
            "description": self.description,
            "labels": self.labels,
            "enabled": self.enabled,
            "params": [param.to_dict() for param in self.params.values()],
            "env": self.env,
            "timeout": self.timeout,
            "concurrency": self.concurrency,
            "max_active_runs": self.max_active_runs,
            "overlap": self.overlap.value,
            "priority": self.priority,
            "retention": None if self.retention is None else self.retention.to_dict(),
            "steps": [step.to_dict() for step in self.steps.values()],
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Workflow:
        """The workflow that `to_dict` described; raises KeyError, TypeError or ValueError on anything else.

        Fields that older descriptions lack have their defaults.
        """
        retention = data.get("retention")
        params = [Param.from_dict(entry) for entry in data["params"]]
        steps = [Step.from_dict(entry) for entry in data["steps"]]
        return Workflow(
            name=data["name"],
            title=data["title"],
            version=data["version"],
            description=data["description"],
            labels=data["labels"],
            enabled=data["enabled"],
            params={param.name: param for param in params},
            env=data["env"],
            timeout=data["timeout"],
            concurrency=data["concurrency"],
            max_active_runs=data["max_active_runs"],
            overlap=Overlap(data["overlap"]),
            priority=data.get("priority", 0),
            retention=None if retention is None else Retention.from_dict(retention),
            steps={step.id: step for step in steps},
        )
