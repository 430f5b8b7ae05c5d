"""Measures and removes directories in which steps may have written anything.

Links are never followed, file systems mounted inside are never entered, and depth costs neither descriptors nor stack.
A directory of another user is read and emptied with the rights of its owner.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
from collections.abc import Callable

from toband.ports import StoppedError
from toband.supervise.files.file_user import owner_of

_DEEPEST = 64
"""Levels that are entered one inside the other; deeper directories are moved up first."""


def always() -> bool:
    return True


def size_on_disk(path: str, go_on: Callable[[], bool] = always) -> int:
    """Bytes that the tree takes on disk. Unreadable parts count as nothing.

    Raises StoppedError when `go_on` returns False.
    """
    try:
        top = os.lstat(path)
    except OSError:
        return 0
    if not stat.S_ISDIR(top.st_mode):
        return _blocks(top)
    return _blocks(top) + _size_below(path, top, go_on)


def _blocks(facts: os.stat_result) -> int:
    if sys.platform == "win32":
        return facts.st_size
    return facts.st_blocks * 512


if sys.platform == "win32":

    def _size_below(path: str, _: os.stat_result, go_on: Callable[[], bool]) -> int:
        total = 0
        waiting = [path]
        while waiting:
            if not go_on():
                raise StoppedError
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        facts = entry.stat(follow_symlinks=False)
                        total += _blocks(facts)
                        if stat.S_ISDIR(facts.st_mode):
                            waiting.append(entry.path)
        return total

else:
    _DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

    def _size_below(path: str, top: os.stat_result, go_on: Callable[[], bool]) -> int:
        """Descends by one name at a time, and returns by `..`: a path that is too long for the system hides nothing."""
        fd = _entered(path)
        if fd is None:
            return 0
        total, inner = _listed(fd, top.st_dev)
        # For each level: the directories still to enter, and the identity of its directory.
        levels = [(inner, top)]
        try:
            while levels:
                if not go_on():
                    raise StoppedError
                waiting, _ = levels[-1]
                if not waiting:
                    _, facts = levels.pop()
                    with _as_owner(facts):
                        above = os.open("..", _DIRECTORY, dir_fd=fd)
                    os.close(fd)
                    fd = above
                    if levels and not os.path.samestat(os.fstat(fd), levels[-1][1]):
                        return total  # it was moved meanwhile
                elif (below := _entered(waiting.pop(), fd)) is not None:
                    os.close(fd)
                    fd = below
                    facts = os.fstat(fd)
                    with _as_owner(facts):
                        size, inner = _listed(fd, top.st_dev)
                    total += size
                    levels.append((inner, facts))
        except OSError:
            return total
        finally:
            os.close(fd)
        return total

    def _entered(name: str, parent: int | None = None) -> int | None:
        """A descriptor of a directory from which `..` leads back; None if it cannot be entered."""
        try:
            with _as_owner(os.stat(name, dir_fd=parent, follow_symlinks=False)):
                fd = os.open(name, _DIRECTORY, dir_fd=parent)
                if os.access(".", os.X_OK, dir_fd=fd, effective_ids=True):
                    return fd
        except OSError:
            return None
        os.close(fd)
        return None

    def _as_owner(facts: os.stat_result) -> contextlib.AbstractContextManager[object]:
        return owner_of(facts.st_uid) or contextlib.nullcontext()

    def _listed(fd: int, device: int) -> tuple[int, list[str]]:
        """Bytes of the entries of a directory, and the directories among them."""
        total = 0
        inner = []
        with contextlib.suppress(OSError), os.scandir(fd) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    facts = entry.stat(follow_symlinks=False)
                    if facts.st_dev == device:
                        total += _blocks(facts)
                        if stat.S_ISDIR(facts.st_mode):
                            inner.append(entry.name)
        return total, inner


def remove_tree(path: str, *, last: str = "", go_on: Callable[[], bool] = always, as_owners: bool = False) -> None:
    """Removes a directory tree; a missing one is fine. An entry named `last` is removed last.

    `as_owners`: each directory with the rights of its owner.

    Continues past entries that it cannot remove, then raises the first OSError. Raises StoppedError if not `go_on`.
    """
    if sys.platform == "win32":
        if os.path.isdir(path):
            shutil.rmtree(path, onerror=_unlocked)
    else:
        _Removal(path, go_on, as_owners).run(last)


if sys.platform == "win32":

    def _unlocked(remove: Callable[[str], None], path: str, _: object) -> None:
        """Windows cannot remove a read-only file. Raises OSError."""
        os.chmod(path, 0o700)
        remove(path)

else:

    class _Removal:
        def __init__(self, path: str, go_on: Callable[[], bool], as_owners: bool) -> None:
            self._as_owners = as_owners
            self._path = path
            self._go_on = go_on
            self._error: OSError | None = None
            self._moved = 0
            self._device = 0
            self._top = -1

        def run(self, last: str) -> None:
            try:
                self._top = os.open(self._path, _DIRECTORY)
            except FileNotFoundError:
                return
            try:
                self._device = os.fstat(self._top).st_dev
                self._reachable(self._top)
                moved = -1
                # The next round handles directories that were moved up.
                while moved != self._moved:
                    moved = self._moved
                    self._error = None
                    self._empty(self._top, 0, last)
                if self._error is None:
                    self._empty(self._top, 0)
            finally:
                os.close(self._top)
            if self._error is not None:
                raise self._error
            os.rmdir(self._path)

        def _empty(self, fd: int, depth: int, spare: str = "") -> None:
            with self._as_owner(os.fstat(fd)):
                self._empty_own(fd, depth, spare)

        def _empty_own(self, fd: int, depth: int, spare: str) -> None:
            # Collected first: entries are not removed from a directory while it is read.
            with os.scandir(fd) as entries:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            for name, is_directory in found:
                if name == spare:
                    continue
                if not self._go_on():
                    raise StoppedError
                try:
                    if not is_directory:
                        os.unlink(name, dir_fd=fd)
                    elif depth >= _DEEPEST:
                        self._move_up(name, fd)
                    else:
                        self._remove_directory(name, fd, depth)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    self._error = self._error or error

        def _remove_directory(self, name: str, parent: int, depth: int) -> None:
            try:
                fd = os.open(name, _DIRECTORY, dir_fd=parent)
            except PermissionError:
                # The owner set this mode, so the owner may set it back.
                with self._as_owner(os.stat(name, dir_fd=parent, follow_symlinks=False)):
                    _unlock(name, parent)
                    fd = os.open(name, _DIRECTORY, dir_fd=parent)
            try:
                if os.fstat(fd).st_dev != self._device:
                    raise OSError(errno.EXDEV, "another file system is mounted there", name)
                self._reachable(fd)
                self._empty(fd, depth + 1)
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=parent)

        def _as_owner(self, facts: os.stat_result) -> contextlib.AbstractContextManager[object]:
            return _as_owner(facts) if self._as_owners else contextlib.nullcontext()

        def _reachable(self, fd: int) -> None:
            facts = os.fstat(fd)
            if facts.st_mode & 0o700 != 0o700:
                with contextlib.suppress(OSError), self._as_owner(facts):
                    os.fchmod(fd, 0o700)

        def _move_up(self, name: str, parent: int) -> None:
            # Moving a directory writes to it: its parent changes.
            with contextlib.suppress(OSError), self._as_owner(os.stat(name, dir_fd=parent, follow_symlinks=False)):
                _unlock(name, parent)
            own = f".moved-up.{os.getpid()}.{self._moved}"
            os.rename(name, own, src_dir_fd=parent, dst_dir_fd=self._top)
            self._moved += 1

    def _unlock(name: str, parent: int) -> None:
        """Gives its owner all rights to a directory; never through a link. Raises OSError."""
        fd = os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW | _PATH, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{fd}", 0o700)
        finally:
            os.close(fd)

    _PATH: int = getattr(os, "O_PATH", 0)
