"""From an attempt to a process: fills in templates, builds the environment, finds the workspace."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import toban.step
from toban.definition import JobType, RenderError, Scope, Step, references, render
from toband.domain.model import Attempt, Run, StepState, TreeCause
from toband.domain.plan import Plan
from toband.ports import Launch, LogKind, Logs, OutputTooLargeError

STDOUT_LIMIT = 64 * 1024
_RUNNER = str(Path(toban.step.__file__).with_name("runner.py"))
_WINDOWS = (
    "PATH", "PATHEXT", "COMSPEC", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "TEMP", "TMP", "USERPROFILE", "USERNAME",
    "USERDOMAIN", "COMPUTERNAME", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES",
    "PROGRAMFILES(X86)", "COMMONPROGRAMFILES", "ALLUSERSPROFILE", "PUBLIC", "NUMBER_OF_PROCESSORS",
    "PROCESSOR_ARCHITECTURE",
)  # fmt: skip
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Files(Protocol):
    """Where a run's things are."""

    def work(self, run_id: str) -> str: ...
    def context(self, run_id: str) -> str: ...
    def params(self, run_id: str) -> str: ...
    def output(self, attempt: Attempt) -> str: ...
    def result(self, attempt: Attempt) -> str: ...


def build(
    plan: Plan,
    run: Run,
    attempt: Attempt,
    *,
    base_dir: str,
    files: Files,
    logs: Logs,
    server: str,
    left: float | None,
    log_limit: int | None = None,
) -> Launch:
    """Everything the shim needs; `left` is the time to the run's timeout. Raises RenderError with a reason for people.

    May read files.
    """
    step = plan.steps[attempt.step]
    scope = Scope(
        params=dict(run.params),
        run={
            "id": run.id,
            "workflow": run.workflow,
            "number": run.number,
            "trigger": run.trigger.value.lower(),
        },
        env=plan.workflow.env,
        steps=_earlier(run, step, logs),
    )
    rendered = render(plan.workflow, step, scope)
    env = _environment(step) | dict(rendered.env)
    env |= {
        "TOBAN_RUN_ID": run.id,
        "TOBAN_WORKFLOW": run.workflow,
        "TOBAN_STEP": step.id,
        "TOBAN_ATTEMPT": str(attempt.number),
        "TOBAN_ATTEMPT_TOKEN": attempt.token,
        "TOBAN_OUTPUT": files.output(attempt),
        "TOBAN_CONTEXT_DIR": files.context(run.id),
        "TOBAN_PARAMS": files.params(run.id),
        "TOBAN_SERVER": server,
    }
    argv = _command(step, rendered.argv, env)
    if rendered.call is not None:
        argv = (sys.executable, "-u", _RUNNER)
        env["TOBAN_CALL"] = json.dumps(rendered.call)
        env["TOBAN_RESULT"] = files.result(attempt)
    workspace = rendered.workspace or ""
    if not os.path.isabs(workspace):
        workspace = os.path.normpath(os.path.join(base_dir or files.work(run.id), workspace))
    timeout, cause = _timeout(step, left)
    return Launch(
        attempt=attempt,
        argv=argv,
        env=env,
        workspace=workspace,
        timeout=timeout,
        timeout_cause=cause,
        kill_grace=step.kill_grace,
        user=step.user,
        resources=step.resources,
        log_limit=log_limit,
    )


def _command(step: Step, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[str, ...]:
    """What was rendered, with what this machine has for it. Raises RenderError if it has nothing."""
    if sys.platform == "win32":
        return argv
    if step.job_type is JobType.CMD:
        raise RenderError(
            f"cannot start step {step.id}: cmd steps run on Windows only; use job_type: shell"
        )
    if step.job_type is JobType.POWERSHELL:
        program = shutil.which("pwsh", path=env["PATH"])
        if program is None:
            raise RenderError(
                f"cannot start step {step.id}: there is no pwsh in {env['PATH']}; "
                "install PowerShell, or set PATH in the step's env to where it is"
            )
        return (program, *argv[1:])
    return argv


def _timeout(step: Step, left: float | None) -> tuple[float | None, TreeCause]:
    """The nearer of the step's own timeout and the run's deadline; the shim keeps it while the daemon is down."""
    if left is not None and (step.timeout is None or left < step.timeout):
        return left, TreeCause.RUN_TIMEOUT
    return step.timeout, TreeCause.TIMEOUT


def _earlier(run: Run, step: Step, logs: Logs) -> dict[str, dict[str, Any]]:
    """What the step's templates use of the steps before it, and nothing else."""
    return {
        name: {field: _field(run, name, field, logs) for field in fields}
        for name, fields in references(step).items()
    }


def _field(run: Run, name: str, field: str, logs: Logs) -> Any:
    step = run.steps[name]
    match field:
        case "stdout" | "stderr":
            if step.attempt is None:
                return ""
            try:
                kind = LogKind.STDOUT if field == "stdout" else LogKind.STDERR
                printed = logs.printed(step.attempt, kind, STDOUT_LIMIT)
            except OutputTooLargeError as error:
                raise RenderError(
                    f"cannot use steps.{name}.{field}: it is larger than {STDOUT_LIMIT // 1024} KiB; "
                    "write it to a file and pass the path instead"
                ) from error
            return printed.decode(errors="replace").removesuffix("\n")
        case "exit_code":
            return step.exit_code if step.exit_code is not None else -1
        case "status":
            return step.state.value if step.state is not StepState.PENDING else ""
        case "result":
            return step.result
        case "outputs":
            return dict(step.outputs)
        case _:
            raise RenderError(f"cannot use steps.{name}.{field}: there is no such field")


def _environment(step: Step) -> dict[str, str]:
    """The documented minimum; the daemon's own environment is never passed on. Raises RenderError, OSError."""
    if sys.platform == "win32":
        # As LANG is elsewhere: what Python prints into a log is UTF-8.
        found = {name: os.environ[name] for name in _WINDOWS if name in os.environ}
        return found | {"PYTHONUTF8": "1"}
    import pwd

    try:
        if step.user and not step.user.isdecimal():
            user = pwd.getpwnam(step.user)
        else:
            user = pwd.getpwuid(int(step.user) if step.user else os.geteuid())
    except KeyError:
        # Without a free descriptor everybody is unknown: then this fails, and says so.
        os.close(os.open(os.devnull, os.O_RDONLY))
        raise RenderError(
            f"cannot start step {step.id}: there is no user {step.user or os.geteuid()} "
            "on this machine"
        ) from None
    return {
        "PATH": _PATH,
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
    }
