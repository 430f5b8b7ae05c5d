"""Turns an attempt into a launch: fills in templates, builds the environment, finds the workspace."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import toban.step
from toban.definition import JobType, Rendered, RenderError, Step, references, render, secret_references
from toband.domain.attempt_model import Attempt, TreeCause
from toband.domain.plan import Plan
from toband.domain.run_model import Run
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.engine.execution.secret_material import with_placeholders, without_secrets
from toband.engine.execution.step_rules import NO_RULES, StepRules
from toband.engine.execution.template_scope import TemplateScope
from toband.ports import ArtifactError, Launch, SecretMaterial

_RUNNER = str(Path(toban.step.__file__).with_name("runner.py"))
# Isolated from the step: no module in its directory, and no setting of its interpreter, affects it.
_CLI = json.dumps([sys.executable, "-E", "-P", "-X", "utf8", "-m", "toban.cli"])
_WINDOWS = (
    "PATH",
    "PATHEXT",
    "COMSPEC",
    "SYSTEMROOT",
    "SYSTEMDRIVE",
    "WINDIR",
    "TEMP",
    "TMP",
    "USERPROFILE",
    "USERNAME",
    "USERDOMAIN",
    "COMPUTERNAME",
    "HOMEDRIVE",
    "HOMEPATH",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "PROGRAMFILES(X86)",
    "COMMONPROGRAMFILES",
    "ALLUSERSPROFILE",
    "PUBLIC",
    "NUMBER_OF_PROCESSORS",
    "PROCESSOR_ARCHITECTURE",
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Files(Protocol):
    """Paths of a run's files."""

    def run(self, run_id: str) -> str: ...
    def work(self, run_id: str) -> str: ...
    def context(self, run_id: str) -> str: ...
    def params(self, run_id: str) -> str: ...
    def event(self, run_id: str) -> str: ...
    def output(self, attempt: Attempt) -> str: ...
    def result(self, attempt: Attempt) -> str: ...
    def refusal(self, run_id: str, path: str, *, stores: bool = False) -> str: ...
    def resolved(self, path: str) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLeft:
    """Seconds until the run's timeout, and until that of the whole loop, if they have one.

    For a `finally` step, `run` is the timeout of all `finally` steps.
    """

    run: float | None = None
    loop: float | None = None


