"""Opening a directory by its path, with care for who could have put a link on the way.

A daemon that starts steps of other users also works in directories that those can write. A link there could lead it
anywhere, so it is refused. A link is followed only if root or the acting user alone can change its directory, and could
have put that directory where it is. The walk goes from descriptor to descriptor: names that are swapped meanwhile
change nothing. A daemon that starts no steps of other users follows every link.

Where the system shows itself (`/proc`, `/sys`, `/dev`) there is no directory for files: `/proc/self` would be the
daemon's own. `/dev/shm` is an ordinary file system.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import sys
from collections.abc import Sequence
from typing import NamedTuple

if sys.platform != "win32":
    from toband.supervise.shim.privileges import separates_users

_SYSTEM = ("proc", "sys", "dev")
_ORDINARY = ("dev", "shm")
_MOST_LINKS = 40


class UntrustedLinkError(PermissionError):
    """A link on the way that another user could have made; the text names it."""


class ForbiddenLocationError(PermissionError):
    """A directory that no step may work in; the text says which and why."""


class Opened(NamedTuple):
    """`path` is where the directory is, without links."""

    fd: int
    path: str


if sys.platform == "win32":

    def locate(path: str) -> str:
        """Where a path leads; the end of it need not be there. Raises OSError."""
        return os.path.realpath(path)

else:
    # Directories on the way need only be passed through, not read.
    _PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    _READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

    def open_directory(path: str, *, make: bool = False, uid: int | None = None) -> Opened:
        """To be read and worked in. `make`: directories that are missing are made. Raises OSError.

        `uid`: the acting user, if that is not the one of this process.
        """
        return _open(path, _READ, guarded=separates_users(), make=make, uid=uid)

    def enter(path: str, *, guarded: bool) -> None:
        """Makes it the current directory of this process. `guarded`: other users may be at work. Raises OSError."""
        fd = _open(path, _PASS, guarded=guarded).fd
        try:
            os.fchdir(fd)
        except OSError as error:
            raise _named(error, path) from None
        finally:
            os.close(fd)

    def open_file(path: str, *, guarded: bool) -> int:
        """A file to be read, if it is one: any other kind does not block. Raises OSError."""
        above, name = os.path.split(path)
        at = _open(above or "/", _PASS, guarded=guarded).fd
        try:
            follow = 0 if not guarded or _only_ours(at, (0, os.geteuid())) else os.O_NOFOLLOW
            return os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | follow, dir_fd=at)
        except OSError as error:
            if error.errno == errno.ELOOP and guarded:
                raise UntrustedLinkError(errno.EPERM, _untrusted(path.strip("/").split("/"), "file")) from None
            raise _named(error, path) from None
        finally:
            os.close(at)

    def locate(path: str) -> str:
        """Where a path leads; the end of it need not be there. Raises OSError."""
        opened = _open(path, _PASS, guarded=separates_users(), missing=True)
        os.close(opened.fd)
        return opened.path

    def open_beneath(at: int, path: str) -> int:
        """A directory below an open one, to be read; no part of the path may be a link. Raises OSError."""
        fd = _open_at_once(at, path, _READ, _BENEATH | _NO_LINKS)
        if fd is not None:
            return fd
        names = path.split("/")
        fd = os.open(names[0], _READ, dir_fd=at)
        for name in names[1:]:
            try:
                inner = os.open(name, _READ, dir_fd=fd)
            finally:
                os.close(fd)
            fd = inner
        return fd

    def foreign_name(at: int, facts: os.stat_result) -> bool:
        """Whether another user could have given a file of ours, or of root's, a second name in this directory.

        Linux lets no user do so with `fs.protected_hardlinks`, which is not on everywhere.
        """
        ours = separates_users() and facts.st_uid in (0, os.geteuid())
        return ours and facts.st_nlink > 1 and not _only_ours(at, (0, os.geteuid())) and not links_protected()

    def links_protected() -> bool:
        """Whether no user can give another user's file a second name."""
        try:
            with open("/proc/sys/fs/protected_hardlinks", "rb") as file:
                return file.read().strip() == b"1"
        except OSError:
            return False

    def _open(
        path: str, flags: int, *, guarded: bool, make: bool = False, missing: bool = False, uid: int | None = None
    ) -> Opened:
        owners = (0, os.geteuid() if uid is None else uid)
        path = os.path.join(os.getcwd(), path) if not os.path.isabs(path) else path
        try:
            with contextlib.suppress(OSError):
                fd = _open_at_once(-1, path, flags, _NO_LINKS)
                if fd is not None:
                    # Without a link on the way, dots mean what they seem to.
                    return _checked(fd, os.path.normpath(path).strip("/").split("/"))
            parts = [part for part in path.split("/") if part not in ("", ".")]
            for _ in range(_MOST_LINKS):
                found = _walk(parts, flags, owners, guarded=guarded, make=make, missing=missing)
                if isinstance(found, Opened):
                    return found
                parts = found
        except (UntrustedLinkError, ForbiddenLocationError) as error:
            error.filename = path
            raise
        except OSError as error:
            raise _named(error, path) from None
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _walk(
        parts: Sequence[str], flags: int, owners: tuple[int, int], *, guarded: bool, make: bool, missing: bool
    ) -> Opened | list[str]:
        """Down by one name after the other. At the first link: the path with its text in its place."""
        done: list[str] = []
        trusted = True
        fd = os.open("/", flags if not parts else _PASS)
        try:
            for number, name in enumerate(parts):
                rest = parts[number + 1 :]
                if name == "..":
                    return [*done[:-1], *rest]
                if done or not rest:
                    _refuse_system([*done, name])
                try:
                    inner = _open_name(fd, name, _PASS if rest else flags, make)
                except FileNotFoundError:
                    if not missing:
                        raise
                    left = os.path.normpath("/".join(["", *done, name, *rest]))
                    _refuse_system(left.split("/")[1:])
                    return Opened(os.dup(fd), left)
                if isinstance(inner, str):
                    if guarded and not (trusted and _only_ours(fd, owners)):
                        raise UntrustedLinkError(errno.EPERM, _untrusted([*done, name]))
                    if _system_type(fd):
                        raise _system_error([*done, name])
                    above = [] if inner.startswith("/") else done
                    return [*above, *(p for p in inner.split("/") if p not in ("", ".")), *rest]
                trusted = trusted and (_only_ours(fd, owners) or _stays(fd, inner, owners))
                os.close(fd)
                fd = inner
                done.append(name)
            return _checked(os.dup(fd), done)
        finally:
            os.close(fd)

    def _open_name(at: int, name: str, flags: int, make: bool) -> int | str:
        """A directory, or the text of a link. Raises OSError."""
        try:
            return os.open(name, flags, dir_fd=at)
        except FileNotFoundError:
            if not make:
                raise
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=at)
            return os.open(name, flags, dir_fd=at)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                with contextlib.suppress(OSError):
                    return os.readlink(name, dir_fd=at)
            raise

    def _only_ours(fd: int, owners: tuple[int, int]) -> bool:
        """An access list for others shows in the bits of the group."""
        facts = os.fstat(fd)
        return facts.st_uid in owners and not facts.st_mode & 0o022

    def _stays(above: int, fd: int, owners: tuple[int, int]) -> bool:
        """Whether a directory is ours, in one like `/tmp`, where others can move only what is theirs."""
        facts = os.fstat(above)
        sticky = facts.st_uid in owners and facts.st_mode & stat.S_ISVTX != 0
        return sticky and os.fstat(fd).st_uid in owners

    def _untrusted(parts: Sequence[str], kind: str = "directory") -> str:
        return (
            f"/{'/'.join(parts)} is a link in a directory that other users can write; name the {kind} that it leads to"
        )

    def _named(error: OSError, path: str) -> OSError:
        return OSError(error.errno, error.strerror, path)

    def _checked(fd: int, parts: Sequence[str]) -> Opened:
        """Raises ForbiddenLocationError, and then the descriptor is closed."""
        try:
            _refuse_system(parts)
            if _system_type(fd):
                raise _system_error(parts)
        except ForbiddenLocationError:
            os.close(fd)
            raise
        return Opened(fd, f"/{'/'.join(parts)}")

    def _refuse_system(parts: Sequence[str]) -> None:
        if parts and parts[0] in _SYSTEM and tuple(parts[:2]) != _ORDINARY:
            raise _system_error(parts)

    def _system_error(parts: Sequence[str]) -> ForbiddenLocationError:
        text = f"/{'/'.join(parts)} belongs to the system and is no directory for files"
        return ForbiddenLocationError(errno.EPERM, text)


