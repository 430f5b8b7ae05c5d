"""A workflow as the daemon knows it: normalised, immutable, independent of how it was written.

Standard library only: the daemon loads stored workflows with `Workflow.from_dict` and needs neither
the YAML reader nor the expression compiler for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from toban.definition.model.event_triggers import EventTrigger, Watch
from toban.definition.model.grant import AuthorLimits, Grant
from toban.definition.model.step_model import EnvFile, Step
from toban.definition.timing.schedule_spec import Schedule


class ParamType(StrEnum):
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    MAPPING = "mapping"


class Overlap(StrEnum):
    """What happens to a further run while `max_active_runs` are active."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"
    ALLOW = "allow"


class DefinitionKind(StrEnum):
    """Kind of a definition. A job is stored and run as a workflow of one step with the job's name."""

    WORKFLOW = "workflow"
    JOB = "job"


EDITION = 1
"""The rules that definitions get when they are stored. 0, of versions stored earlier: `shell` steps ran without
`set -e`, and their `args` were positional parameters only."""
FULL_SCOPE = "full"
"""The scope that every workflow has: all of its steps."""
DEFAULT_FINALLY_TIMEOUT = 300.0


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
    secret: bool = False

    @property
    def nullable(self) -> bool:
        """Whether a run may see null here: the parameter is optional and has no default."""
        return not self.required and self.default is None

    def to_dict(self) -> dict[str, Any]:
        # Omitted by default, so that workflows stored before this field existed stay equal.
        secret = {"secret": True} if self.secret else {}
        return {
            **secret,
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
            secret=data.get("secret", False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long a workflow's runs are kept: seconds, a number of runs, bytes. None: the daemon's setting."""

    age: float | None = None
    runs: int | None = None
    bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Retention:
        return Retention(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """One workflow; `steps` keeps the order of the file, `depends_on` determines the order of execution.

    The steps of `finally` are the last of `steps`; `finally_timeout` is of all of them together.

    Each of `schedules` has its time zone, if it or the workflow names one; `timezone` is the workflow's own, empty
    for the daemon's, and so is `calendar`. `blackout` are windows as `parse_blackout` reads them. `triggers` are
    the events that start it, and `event_overlap` is the overlap policy of runs that events start: `overlap` if the
    file has one, else QUEUE, so that no event is dropped. `watch` are paths whose changes are events; relative ones
    are below the base directory. `grants` is what its steps may do beyond their own runs. `author_limits` are the
    workflows that its author may see, if these are not all: its steps start no others. `edition` selects the rules of
    its time, so that a stored version keeps its meaning.
    """

    name: str
    title: str
    kind: DefinitionKind = DefinitionKind.WORKFLOW
    version: str = "1"
    description: str = ""
    labels: dict[str, str]
    enabled: bool = True
    params: dict[str, Param]
    env: dict[str, str]
    env_files: tuple[EnvFile, ...] = ()
    timeout: float | None = None
    finally_timeout: float = DEFAULT_FINALLY_TIMEOUT
    concurrency: int | None = None
    max_active_runs: int = 1
    overlap: Overlap = Overlap.SKIP
    priority: int = 0
    retention: Retention | None = None
    context_dir: str = ""
    scopes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    schedules: tuple[Schedule, ...] = ()
    timezone: str = ""
    calendar: Mapping[str, Any] = field(default_factory=dict)
    blackout: tuple[str, ...] = ()
    triggers: tuple[EventTrigger, ...] = ()
    event_overlap: Overlap = Overlap.QUEUE
    watch: tuple[Watch, ...] = ()
    locks: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    author_limits: tuple[AuthorLimits, ...] = ()
    steps: dict[str, Step]
    edition: int = 0

    def errexit(self, step: Step) -> bool:
        """Whether a `shell` step of it ends at the first command that fails."""
        return self.edition >= 1 if step.errexit is None else step.errexit

    def to_dict(self) -> dict[str, Any]:
        """As JSON data; `from_dict` returns an equal workflow."""
        # Defaults are omitted, so that workflows stored before these fields existed stay equal.
        added: dict[str, Any] = {}
        if self.triggers:
            added["triggers"] = [trigger.to_dict() for trigger in self.triggers]
        if self.event_overlap is not Overlap.QUEUE:
            added["event_overlap"] = self.event_overlap.value
        if self.watch:
            added["watch"] = [watch.to_dict() for watch in self.watch]
        if self.locks:
            added["locks"] = list(self.locks)
        if self.grants:
            added["grants"] = [grant.to_dict() for grant in self.grants]
        if self.author_limits:
            added["author_limits"] = [limits.to_dict() for limits in self.author_limits]
        if self.calendar:
            added["calendar"] = dict(self.calendar)
        if self.edition:
            added["edition"] = self.edition
        if self.env_files:
            added["env_files"] = [file.to_dict() for file in self.env_files]
        if self.finally_timeout != DEFAULT_FINALLY_TIMEOUT:
            added["finally_timeout"] = self.finally_timeout
        return {
            "name": self.name,
            "title": self.title,
            "kind": self.kind.value,
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
            "context_dir": self.context_dir,
            "scopes": {name: list(steps) for name, steps in self.scopes.items()},
            "schedules": [schedule.to_dict() for schedule in self.schedules],
            "timezone": self.timezone,
            "blackout": list(self.blackout),
            **added,
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
            kind=DefinitionKind(data.get("kind", DefinitionKind.WORKFLOW)),
            version=data["version"],
            description=data["description"],
            labels=data["labels"],
            enabled=data["enabled"],
            params={param.name: param for param in params},
            env=data["env"],
            env_files=tuple(map(EnvFile.from_dict, data.get("env_files", ()))),
            timeout=data["timeout"],
            finally_timeout=data.get("finally_timeout", DEFAULT_FINALLY_TIMEOUT),
            concurrency=data["concurrency"],
            max_active_runs=data["max_active_runs"],
            overlap=Overlap(data["overlap"]),
            priority=data.get("priority", 0),
            retention=None if retention is None else Retention.from_dict(retention),
            context_dir=data.get("context_dir", ""),
            scopes={name: tuple(steps) for name, steps in data.get("scopes", {}).items()},
            schedules=tuple(map(Schedule.from_dict, data.get("schedules", ()))),
            timezone=data.get("timezone", ""),
            calendar=data.get("calendar", {}),
            blackout=tuple(data.get("blackout", ())),
            triggers=tuple(map(EventTrigger.from_dict, data.get("triggers", ()))),
            event_overlap=Overlap(data.get("event_overlap", Overlap.QUEUE)),
            watch=tuple(map(Watch.from_dict, data.get("watch", ()))),
            locks=tuple(data.get("locks", ())),
            grants=tuple(map(Grant.from_dict, data.get("grants", ()))),
            author_limits=tuple(map(AuthorLimits.from_dict, data.get("author_limits", ()))),
            steps={step.id: step for step in steps},
            edition=data.get("edition", 0),
        )
