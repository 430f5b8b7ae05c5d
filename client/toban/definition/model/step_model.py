"""A step of a workflow: what it runs, with which files and limits, and what happens when it fails.

Standard library only, like `workflow`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from toban.definition.model.wait_spec import Wait


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


class OnLost(StrEnum):
    """What happens to a step whose process vanished without a result."""

    FAIL = "fail"
    RERUN = "rerun"


DEFAULT_KILL_GRACE = 10.0


DEFAULT_SUCCESS_CODES = frozenset({0})


DEFAULT_RETRIES = 3
"""The `max_retries` of `on_failure: retry` without its own."""


RETRYABLE = frozenset({ErrorClass.RETRYABLE_TRANSIENT, ErrorClass.RETRYABLE_RATE_LIMIT})


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
