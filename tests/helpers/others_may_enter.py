"""Directories of tests, opened to other users of this machine."""

from __future__ import annotations

import stat
from pathlib import Path


def let_others_enter(path: Path) -> None:
    """Lets others read the directory, and walk to it.

    Only what is closed on the way is opened: the directories above belong to this machine, and keep their modes.
    """
    path.chmod(path.stat().st_mode | 0o055)
    for parent in path.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IXOTH:
            return
        parent.chmod(mode | 0o011)
