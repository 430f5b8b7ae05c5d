"""What the configuration lets definitions choose for their steps: users, shells, directories and environment.

Checked when a definition is stored, and again when a step starts: the definition may be older than the configuration.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from toban.definition import JobType, Step, Workflow
from toban.definition.scripts.shells import DEFAULT_SHELL

_ROOT = "0"
_HINT = "an administrator can add it to `{}` in the daemon's configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRules:
    """Patterns such as `www-*`; None: no limit. Authors of definitions cannot change them."""

    step_user: str = ""
    """The user of steps that name none; empty: the daemon's."""
    own_users: frozenset[str] = frozenset()
    """Name and number of the daemon's own user."""
    users: Sequence[str] | None = None
    shells: Sequence[str] | None = None
    workspaces: Sequence[str] | None = None
    environment_names: Sequence[str] | None = None
    environment_denied: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that every step gets; those of its definition win."""
    setuid_programs: bool = False
    default_shell: str = DEFAULT_SHELL

    def user_of(self, step: Step) -> str:
        return step.user or self.step_user

    def problems(self, workflow: Workflow, base_dir: str) -> Iterator[tuple[str, str]]:
        """What the definition may not choose: the paths of its fields, with the reason."""
        for name in workflow.env:
            if reason := self.name_refusal(name):
                yield f"env.{name}", reason
        if workflow.context_dir and (reason := self.context_refusal(os.path.join(base_dir, workflow.context_dir))):
            yield "context_dir", reason
        for step in workflow.steps.values():
            if not step.job_type.process:
                continue
            for path, reason in self._step_problems(step, base_dir):
                yield f"steps.{step.id}.{path}", reason

    def _step_problems(self, step: Step, base_dir: str) -> Iterator[tuple[str, str]]:
        if step.user and (reason := self.user_refusal(step.user)):
            yield "user", reason
        workspace = os.path.join(base_dir, step.workspace or "")
        if "{{" not in workspace and (reason := self._place_refusal(workspace)):
            yield "workspace", reason
        for prefix, each in (("", step), ("completion_check.", step.completion_check)):
            if each is None:
                continue
            if reason := self.shell_refusal(each):
                yield f"{prefix}shell", reason
            for name in each.env:
                if reason := self.name_refusal(name):
                    yield f"{prefix}env.{name}", reason

    def launch_refusal(self, step: Step, env: Mapping[str, str], own: bool, workspace: str) -> str:
        """Why a step cannot start as it is; empty if it can. `workspace` is resolved; `own`: it is the run's own."""
        names = (self.name_refusal(name) for name in env)
        return (
            (self.user_refusal(step.user) if step.user else "")
            or self.shell_refusal(step)
            or next(filter(None, names), "")
            or ("" if own else self._place_refusal(workspace))
        )

    def user_refusal(self, user: str) -> str:
        known = _names_of(user)
        if self.step_user and known & (self.own_users - {_ROOT, "root"}):
            return f"no step runs as {user}, the daemon's own user"
        allowed = self.users
        if allowed is None:
            if not self.step_user or known & _names_of(self.step_user):
                return ""
            allowed = (self.step_user,)
        if _ROOT in known or "root" in known:
            fits = bool(known & set(allowed))
        else:
            fits = self.step_user in known or any(fnmatchcase(name, each) for name in known for each in allowed)
        return "" if fits else f"steps may not run as {user}; {_HINT.format('steps.users')}"

    def shell_refusal(self, step: Step) -> str:
        shell = step.shell or DEFAULT_SHELL
        if step.job_type is not JobType.SHELL or self.shells is None or shell == self.default_shell:
            return ""
        if any(fnmatchcase(shell, each) for each in self.shells):
            return ""
        return f"the shell {shell} is not allowed; {_HINT.format('steps.shells')}"

    def name_refusal(self, name: str) -> str:
        """Of a variable in a definition."""
        allowed = self.environment_names
        fits = allowed is None or any(fnmatchcase(name, each) for each in allowed)
        if fits and not any(fnmatchcase(name, each) for each in self.environment_denied):
            return ""
        key = "steps.environment_names" if not fits else "steps.environment_denied"
        return f"the variable {name} may not be set: `{key}` in the daemon's configuration does not allow it"

    def context_refusal(self, path: str) -> str:
        """Of a directory for artifacts, which the daemon writes with its own rights, and not with those of a step."""
        if self.step_user and self.workspaces is None and os.path.isabs(path):
            return f"artifacts are written to {path} as the daemon; {_HINT.format('steps.workspaces')}"
        return self._place_refusal(path)

    def _place_refusal(self, path: str) -> str:
        """Of an absolute path; a relative one is in the run's own directory."""
        if self.workspaces is None or not os.path.isabs(path):
            return ""
        path = os.path.normpath(path)
        if any(fnmatchcase(path, each) for each in self.workspaces):
            return ""
        return f"no step may work in {path}; {_HINT.format('steps.workspaces')}"


NO_RULES = StepRules()
"""Everything is allowed, and steps run as the daemon's user."""


def _names_of(user: str) -> frozenset[str]:
    """The name and the number of a user; what is written, if the machine does not know it."""
    if sys.platform == "win32":
        return frozenset({user})
    import pwd

    try:
        found = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        return frozenset({user})
    return frozenset({found.pw_name, str(found.pw_uid)})
