"""The capabilities of this process, and giving up everything before a step of another user begins.

The daemon of the systemd unit is not root. It has the few capabilities that another user's steps need, and keeps them
out of the ambient set, so that no program it starts inherits them. Only the spawner gets them, and passes none on.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("Windows has no capabilities")

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator
from functools import cache

KILL, SETGID, SETUID, SETPCAP = 5, 6, 7, 8
NEEDED = {KILL: "CAP_KILL", SETGID: "CAP_SETGID", SETUID: "CAP_SETUID", SETPCAP: "CAP_SETPCAP"}
"""What it takes to start a step as another user, to end it, and to leave it nothing of the daemon's."""
_VERSION_3 = 0x20080522
_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_PR_SET_SECUREBITS = 28
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _AMBIENT_RAISE, _AMBIENT_CLEAR_ALL = 47, 2, 4
_CLOSE_RANGE_CLOEXEC = 4
_KEYCTL_JOIN_SESSION_KEYRING = 1
_UMASK = 0o022
"""As a service manager or a login gives it."""

_X86 = os.uname().machine in ("x86_64", "amd64")
_GENERIC = os.uname().machine in ("aarch64", "riscv64", "loongarch64")
_KEYCTL = 250 if _X86 else 219 if _GENERIC else -1
_CLOSE_RANGE = 436

_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    """32 capabilities; there are two of them."""

    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def effective() -> int:
    """The effective capabilities of this thread, as bits; 0 where the system has none."""
    if sys.platform != "linux":
        return 0
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()
    if _libc.capget(ctypes.byref(header), sets) != 0:
        return 0
    return int(sets[0].effective) | int(sets[1].effective) << 32


def missing() -> list[str]:
    """Names of the capabilities that this process lacks to start steps of other users; none for root."""
    if os.geteuid() == 0:
        return []
    have = effective()
    return [name for number, name in sorted(NEEDED.items()) if not have >> number & 1]


@cache
def separates_users() -> bool:
    """Whether this process can start steps as other users, whose files it must then handle with care."""
    return not missing()


def clear_ambient() -> None:
    """Programs that this thread, or one that it starts later, executes from now on inherit no capability."""
    if sys.platform == "linux":
        _libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)


@contextlib.contextmanager
def passed_on() -> Iterator[None]:
    """Programs that this thread executes meanwhile get the capabilities of `NEEDED`. Raises OSError."""
    if sys.platform != "linux" or os.geteuid() == 0 or not separates_users():
        yield
        return
    try:
        _make_inheritable()
        for number in NEEDED:
            _call("prctl", _PR_CAP_AMBIENT, _AMBIENT_RAISE, number, 0, 0)
        yield
    finally:
        clear_ambient()


def keep_from_children() -> None:
    """Of the spawner: what it and its shims execute inherits nothing of this process."""
    if sys.platform != "linux":
        return
    clear_ambient()
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()
    if _libc.capget(ctypes.byref(header), sets) == 0:
        for each in sets:
            each.inheritable = 0
        _libc.capset(ctypes.byref(header), sets)


def _make_inheritable() -> None:
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()
    _call("capget", ctypes.byref(header), sets)
    for number in NEEDED:
        sets[number // 32].inheritable |= 1 << number % 32
    _call("capset", ctypes.byref(header), sets)


def become(uid: int, gid: int, groups: list[int], *, setuid_programs: bool = False) -> None:
    """In the child that becomes a step: turns it into that user for good, with nothing of the daemon's left.

    That are its groups, capabilities, secure bits, keyring, umask and descriptors. Without `setuid_programs` no program
    that it executes can gain a capability again, root's excepted. Raises OSError.
    """
    if sys.platform == "linux":
        _join_new_keyring()
        if uid != 0 and not setuid_programs:
            _empty_bounding_set()
        # Cleared for root too: it is a root like any other.
        with contextlib.suppress(PermissionError):
            _call("prctl", _PR_SET_SECUREBITS, 0, 0, 0, 0)
        _call("prctl", _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if sys.platform == "linux" and uid != 0:
        # A change from one user to another who is not root leaves capabilities as they are.
        _call("capset", ctypes.byref(_Header(_VERSION_3, 0)), (_Sets * 2)())
        if effective() or os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
            raise PermissionError(errno.EPERM, "the system did not take its rights away")
    os.umask(_UMASK)
    close_others()


@contextlib.contextmanager
def using_files_as(uid: int, gid: int) -> Iterator[None]:
    """Inside, this process uses files with the rights of that user, who is not root. Not for one with other threads.

    Raises OSError.
    """
    if uid == 0:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    groups = os.getgroups()
    os.setgroups([])
    try:
        _use_files_as(uid, gid)
        yield
    finally:
        _use_files_as(os.geteuid(), os.getegid())
        os.setgroups(groups)


def _use_files_as(uid: int, gid: int) -> None:
    _libc.setfsgid(ctypes.c_uint(gid))
    _libc.setfsuid(ctypes.c_uint(uid))
    # They report no error, but return what was before.
    if (_libc.setfsgid(ctypes.c_uint(gid)), _libc.setfsuid(ctypes.c_uint(uid))) != (gid, uid):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def close_others() -> None:
    """No descriptor but the standard ones reaches the step; one without this call closes those marked for it."""
    if sys.platform == "linux":
        _libc.syscall(_CLOSE_RANGE, 3, ctypes.c_uint(0xFFFFFFFF), _CLOSE_RANGE_CLOEXEC)


def forbid_new() -> None:
    """No program that this process executes gains privileges by its mode or file capabilities. Raises OSError."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _empty_bounding_set() -> None:
    number = 0
    while (held := _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0)) >= 0:
        if held:
            try:
                _call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
            except PermissionError:
                # A root without CAP_SETPCAP, as in some containers.
                return forbid_new()
        number += 1
    return None


def _join_new_keyring() -> None:
    """A system that has none, or keeps keys from this process, keeps them from the step too."""
    if _KEYCTL >= 0 and _libc.syscall(_KEYCTL, _KEYCTL_JOIN_SESSION_KEYRING, None) < 0:
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EPERM, errno.EACCES):
            raise OSError(code, os.strerror(code))


def _call(name: str, *arguments: object) -> None:
    """Raises OSError."""
    if getattr(_libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
