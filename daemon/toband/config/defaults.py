"""Defaults that depend on the host."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from toband.config.value_checks import is_zone

SYSTEM_STATE_DIR = "/var/lib/toban"
SYSTEM_STEP_USER = "toban-step"


def default_state_dir(environment: Mapping[str, str]) -> str:
    if sys.platform == "win32":
        return os.path.join(environment.get("PROGRAMDATA", r"C:\ProgramData"), "Toban")
    if os.geteuid() == 0:
        return SYSTEM_STATE_DIR
    home = environment.get("HOME", os.path.expanduser("~"))
    return os.path.join(environment.get("XDG_STATE_HOME") or f"{home}/.local/state", "toban")


def host_timezone() -> str:
    """The host's time zone; UTC if it has no IANA name."""
    try:
        import tzlocal

        name = tzlocal.get_localzone_name()
    except (ImportError, ValueError, LookupError, OSError):
        # tzlocal is missing where only the client is installed; the client needs no default zone.
        return "UTC"
    return name if name and is_zone(name) else "UTC"


def default_listen(state_dir: str) -> list[str | dict[str, str]]:
    """A socket of the user who starts the daemon, who is its administrator.

    The daemon of the system has another one for the group `toban`. On Windows, where gRPC has no sockets, a free port.
    """
    if sys.platform == "win32":
        return ["127.0.0.1:0"]
    if os.geteuid() != 0 or state_dir != SYSTEM_STATE_DIR:
        return [f"unix://{state_dir}/toban.sock"]
    group = {"group": "toban"} if _group_exists("toban") else {}
    return [
        f"unix://{state_dir}/admin.sock",
        {"address": f"unix://{state_dir}/toban.sock", "role": "editor"} | group,
    ]


def default_step_user(state_dir: str) -> str:
    """The daemon of the system does not share its user with steps, where it was installed with a user for them."""
    if sys.platform == "win32" or state_dir != SYSTEM_STATE_DIR:
        return ""
    import pwd

    try:
        pwd.getpwnam(SYSTEM_STEP_USER)
    except KeyError:
        return ""
    return SYSTEM_STEP_USER


def _group_exists(name: str) -> bool:
    if sys.platform == "win32":
        return False
    import grp

    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True
