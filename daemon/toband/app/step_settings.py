"""The settings of steps, as the engine needs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from toband.config import Config
from toband.engine.execution.step_rules import StepRules


def rules_of(config: Config, environment: Mapping[str, str]) -> StepRules:
    """`environment` is the daemon's, for the variables that steps inherit."""
    inherited = {name: environment[name] for name in config.step_inherit if name in environment}
    return StepRules(
        step_user=config.step_user,
        own_users=own_users(),
        users=config.step_users,
        shells=config.step_shells,
        workspaces=config.step_workspaces,
        environment_names=config.step_environment_names,
        environment_denied=config.step_environment_denied,
        environment=inherited | dict(config.step_environment),
        setuid_programs=config.step_sudo,
        default_shell=config.shell,
    )


if sys.platform == "win32":

    def own_users() -> frozenset[str]:
        return frozenset()

    def keep_capabilities() -> None:
        """Windows has none."""

    def step_user_problem(config: Config) -> str:
        """Why the configured user of steps cannot be used here; empty if it can."""
        return "step_user: Windows has no users of steps; remove it" if config.step_user else ""

else:
    import pwd

    from toband.supervise.launch.step_limits import own_names
    from toband.supervise.shim import privileges

    def own_users() -> frozenset[str]:
        """Name and number of the daemon's user."""
        return own_names()

    def keep_capabilities() -> None:
        """Before any thread begins: only the spawner gets them, and no other program that the daemon starts."""
        privileges.clear_ambient()

    def step_user_problem(config: Config) -> str:
        """Why the configured user of steps cannot be used here; empty if it can."""
        user = config.step_user
        if not user:
            return ""
        try:
            known = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
        except (KeyError, OverflowError):
            return f"step_user: there is no user {user} on this machine"
        if known.pw_uid in (0, os.geteuid()):
            why = "root" if known.pw_uid == 0 else "the daemon's own user"
            return f"step_user: {user} is {why}, which separates steps from nothing; name another user"
        if os.geteuid() != 0 and os.getegid() in os.getgrouplist(known.pw_name, known.pw_gid):
            return (
                f"step_user: {user} is a member of the daemon's group, which may open its files; remove it from there"
            )
        if missing := privileges.missing():
            return (
                f"step_user: the daemon cannot run steps as {user} without {', '.join(missing)}; "
                "start it with the systemd unit or as root, or remove step_user"
            )
        return ""
