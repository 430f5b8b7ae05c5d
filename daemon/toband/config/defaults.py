"""Defaults that depend on the host."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from toband.config.value_checks import is_zone


def default_state_dir(environment: Mapping[str, str]) -> str:
    if sys.platform == "win32":
        return os.path.join(environment.get("PROGRAMDATA", r"C:\ProgramData"), "Toban")
    if os.geteuid() == 0:
        return "/var/lib/toban"
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


def default_listen(state_dir: str) -> str:
    """A Unix socket protected by file permissions; on Windows, where gRPC has none, a free port."""
    return "127.0.0.1:0" if sys.platform == "win32" else f"unix://{state_dir}/toban.sock"
