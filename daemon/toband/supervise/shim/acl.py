"""Grants a step's user access to its own directories below the closed state directory, with POSIX ACLs.

Access control lists, one entry for one user on the directories of one run: nothing becomes readable for others, and no
other run is opened. On directories that only lie on the way the entry allows to pass, not to look around.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("access control lists are written by the POSIX shim")

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Mapping
from typing import Any

READ, WRITE, PASS = 4, 2, 1
_NAME = "system.posix_acl_access"
_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")
_OWNER, _USER, _GROUP, _NAMED_GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NOBODY = 0xFFFFFFFF
_NO_LIST = (errno.ENODATA, errno.EOPNOTSUPP)


def allow(path: str, uid: int, rights: int) -> None:
    """Adds one user's rights to a file or directory. Raises OSError, also if the file system has no such lists.

    The caller must prevent concurrent changes.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _add(fd, path, uid, rights)
    finally:
        os.close(fd)


def open_run(reach: Mapping[str, Any], uid: int) -> None:
    """Lets a user reach the files of a run: see `RunFiles.reach`. Raises OSError."""
    # Changing a list means reading it first. Only the daemon's user can open this directory and so take its lock.
    lock = os.open(reach["lock"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in reach["pass"]:
            allow(path, uid, PASS)
        for path in reach["read"]:
            allow(path, uid, READ)
        for path in reach["write"]:
            allow(path, uid, READ | WRITE | PASS)
    finally:
        os.close(lock)


def allow_open(fd: int, uid: int, rights: int) -> None:
    """The same for an open file that no other process changes. Raises OSError."""
    _add(fd, "", uid, rights)


def _add(fd: int, path: str, uid: int, rights: int) -> None:
    try:
        entries = _entries(fd)
        before = entries.get((_USER, uid), 0)
        if before & rights == rights:
            return
        entries[_USER, uid] = before | rights
        mask = 0
        for (tag, _), granted in entries.items():
            if tag in (_USER, _GROUP, _NAMED_GROUP):
                mask |= granted
        entries[_MASK, _NOBODY] = mask
        packed = [_ENTRY.pack(tag, rights, who) for (tag, who), rights in sorted(entries.items())]
        os.setxattr(fd, _NAME, _VERSION + b"".join(packed))
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def make_file(path: str, uid: int) -> None:
    """An empty file that the user may read and write, in a directory where it may not make one. Raises OSError.

    It belongs to this process: changing its owner would take a right that a daemon other than root does not have.
    """
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        fd = os.open(path, flags)  # made for an earlier try to start the step
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1 or facts.st_uid != os.geteuid():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        _add(fd, path, uid, READ | WRITE)
    finally:
        os.close(fd)


def _entries(fd: int) -> dict[tuple[int, int], int]:
    """The list as it is, or as the mode of a file without one says."""
    try:
        raw = os.getxattr(fd, _NAME)
    except OSError as error:
        if error.errno not in _NO_LIST:
            raise
        mode = os.fstat(fd).st_mode
        return {
            (_OWNER, _NOBODY): mode >> 6 & 7,
            (_GROUP, _NOBODY): mode >> 3 & 7,
            (_OTHER, _NOBODY): mode & 7,
        }
    return {(tag, who): rights for tag, rights, who in _ENTRY.iter_unpack(raw[len(_VERSION) :])}
