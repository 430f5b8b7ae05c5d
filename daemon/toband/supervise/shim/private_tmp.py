"""The directory for temporary files of one sandboxed step: made before it starts, gone with its processes.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("Windows has no sandbox")

import os
from typing import Any

from toband.supervise.shim import acl, privileges

VARIABLES = ("TMPDIR", "TMP", "TEMP")


def make(boot: dict[str, Any], path: str, uid: int | None) -> None:
    """Makes it, for that user if not for this process, and names it in the environment. Raises OSError."""
    if not os.path.isdir(path):  # it is there already if the start of the step is repeated
        os.mkdir(path, 0o700)
    if uid is not None:
        acl.allow(path, uid, acl.READ | acl.WRITE | acl.PASS)
    boot["env"] |= dict.fromkeys(VARIABLES, path)


def remove(boot: dict[str, Any]) -> None:
    """Removes it, with the rights of the step's user. What cannot be removed goes with the run."""
    limits = boot.get("limits") or {}
    path = (limits.get("sandbox") or {}).get("tmp")
    if not path or not os.path.isdir(path):
        return
    import shutil

    if "user" not in limits or os.geteuid() == 0:
        shutil.rmtree(path, ignore_errors=True)
        return
    pid = os.fork()
    if pid == 0:
        try:
            owner = _owner_inside(path)
            if owner is not None:
                privileges.become(*owner, [])
                for name in os.listdir(path):
                    inner = os.path.join(path, name)
                    shutil.rmtree(inner, ignore_errors=True)
                    if os.path.lexists(inner):
                        os.unlink(inner)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    shutil.rmtree(path, ignore_errors=True)


def _owner_inside(path: str) -> tuple[int, int] | None:
    """User and group of something that was left in it; None if nothing was, or by root."""
    with os.scandir(path) as entries:
        found = (each.stat(follow_symlinks=False) for each in entries)
        return next(((facts.st_uid, facts.st_gid) for facts in found if facts.st_uid), None)
