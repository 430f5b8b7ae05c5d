"""From an attempt to a process: fills in templates, builds the environment, finds the workspace."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import toban.step
from toban.definition import RenderError, Scope, Step, references, render
from toband.domain.model import Attempt, Run, StepState, TreeCause
from toband.domain.plan import Plan
from toband.ports import Launch, LogKind, Logs, OutputTooLargeError

STDOUT_LIMIT = 64 * 1024
_RUNNER = str(Path(toban.step.__file__).with_name("runner.py"))
_WINDOWS = ("PATH", "PATHEXT", "SYSTEMROOT", "COMSPEC", "TEMP", "TMP", "USERPROFILE", "USERNAME")
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
    now: datetime,
) -> Launch:
    """Everything the shim needs. Raises RenderError with a reason for people; may read files."""
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
    env = _environment() | dict(rendered.env)
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
    argv = rendered.argv
    if rendered.call is not None:
        argv = (sys.executable, "-u", _RUNNER)
        env["TOBAN_CALL"] = json.dumps(rendered.call)
        env["TOBAN_RESULT"] = files.result(attempt)
    workspace = rendered.workspace or ""
    if not os.path.isabs(workspace):
        workspace = os.path.normpath(os.path.join(base_dir or files.work(run.id), workspace))
    timeout, cause = _timeout(run, step, now)
    return Launch(
        attempt=attempt,
        argv=argv,
        env=env,
        workspace=workspace,
        timeout=timeout,
        timeout_cause=cause,
        kill_grace=step.kill_grace,
    )


def _timeout(run: Run, step: Step, now: datetime) -> tuple[float | None, TreeCause]:
    """The nearer of the step's own timeout and the run's deadline; the shim keeps it while the daemon is down."""
    left = None
    if run.timeout is not None and run.started_at is not None:
        left = max(0.0, run.timeout - (now - run.started_at).total_seconds())
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


def _environment() -> dict[str, str]:
    """The documented minimum; the daemon's own environment is never passed on."""
    if sys.platform == "win32":
        return {name: os.environ[name] for name in _WINDOWS if name in os.environ}
    import pwd

    user = pwd.getpwuid(os.geteuid())
    return {
        "PATH": _PATH,
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
    }
