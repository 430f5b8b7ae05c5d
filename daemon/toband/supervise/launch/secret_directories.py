"""Where the secret files of attempts are, and the removal of what a killed supervisor left.

`STATE_DIR/runs/.secrets/TOKEN` is a link to the attempt's directory in memory (`/dev/shm`), or the directory itself
where there is no such file system. The link is created first, so that no directory is ever forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import Collection

from toband.domain.attempt_model import Attempt
from toband.supervise.files.file_user import owner_of
from toband.supervise.files.run_directories import remove_tree
from toband.supervise.files.run_files import RunFiles

MEMORY = "/dev/shm"  # noqa: S108 - names in it are random, and its entries belong to their owner
_PREFIX = "toban-"
_MOUNTS = "/proc/self/mounts"


class SecretDirectories:
    """Belongs to a running event loop."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._found: frozenset[str] = frozenset()

    def open(self) -> None:
        with contextlib.suppress(OSError):
            self._found = frozenset(os.listdir(self._files.secrets))

    def directory_for(self, attempt: Attempt) -> str:
        """The directory that the supervisor of the attempt is to create. Raises OSError."""
        path = self._files.secret_files(attempt)
        # Steps of other users pass through it, and cannot list it.
        os.makedirs(self._files.secrets, mode=0o711, exist_ok=True)
        if not _in_memory():
            return path
        with contextlib.suppress(FileNotFoundError):
            return os.readlink(path)
        directory = os.path.join(MEMORY, _PREFIX + secrets.token_hex(16))
        os.symlink(directory, path)
        return directory

    def settle(self, token: str) -> None:
        """The attempt has ended: removes what is left of its directory."""
        if os.path.lexists(os.path.join(self._files.secrets, token)):
            asyncio.get_running_loop().run_in_executor(None, self._remove, token)

    def settle_others(self, active: Collection[str]) -> None:
        """The same for all that were there at the start, but those of active attempts."""
        for token in self._found.difference(active):
            self.settle(token)
        self._found = frozenset()

    def _remove(self, token: str) -> None:
        """The next daemon removes what remains."""
        path = os.path.join(self._files.secrets, token)
        with contextlib.suppress(OSError):
            if not os.path.islink(path):
                _remove_directory(path)
                return
            directory = os.readlink(path)
            # A step of the daemon's own user can write anything into the link.
            parent, name = os.path.split(directory)
            if parent == MEMORY and name.startswith(_PREFIX):
                _remove_directory(directory)
            os.unlink(path)


def _remove_directory(path: str) -> None:
    """Raises OSError."""
    try:
        owner = owner_of(os.lstat(path).st_uid)
    except FileNotFoundError:
        return
    # With the rights of the step, to whom it belongs.
    with owner or contextlib.nullcontext():
        if os.path.islink(path):
            os.unlink(path)
        elif os.path.isdir(path):
            remove_tree(path)


def _in_memory() -> bool:
    """Whether the system has a file system in memory in which this process may create directories."""
    if sys.platform == "win32":
        return False
    with contextlib.suppress(OSError), open(_MOUNTS, encoding="utf-8", errors="replace") as file:
        mounted = [line.split()[2] for line in file if line.split()[1:2] == [MEMORY]]
        return mounted[-1:] == ["tmpfs"] and os.access(MEMORY, os.W_OK | os.X_OK)
    return False
