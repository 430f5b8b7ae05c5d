"""Writes the small metadata files of a run and its steps, with as few system calls as possible.

Steps of other users may write to the context directory. So no link is followed on the way, and a daemon that starts
such steps writes only to its own directories.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from toband.supervise.files.safe_directory import NEW, clean

if sys.platform != "win32":
    from toband.supervise.shim.privileges import separates_users
    from toband.supervise.shim.trusted_path import open_directory

if sys.platform == "win32":

    def note(context: str, name: str, facts: Mapping[str, Any]) -> None:
        """See `ports.Artifacts`."""
        data = _text(facts)
        *folders, last = clean(name).split("/")
        folder = os.path.join(context, *folders)
        os.makedirs(folder, exist_ok=True)
        new = os.path.join(folder, f"{NEW}{last}")
        with open(new, "wb") as file:
            file.write(data)
        os.replace(new, os.path.join(folder, last))

else:

    def note(context: str, name: str, facts: Mapping[str, Any]) -> None:
        """See `ports.Artifacts`."""
        data = _text(facts)
        *folders, last = clean(name).split("/")
        at, _ = open_directory(context, make=True)
        try:
            for folder in folders:
                inner = _own_folder(folder, at, context)
                os.close(at)
                at = inner
            _write(at, last, data)
        finally:
            os.close(at)

    def _own_folder(name: str, at: int, context: str) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=at)
        fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
        owner = os.fstat(fd).st_uid
        if owner != os.geteuid() and separates_users():
            os.close(fd)
            raise PermissionError(errno.EPERM, f"{name} belongs to user {owner}", context)
        return fd

    def _write(at: int, name: str, data: bytes) -> None:
        new = f"{NEW}{name}"
        try:
            fd = os.open(new, _CREATE, 0o644, dir_fd=at)
        except FileExistsError:
            os.unlink(new, dir_fd=at)  # left by a writer that died
            fd = os.open(new, _CREATE, 0o644, dir_fd=at)
        try:
            os.fchmod(fd, 0o644)
            os.write(fd, data)
        except OSError:
            os.close(fd)
            os.unlink(new, dir_fd=at)
            raise
        os.close(fd)
        os.rename(new, name, src_dir_fd=at, dst_dir_fd=at)

    _DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    _CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def _text(facts: Mapping[str, Any]) -> bytes:
    return (json.dumps(dict(facts), ensure_ascii=False) + "\n").encode(errors="replace")