@dataclass(slots=True, kw_only=True)
class LaunchBuilder:
    """Turns attempts into launches. May read files, in the caller's thread.

    A reload of the configuration replaces `rules` and `log_limit`, for launches that are built afterwards.
    """

    files: Files
    seen: TemplateScope
    evaluation: ExpressionEvaluator
    server: str
    tools: str = ""
    """A directory with `toban` in it, last in the PATH of steps."""
    log_limit: int | None = None
    rules: StepRules = NO_RULES
    steps_server: str = ""
    """Where steps of other users reach the daemon; empty: where all others do."""

    def build(
        self,
        plan: Plan,
        run: Run,
        attempt: Attempt,
        rendered: Rendered,
        *,
        base_dir: str,
        left: TimeLeft,
        secrets: SecretMaterial | None = None,
    ) -> Launch:
        """Everything the shim needs. Raises RenderError with a reason for people."""
        step = plan.definition(attempt.step)
        user = self.rules.user_of(step)
        workspace = self.workspace(run, rendered, base_dir)
        if reason := self._refusal(step, rendered, run, workspace):
            raise RenderError(f"cannot start step {step.id}: {reason}")
        env = {**_environment(step, user), **self.rules.environment}
        if self.tools:
            env["PATH"] = os.pathsep.join(filter(None, (env.get("PATH"), self.tools)))
        replaced = env.keys() - rendered.env.keys()
        env |= dict(rendered.env) if secrets is None else without_secrets(rendered.env)
        env |= {
            "TOBAN_RUN_ID": run.id,
            "TOBAN_WORKFLOW": run.workflow,
            "TOBAN_STEP": attempt.owner,
            "TOBAN_ATTEMPT": str(attempt.number),
            "TOBAN_ATTEMPT_TOKEN": attempt.token,
            "TOBAN_OUTPUT": self.files.output(attempt),
            "TOBAN_CONTEXT_DIR": self.context(plan, run.id, base_dir),
            "TOBAN_PARAMS": self.files.params(run.id),
            "TOBAN_SERVER": (user and self.steps_server) or self.server,
            "TOBAN_CLI": _CLI,
        }
        if run.event is not None:
            env["TOBAN_EVENT"] = self.files.event(run.id)
        owner = plan.step(attempt.owner)
        if owner.completion_check is not None:
            env["TOBAN_ITERATION"] = str(attempt.iteration)
        if owner.inputs:
            env["TOBAN_INPUTS"] = json.dumps({i.artifact: i.path for i in owner.inputs})
        argv = _command(step, rendered.argv, env)
        if rendered.call is not None:
            argv = (_interpreter(step, env), "-u", _RUNNER)
            env["TOBAN_CALL"] = json.dumps(rendered.call)
            env["TOBAN_RESULT"] = self.files.result(attempt)
        timeout, cause = _timeout(step, left, finally_step=owner.is_finally)
        return Launch(
            attempt=attempt,
            argv=argv,
            env=env,
            stdin=rendered.stdin if secrets is None or secrets.stdin is None else None,
            secrets=secrets,
            env_files=self._env_files(plan, run, step, base_dir),
            env_replaced=replaced,
            env_allowed=self.rules.environment_names,
            env_denied=self.rules.environment_denied,
            workspace=workspace,
            timeout=timeout,
            timeout_cause=cause,
            idle_timeout=step.idle_timeout,
            kill_grace=step.kill_grace,
            user=user,
            setuid_programs=self.rules.setuid_programs,
            no_new_privileges=step.no_new_privileges,
            apart=bool(self.rules.step_user),
            sandbox=step.sandbox,
            resources=step.resources,
            command=rendered.command,
            title=f"{run.name} {attempt.step}",
            log_limit=self.log_limit,
        )

    def _refusal(self, step: Step, rendered: Rendered, run: Run, workspace: str) -> str:
        """Why the configuration does not allow the step as it is."""
        own = True
        if self.rules.workspaces is not None:
            workspace = self.files.resolved(workspace)
            own = f"{workspace}/".startswith(f"{os.path.realpath(self.files.run(run.id))}/")
        return self.rules.launch_refusal(step, rendered.env, own, workspace)

    def _env_files(self, plan: Plan, run: Run, step: Step, base_dir: str) -> tuple[tuple[str, bool], ...]:
        """Those of the workflow, then those of the step."""
        base = base_dir or self.files.work(run.id)
        files = (*plan.workflow.env_files, *step.env_files)
        return tuple((os.path.normpath(os.path.join(base, file.path)), file.optional) for file in files)

    async def rendered(
        self, plan: Plan, run: Run, attempt: Attempt, *, base_dir: str, cheap_only: bool = False
    ) -> Rendered:
        """The step with its templates filled in. Raises RenderError, OSError, and CostlyError with `cheap_only`."""
        step = plan.definition(attempt.step)
        scope = await self.seen.scope(plan, run, run.steps[attempt.owner], references(step), base_dir=base_dir)
        scope = with_placeholders(scope, secret_references(plan.workflow, step))
        if cheap_only:
            return render(plan.workflow, step, scope, cheap_only=True)
        return await self.evaluation.render(plan.workflow, step, scope, run_id=run.id)

    def workspace(self, run: Run, rendered: Rendered, base_dir: str) -> str:
        """Raises RenderError if no step of the run may work there."""
        workspace = rendered.workspace or ""
        if not os.path.isabs(workspace):
            inner = os.path.join(base_dir or self.files.work(run.id), workspace)
            workspace = os.path.normpath(inner)
        if reason := self.files.refusal(run.id, workspace):
            raise RenderError(f"cannot use the workspace {workspace}: {reason}")
        return workspace

    def checked_context(self, plan: Plan, run_id: str, base_dir: str) -> str:
        """The context directory, if the run may store artifacts there. Raises ArtifactError."""
        context = self.context(plan, run_id, base_dir)
        if plan.workflow.context_dir:
            reason = self.files.refusal(run_id, context, stores=True)
            own = f"{context}/".startswith(f"{self.files.run(run_id)}/")
            if reason := reason or ("" if own else self.rules.context_refusal(self.files.resolved(context))):
                raise ArtifactError(f"cannot keep artifacts in {context}: {reason}")
        return context

    def context(self, plan: Plan, run_id: str, base_dir: str) -> str:
        """The directory for the artifacts of a run."""
        chosen = plan.workflow.context_dir
        if not chosen:
            return self.files.context(run_id)
        return os.path.normpath(os.path.join(base_dir or self.files.run(run_id), chosen))


