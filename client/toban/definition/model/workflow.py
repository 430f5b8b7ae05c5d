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
from toban.definition.model.wait_spec import Wait
from toban.definition.timing.schedule_spec import Schedule


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
    WORKFLOW = "workflow"
    APPROVAL = "approval"
    WAIT = "wait"

    @property
    def process(self) -> bool:
        """Whether it starts a process."""
        return self not in (JobType.WORKFLOW, JobType.APPROVAL, JobType.WAIT)


class FailurePolicy(StrEnum):
    """The effect of a failed step on its run; RETRY retries and then follows `on_failure_exhausted`."""

    ABORT = "abort"
    CONTINUE = "continue"
    SKIP = "skip"
    RETRY = "retry"


class ErrorClass(StrEnum):
    """How a failure may be treated."""

    RETRYABLE_TRANSIENT = "RETRYABLE_TRANSIENT"
    RETRYABLE_RATE_LIMIT = "RETRYABLE_RATE_LIMIT"
    NON_RETRYABLE = "NON_RETRYABLE"
    FATAL = "FATAL"


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


class OnLost(StrEnum):
    """What happens to a step whose process vanished without a result."""

    FAIL = "fail"
    RERUN = "rerun"


EDITION = 1
"""The rules that definitions get when they are stored. 0, of versions stored earlier: `shell` steps ran without
`set -e`, and their `args` were positional parameters only."""
FULL_SCOPE = "full"
"""The scope that every workflow has: all of its steps."""
DEFAULT_KILL_GRACE = 10.0
DEFAULT_FINALLY_TIMEOUT = 300.0
DEFAULT_SUCCESS_CODES = frozenset({0})
DEFAULT_RETRIES = 3
"""The `max_retries` of `on_failure: retry` without its own."""
RETRYABLE = frozenset({ErrorClass.RETRYABLE_TRANSIENT, ErrorClass.RETRYABLE_RATE_LIMIT})


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
class StepSandbox:
    """What a step may reach. Beyond the system's programs, its own directories and these paths it reaches no files."""

    network: bool = True
    read_only: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    private_tmp: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "network": self.network,
            "read_only": list(self.read_only),
            "writable": list(self.writable),
            "private_tmp": self.private_tmp,
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> StepSandbox:
        return StepSandbox(
            network=data["network"],
            read_only=tuple(data["read_only"]),
            writable=tuple(data["writable"]),
            private_tmp=data["private_tmp"],
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
class Retry:
    """Delays between retries, and which failures are retried.

    The n-th delay is `delay * backoff ** (n - 1)`, at most `max_delay`, plus or minus the share `jitter` of it. A
    failure is retried if its class is one of `classes`, or its exit code one of `codes`; never if it is NON_RETRYABLE
    or FATAL.
    """

    delay: float = 1.0
    backoff: float = 2.0
    max_delay: float = 300.0
    jitter: float = 0.2
    classes: frozenset[ErrorClass] = RETRYABLE
    codes: frozenset[int] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        return {
            "delay": self.delay,
            "backoff": self.backoff,
            "max_delay": self.max_delay,
            "jitter": self.jitter,
            "classes": sorted(self.classes),
            "codes": sorted(self.codes),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Retry:
        return Retry(
            delay=data["delay"],
            backoff=data["backoff"],
            max_delay=data["max_delay"],
            jitter=data["jitter"],
            classes=frozenset(map(ErrorClass, data["classes"])),
            codes=frozenset(data["codes"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFile:
    """A file with environment variables; without `optional` it must exist when a step starts."""

    path: str
    optional: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> EnvFile:
        return EnvFile(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An artifact of an earlier step (`from` in the file) that appears in the workspace under `path` (`as`)."""

    step: str
    artifact: str
    path: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Input:
        return Input(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """An artifact collected from the workspace after success: a file, a directory or a glob."""

    name: str
    path: str
    type: str = ""
    optional: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Output:
        return Output(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step; `defaults` of the workflow and the fields of its job are already merged in.

    `completion_check` is a separate step, with the id `<id>.check`, the same workspace, user and interpreter, and the
    timeout of one check. `shell` is empty for sh; `errexit` is None if the edition of the workflow decides. `for_each`
    is an expression, a list, or a mapping of names to expressions or lists. `stop_when_unchanged` is a path, or
    `output`. `wait` is what a `wait` step waits for. The target of a `workflow` step is the name of the child.
    `is_finally`: it runs when all steps that are not have ended, whatever happened.
    """

    id: str
    name: str
    description: str = ""
    job: str = ""
    job_type: JobType
    target: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any]
    env: dict[str, str]
    env_files: tuple[EnvFile, ...] = ()
    stdin: str | None = None
    secret_files: dict[str, str] = field(default_factory=dict)
    shell: str = ""
    errexit: bool | None = None
    python: str = ""
    workspace: str | None = None
    depends_on: tuple[str, ...] = ()
    when: str = ""
    for_each: Any = None
    max_parallel: int | None = None
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    timeout: float | None = None
    idle_timeout: float | None = None
    kill_grace: float = DEFAULT_KILL_GRACE
    success_codes: frozenset[int] = DEFAULT_SUCCESS_CODES
    max_retries: int = 0
    retry: Retry = Retry()
    on_failure: FailurePolicy = FailurePolicy.ABORT
    on_failure_exhausted: FailurePolicy = FailurePolicy.ABORT
    error_classes: Mapping[int, ErrorClass] = field(default_factory=dict)
    completion_check: Step | None = None
    max_iterations: int = 1
    interval: float = 0.0
    on_iterations_exhausted: FailurePolicy = FailurePolicy.ABORT
    stop_when_unchanged: str = ""
    wait: Wait | None = None
    approvers: tuple[str, ...] = ()
    on_lost: OnLost = OnLost.FAIL
    user: str = ""
    resources: Resources | None = None
    no_new_privileges: bool = False
    sandbox: StepSandbox | None = None
    is_finally: bool = False
    locks: tuple[str, ...] = ()

    @property
    def final_policy(self) -> FailurePolicy:
        """Effect of a failure once no retries are left: ABORT, CONTINUE or SKIP."""
        if self.on_failure is FailurePolicy.RETRY:
            return self.on_failure_exhausted
        return self.on_failure

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, without defaults."""
        check = self.completion_check
        described = {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "job": self.job,
            "job_type": self.job_type.value,
            "target": self.target,
            "args": list(self.args),
            "kwargs": self.kwargs,
            "env": self.env,
            "env_files": [file.to_dict() for file in self.env_files],
            "stdin": self.stdin,
            "secret_files": self.secret_files,
            "shell": self.shell,
            "errexit": self.errexit,
            "python": self.python,
            "workspace": self.workspace,
            "depends_on": list(self.depends_on),
            "when": self.when,
            "for_each": self.for_each,
            "max_parallel": self.max_parallel,
            "inputs": [entry.to_dict() for entry in self.inputs],
            "outputs": [entry.to_dict() for entry in self.outputs],
            "timeout": self.timeout,
            "idle_timeout": self.idle_timeout,
            "kill_grace": self.kill_grace,
            "success_codes": sorted(self.success_codes),
            "max_retries": self.max_retries,
            "retry": None if self.retry == Retry() else self.retry.to_dict(),
            "on_failure": self.on_failure.value,
            "on_failure_exhausted": self.on_failure_exhausted.value,
            "error_classes": {str(code): kind.value for code, kind in self.error_classes.items()},
            "completion_check": None if check is None else check.to_dict(),
            "max_iterations": self.max_iterations,
            "interval": self.interval,
            "on_iterations_exhausted": self.on_iterations_exhausted.value,
            "stop_when_unchanged": self.stop_when_unchanged,
            "wait": None if self.wait is None else self.wait.to_dict(),
            "approvers": list(self.approvers),
            "on_lost": self.on_lost.value,
            "user": self.user,
            "resources": None if self.resources is None else self.resources.to_dict(),
            "no_new_privileges": self.no_new_privileges,
            "sandbox": None if self.sandbox is None else self.sandbox.to_dict(),
            "is_finally": self.is_finally,
            "locks": list(self.locks),
        }
        return {name: value for name, value in described.items() if value != _STEP_DEFAULTS.get(name, _NONE)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Step:
        """Missing fields get their defaults, such as those added since the workflow was stored."""
        data = {**_STEP_DEFAULTS, **data}
        resources, retry, check = data["resources"], data["retry"], data["completion_check"]
        wait, sandbox = data["wait"], data["sandbox"]
        return Step(
            id=data["id"],
            name=data["name"],
            description=data["description"],
            job=data["job"],
            job_type=JobType(data["job_type"]),
            target=data["target"],
            args=tuple(data["args"]),
            kwargs=data["kwargs"],
            env=data["env"],
            env_files=tuple(map(EnvFile.from_dict, data["env_files"])),
            stdin=data["stdin"],
            secret_files=data["secret_files"],
            shell=data["shell"],
            errexit=data["errexit"],
            python=data["python"],
            workspace=data["workspace"],
            depends_on=tuple(data["depends_on"]),
            when=data["when"],
            for_each=data["for_each"],
            max_parallel=data["max_parallel"],
            inputs=tuple(map(Input.from_dict, data["inputs"])),
            outputs=tuple(map(Output.from_dict, data["outputs"])),
            timeout=data["timeout"],
            idle_timeout=data["idle_timeout"],
            kill_grace=data["kill_grace"],
            success_codes=frozenset(data["success_codes"]),
            max_retries=data["max_retries"],
            retry=Retry() if retry is None else Retry.from_dict(retry),
            on_failure=FailurePolicy(data["on_failure"]),
            on_failure_exhausted=FailurePolicy(data["on_failure_exhausted"]),
            error_classes={int(code): ErrorClass(kind) for code, kind in data["error_classes"].items()},
            completion_check=None if check is None else Step.from_dict(check),
            max_iterations=data["max_iterations"],
            interval=data["interval"],
            on_iterations_exhausted=FailurePolicy(data["on_iterations_exhausted"]),
            stop_when_unchanged=data["stop_when_unchanged"],
            wait=None if wait is None else Wait.from_dict(wait),
            approvers=tuple(data["approvers"]),
            on_lost=OnLost(data["on_lost"]),
            user=data["user"],
            resources=None if resources is None else Resources.from_dict(resources),
            no_new_privileges=data["no_new_privileges"],
            sandbox=None if sandbox is None else StepSandbox.from_dict(sandbox),
            is_finally=data["is_finally"],
            locks=tuple(data["locks"]),
        )


_NONE = object()
_STEP_DEFAULTS: Mapping[str, Any] = {
    "description": "",
    "job": "",
    "args": [],
    "kwargs": {},
    "env": {},
    "env_files": [],
    "stdin": None,
    "secret_files": {},
    "shell": "",
    "errexit": None,
    "python": "",
    "workspace": None,
    "depends_on": [],
    "when": "",
    "for_each": None,
    "max_parallel": None,
    "inputs": [],
    "outputs": [],
    "timeout": None,
    "idle_timeout": None,
    "kill_grace": DEFAULT_KILL_GRACE,
    "success_codes": [0],
    "max_retries": 0,
    "retry": None,
    "on_failure": FailurePolicy.ABORT.value,
    "on_failure_exhausted": FailurePolicy.ABORT.value,
    "error_classes": {},
    "completion_check": None,
    "max_iterations": 1,
    "interval": 0.0,
    "on_iterations_exhausted": FailurePolicy.ABORT.value,
    "stop_when_unchanged": "",
    "wait": None,
    "approvers": [],
    "on_lost": OnLost.FAIL.value,
    "user": "",
    "resources": None,
    "no_new_privileges": False,
    "sandbox": None,
    "is_finally": False,
    "locks": [],
}


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
