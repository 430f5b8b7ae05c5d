"""Files with values of secrets: in a directory that only the step's user can enter, and gone with the step's processes.

The daemon names the directory, in memory where the system has such a file system, and removes what a killed shim left.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Mapping
from typing import Any

if sys.platform == "win32":
    from toband.supervise.shim.windows import win32
else:
    from toband.supervise.shim import acl, privileges

VARIABLE = "TOBAN_SECRET_FILES"
"""In the step's environment: the directory."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def take_material(boot: dict[str, Any]) -> None:
    """Moves variables and standard input of the secrets to the places that the start of a step reads."""
    material = boot.get("secrets")
    if not material:
        return
    boot["env"] = boot["env"] | material["env"]
    if material["stdin"] is not None:
        boot["stdin"] = material["stdin"]
    if material["files"]:
        boot["env"][VARIABLE] = material["directory"]


def remove(boot: dict[str, Any]) -> None:
    """Removes the files. What cannot be removed is left to the daemon."""
    material = boot.get("secrets")
    if material and material["files"] and not _misnamed(material["files"]):
        clear(material["directory"], material["files"])


if sys.platform == "win32":

    def place(boot: dict[str, Any]) -> None:
        """Creates the directory and its files, for the user of this process and the system only. Raises OSError."""
        material = boot.get("secrets")
        if not material or not material["files"]:
            return
        directory = material["directory"]
        if name := _misnamed(material["files"]):
            raise ValueError(f"{name} is not the name of a file")
        clear(directory, material["files"])
        win32.create_private_directory(directory)
        for name, text in material["files"].items():
            with open(os.path.join(directory, name), "xb") as file:
                file.write(text.encode(errors="surrogateescape"))

    def clear(directory: str, names: Mapping[str, str]) -> None:
        """Removes the directory if it exists."""
        import shutil

        shutil.rmtree(directory, ignore_errors=True)

else:
    _DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

    def place(boot: dict[str, Any], owner: tuple[int, int] | None = None) -> None:
        """Creates the directory and its files, for their `owner` if that is another user. May be repeated.

        Raises OSError, and ValueError for a name that is none.
        """
        material = boot.get("secrets")
        if not material or not material["files"]:
            return
        directory = material["directory"]
        if name := _misnamed(material["files"]):
            raise ValueError(f"{name} is not the name of a file")
        clear(directory, material["files"])
        if owner is None or os.geteuid() in (0, owner[0]):
            _create(directory, material["files"], owner)
            return
        try:
            # Some programs refuse a key that belongs to another user, or that a group could read.
            with privileges.using_files_as(*owner):
                _create(directory, material["files"], None)
        except PermissionError:
            # Where there is no file system in memory, the directory is one of the daemon's.
            _create(directory, material["files"], owner)

    def _create(directory: str, files: Mapping[str, str], owner: tuple[int, int] | None) -> None:
        os.mkdir(directory, 0o700)
        fd = os.open(directory, _DIRECTORY)
        try:
            for name, text in files.items():
                _write(fd, name, text.encode(errors="surrogateescape"), owner)
            os.fchmod(fd, 0o500)
            _give(fd, owner, acl.READ | acl.PASS)
        finally:
            os.close(fd)

    def _write(directory: int, name: str, data: bytes, owner: tuple[int, int] | None) -> None:
        fd = os.open(name, _CREATE | os.O_NOFOLLOW | os.O_CLOEXEC, 0o400, dir_fd=directory)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]
            # Whatever the umask was.
            os.fchmod(fd, 0o400)
            _give(fd, owner, acl.READ)
        finally:
            os.close(fd)

    def _give(fd: int, owner: tuple[int, int] | None, rights: int) -> None:
        """Only root may change an owner; another daemon adds the user to the access list of its own file."""
        if owner is None or owner[0] == os.geteuid():
            return
        if os.geteuid() == 0:
            os.fchown(fd, *owner)
        else:
            acl.allow_open(fd, owner[0], rights)

    def clear(directory: str, names: Mapping[str, str]) -> None:
        """Removes the directory if it exists. Its owner may have replaced it by anything: no link is followed."""
        with contextlib.suppress(OSError):
            facts = os.lstat(directory)
            if facts.st_uid == os.geteuid() or not privileges.separates_users() or os.geteuid() == 0:
                _clear(directory, names)
            else:
                with privileges.using_files_as(facts.st_uid, facts.st_gid):
                    _clear(directory, names)

    def _clear(directory: str, names: Mapping[str, str]) -> None:
        """Raises OSError."""
        if stat.S_ISLNK(os.lstat(directory).st_mode):
            os.unlink(directory)
            return
        fd = os.open(directory, _DIRECTORY)
        try:
            with contextlib.suppress(OSError):
                os.fchmod(fd, 0o700)
            # The values first: a step may have filled the directory with more than can be removed.
            for name in names:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)
        try:
            os.rmdir(directory)
        except OSError:
            import shutil

            shutil.rmtree(directory, ignore_errors=True)


def _misnamed(files: Mapping[str, str]) -> str:
    """One of the names that is not that of a file in the directory; empty if there is none."""
    return next((repr(name) for name in files if os.path.basename(name) != name or name in ("", ".", "..")), "")
