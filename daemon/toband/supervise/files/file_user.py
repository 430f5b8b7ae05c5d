"""Using files with the rights of another user, in one thread.

The daemon reads and writes in workspaces as the user of the step: what that user may not open, no step gets by naming
it as an input or output. It takes a daemon that can start steps as that user.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Sequence
from types import TracebackType

_X86 = sys.platform != "win32" and os.uname().machine in ("x86_64", "amd64")
_SETGROUPS = 116 if _X86 else 159
"""Not the function of libc, which changes all threads."""


class FileUser:
    """A context in which the current thread uses files as that user. Contexts may be nested."""

    def __init__(self, uid: int, gid: int, groups: Sequence[int]) -> None:
        self.uid = uid
        self.gid = gid
        self._groups = tuple(groups)
        self._before: list[tuple[int, int, tuple[int, ...]]] = []

    def __enter__(self) -> FileUser:
        self._before.append(_become(self.uid, self.gid, self._groups))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            _become(*self._before.pop())
        except OSError:
            # The thread would go on with the rights of a step, or the other way round.
            os.abort()


if sys.platform == "win32":

    def file_user(user: str) -> FileUser | None:
        """The user as the files of a step are used by; None: the daemon's own. Raises OSError if it is unknown."""
        return None

    def owner_of(uid: int) -> FileUser | None:
        """The owner of a file, without its groups; None if this process needs no other rights than its own."""
        return None

else:
    import pwd

    from toband.supervise.shim.privileges import separates_users

    def file_user(user: str) -> FileUser | None:
        """The user as the files of a step are used by; None: the daemon's own. Raises OSError if it is unknown."""
        if not user or not separates_users():
            return None
        try:
            known = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
        except (KeyError, OverflowError):
            raise OSError(errno.ENOENT, f"there is no user {user}") from None
        if known.pw_uid == os.geteuid():
            return None
        return FileUser(known.pw_uid, known.pw_gid, os.getgrouplist(known.pw_name, known.pw_gid))

    def owner_of(uid: int) -> FileUser | None:
        """The owner of a file, without its groups; None if this process needs no other rights than its own."""
        if os.geteuid() in (0, uid) or not separates_users():
            return None
        return FileUser(uid, os.getegid(), ())


if sys.platform == "linux":
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.syscall.restype = ctypes.c_long
    _ASK = ctypes.c_uint(0xFFFFFFFF)

    def _become(uid: int, gid: int, groups: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        """The identity before. Raises OSError; then nothing has changed."""
        before = _libc.setfsuid(_ASK), _libc.setfsgid(_ASK), tuple(os.getgroups())
        try:
            _set(uid, gid, groups)
        except OSError:
            _set(*before)
            raise
        return before

    def _set(uid: int, gid: int, groups: tuple[int, ...]) -> None:
        array = (ctypes.c_uint * max(1, len(groups)))(*groups)
        if _libc.syscall(_SETGROUPS, len(groups), array) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        _libc.setfsgid(ctypes.c_uint(gid))
        _libc.setfsuid(ctypes.c_uint(uid))
        # They report no error.
        if (_libc.setfsgid(_ASK), _libc.setfsuid(_ASK)) != (gid, uid):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

else:

    def _become(uid: int, gid: int, groups: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        raise OSError(errno.ENOSYS, "this system cannot use files as another user")