if sys.platform == "linux":
    _OPENAT2 = 437
    _NO_LINKS = 0x02 | 0x04
    _BENEATH = 0x08
    _NOW = -100
    # The kernel cannot, may not, or would have to look again: then one name is opened after the other.
    _OTHER_WAY = frozenset({errno.ENOSYS, errno.EPERM, errno.EAGAIN, errno.EINVAL, errno.E2BIG, errno.ENAMETOOLONG})
    _PROC, _SYSFS, _CGROUP2 = 0x9FA0, 0x62656572, 0x63677270
    _libc = ctypes.CDLL(None, use_errno=True)

    class _How(ctypes.Structure):
        _fields_ = (
            ("flags", ctypes.c_uint64),
            ("mode", ctypes.c_uint64),
            ("resolve", ctypes.c_uint64),
        )

    def _open_at_once(at: int, path: str, flags: int, resolve: int) -> int | None:
        """With one call; None if the system has none that can. Raises OSError."""
        if "\0" in path:
            return None  # it would end the path here, and is refused by any other way
        how = _How(flags, 0, resolve)
        at = at if at >= 0 else _NOW
        fd = int(_libc.syscall(_OPENAT2, at, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code in _OTHER_WAY:
            return None
        raise OSError(code, os.strerror(code), path)

    def _system_type(fd: int) -> bool:
        """Whether it is on a file system in which the kernel shows itself, wherever that is mounted."""
        facts = (ctypes.c_long * 32)()
        return _libc.fstatfs(fd, facts) == 0 and facts[0] in (_PROC, _SYSFS, _CGROUP2)

elif sys.platform != "win32":
    _NO_LINKS = _BENEATH = 0

    def _open_at_once(at: int, path: str, flags: int, resolve: int) -> int | None:
        return None

    def _system_type(fd: int) -> bool:
        return False
