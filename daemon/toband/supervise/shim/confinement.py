"""The sandbox of a step: what it may reach of files and network, taken from the process that becomes the step.

Files: Landlock, which needs no privilege. Network: a namespace of its own, which takes CAP_SYS_ADMIN or a user
namespace. A mechanism that is missing raises OSError; the step then does not start.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("Windows has neither Landlock nor namespaces")

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from toband import failpoints
from toband.supervise.shim import privileges

LEAST_ABI = 3
"""Earlier versions of Landlock (before Linux 6.2) let a step truncate files that it may only read."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_ALL_OF_ABI = {3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Rights by the version that introduced the last of them: TRUNCATE, IOCTL_DEV."""
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_SCOPED_ABI = 6
_SCOPE_SIGNALS = 2
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_CAP_SYS_ADMIN = 21
_PR_SET_DUMPABLE = 4
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1

SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store"),
    *("/etc", "/proc", "/sys", "/run/systemd/resolve", "/run/current-system"),
)
"""What programs need to run; a step may read them as far as its user may."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


def landlock_abi() -> int:
    """The version of Landlock that the kernel has. Raises OSError, with the reason, if it cannot keep files apart."""
    failpoints.hit("sandbox.landlock")
    found = int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION))
    if found < 0:
        code = ctypes.get_errno()
        why = "is switched off at boot (`lsm=`)" if code == errno.EOPNOTSUPP else "is missing in this kernel"
        raise OSError(code, f"Landlock {why}")
    if found < LEAST_ABI:
        raise OSError(errno.ENOSYS, f"Landlock of this kernel has version {found}: it takes {LEAST_ABI}, of Linux 6.2")
    return found


def problem_of_files() -> str:
    """Why steps cannot be confined to some files here; empty if they can."""
    try:
        landlock_abi()
    except OSError as error:
        return str(error.strerror)
    return ""


def problem_of_network() -> str:
    """Why steps cannot be cut off from the network here; empty if they can. Forks: not for a process with threads."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            failpoints.hit("sandbox.network")
            _checked(_libc.unshare(_CLONE_NEWNET | (_CLONE_NEWUSER if needs_user_namespace() else 0)))
        except OSError as error:
            os.write(writer, f"the system allows no network namespace ({error.strerror})".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        said = file.read()
    os.waitpid(pid, 0)
    return said.decode()


def confine_files(plan: Mapping[str, Any]) -> None:
    """Limits this process, for good, to what is listed. It must have given up new privileges. Raises OSError."""
    abi = landlock_abi()
    every = _ALL_OF_ABI[5 if abi >= 5 else 3]
    attributes = _Ruleset(every, 0, _SCOPE_SIGNALS if abi >= _SCOPED_ABI else 0)
    size = ctypes.sizeof(attributes) if abi >= _SCOPED_ABI else 16 if abi >= 4 else 8
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0))
    try:
        for path in (*SYSTEM, *plan["own_read"]):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                _allow(ruleset, path, _READ & every)
        for path in DEVICES:
            with contextlib.suppress(FileNotFoundError, PermissionError):
                _allow(ruleset, path, (_READ | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV) & every)
        for path in plan["own_write"]:
            _allow(ruleset, path, every)
        for key, rights in (("read_only", _READ), ("writable", every)):
            for path in plan[key]:
                try:
                    _allow(ruleset, path, rights & every)
                except OSError as error:
                    raise OSError(error.errno, f"{path} of {key}: {error.strerror}") from None
        _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_FILES
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, fd), 12)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0))
    finally:
        os.close(fd)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


# -- the network


def needs_user_namespace() -> bool:
    """Whether this process gets a network namespace only inside of a user namespace."""
    return not privileges.effective() >> _CAP_SYS_ADMIN & 1


def leave_network(told: int, go: int) -> None:
    """In the child, before it becomes its user: gives it a network of its own, with nothing but a loopback interface.

    With a user namespace it writes to `told` and waits for `go`: its parent maps the users. Raises OSError.
    """
    try:
        failpoints.hit("sandbox.network")
        if needs_user_namespace():
            _in_user_namespace(told, go)
        else:
            _checked(_libc.unshare(_CLONE_NEWNET))
        _bring_loopback_up()
    except OSError as error:
        raise OSError(error.errno, f"the system allows no network namespace ({error.strerror})") from None


def _in_user_namespace(told: int, go: int) -> None:
    # Its parent must be able to write the maps, which takes a process that may be dumped. Only processes with the
    # capabilities of this one could read its memory meanwhile.
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))
    _checked(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET))
    os.write(told, b"\0")
    answer = os.read(go, 1)
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
    if answer != b"\0":
        raise OSError(errno.EPERM, "the users cannot be mapped")


def map_users(pid: int, uid: int, gids: Iterable[int], *, privileged: bool) -> None:
    """In the parent: the user and its groups, and no others, exist in the user namespace of the child. Raises OSError.

    `privileged`: they are not those of this process, which has the capabilities to map them.
    """
    gids = sorted(set(gids))
    if not privileged:
        _write(f"/proc/{pid}/setgroups", "deny")
        gids = [os.getegid()]
    _write(f"/proc/{pid}/uid_map", f"{uid} {uid} 1\n")
    _write(f"/proc/{pid}/gid_map", "".join(f"{gid} {gid} 1\n" for gid in gids))


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        answer = fcntl.ioctl(sock, _SIOCGIFFLAGS, request)
        (flags,) = struct.unpack_from("H", answer, 16)
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | _IFF_UP, b""))