def _command(step: Step, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[str, ...]:
    """The rendered command, with the program that this machine has for it. Raises RenderError if it has none."""
    if sys.platform == "win32":
        return argv
    if step.job_type is JobType.CMD:
        raise RenderError(f"cannot start step {step.id}: cmd steps run on Windows only; use job_type: shell")
    if step.job_type is JobType.SHELL and not os.path.isabs(argv[0]):
        program = shutil.which(argv[0], path=env["PATH"])
        if program is None:
            raise RenderError(
                f"cannot start step {step.id}: there is no {argv[0]} in {env['PATH']}; "
                "install it, or give the path of one as shell"
            )
        return (program, *argv[1:])
    if step.job_type is JobType.POWERSHELL:
        program = shutil.which("pwsh", path=env["PATH"])
        if program is None:
            raise RenderError(
                f"cannot start step {step.id}: there is no pwsh in {env['PATH']}; "
                "install PowerShell, or set PATH in the step's env to where it is"
            )
        return (program, *argv[1:])
    return argv


def _interpreter(step: Step, env: Mapping[str, str]) -> str:
    """The daemon's own interpreter, or the one that the step names. Raises RenderError."""
    if not step.python:
        return sys.executable
    found = shutil.which(step.python, path=env.get("PATH", ""))
    if found is None:
        raise RenderError(
            f"cannot start step {step.id}: there is no interpreter {step.python}; "
            "give the path of one, or a name that is in the step's PATH"
        )
    return found


def _timeout(step: Step, left: TimeLeft, *, finally_step: bool) -> tuple[float | None, TreeCause]:
    """The earliest of the timeouts of the attempt, the loop and the run; the shim enforces it without the daemon."""
    own = step.timeout if left.loop is None or step.completion_check is None else None
    near: list[tuple[float, TreeCause]] = []
    if own is not None:
        near.append((own, TreeCause.TIMEOUT))
    if left.loop is not None:
        near.append((left.loop, TreeCause.LOOP_TIMEOUT))
    if left.run is not None:
        near.append((left.run, TreeCause.FINALLY_TIMEOUT if finally_step else TreeCause.RUN_TIMEOUT))
    return min(near, key=lambda limit: limit[0]) if near else (None, TreeCause.TIMEOUT)


def _environment(step: Step, user: str) -> dict[str, str]:
    """The documented minimum; the daemon's own environment is never passed on. Raises RenderError, OSError."""
    if sys.platform == "win32":
        # Like LANG on other systems: Python writes UTF-8 to the log.
        found = {name: os.environ[name] for name in _WINDOWS if name in os.environ}
        return found | {"PYTHONUTF8": "1"}
    import pwd

    try:
        if user and not user.isdecimal():
            known = pwd.getpwnam(user)
        else:
            known = pwd.getpwuid(int(user) if user else os.geteuid())
    except KeyError:
        # Without a free descriptor every user is unknown: then this fails, and says so.
        os.close(os.open(os.devnull, os.O_RDONLY))
        raise RenderError(
            f"cannot start step {step.id}: there is no user {user or os.geteuid()} on this machine"
        ) from None
    return {
        "PATH": _PATH,
        "HOME": known.pw_dir,
        "USER": known.pw_name,
        "LOGNAME": known.pw_name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
    }


def call_params(rendered: Rendered) -> dict[str, Any]:
    """The parameters of a child run."""
    assert rendered.call is not None
    return dict(rendered.call["kwargs"])
