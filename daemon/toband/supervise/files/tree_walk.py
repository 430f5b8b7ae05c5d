"""Walks through a directory in which steps may have written anything, and opens what is in it to be copied.

Links are never followed, file systems mounted inside are never entered, and sockets, pipes and devices are left out.
On POSIX each name is opened relative to the descriptor of its directory: a process that swaps names meanwhile cannot
make the daemon read anything elsewhere. What belongs to another user is read with the rights of that user.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from toband.supervise.files.file_user import owner_of

_DEEPEST = 200
"""Levels, each of which takes a descriptor."""
_DIRECTORY: int = (
    os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
)
_FILE: int = _DIRECTORY & ~getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

LeaveOut = Callable[[str, str], None]
"""Called with a path and the reason why it cannot be read."""


@dataclass(frozen=True, slots=True)
class WalkedEntry:
    """`path` is relative to the top, `fd` that of a file, closed after the entry was used.

    `link` is where a link leads. An entry without both is a directory, which comes before what is in it.
    """

    path: str
    facts: os.stat_result
    fd: int = -1
    link: str | None = None


def walk_tree(top: str, leave_out: LeaveOut) -> Iterator[WalkedEntry]:
    """Raises FileNotFoundError if there is no such directory. What disappears during the walk is not there."""
    if sys.platform == "win32":
        yield from _walk_names(top)
        return
    with _owner(os.stat(top, follow_symlinks=False)):
        fd = os.open(top, _DIRECTORY)
    yield from _Walk(os.fstat(fd).st_dev, leave_out).below(fd, "", 0)


def _walk_names(top: str, path: str = "") -> Iterator[WalkedEntry]:
    """For Windows, which has no descriptors of directories."""
    for name in sorted(os.listdir(os.path.join(top, path))):
        own = f"{path}/{name}" if path else name
        full = os.path.join(top, own)
        with contextlib.suppress(FileNotFoundError):
            facts = os.lstat(full)
            if stat.S_ISDIR(facts.st_mode):
                yield WalkedEntry(own, facts)
                yield from _walk_names(top, own)
            elif stat.S_ISREG(facts.st_mode):
                fd = os.open(full, _FILE)
                try:
                    yield WalkedEntry(own, os.fstat(fd), fd)
                finally:
                    os.close(fd)


class _Walk:
    def __init__(self, device: int, leave_out: LeaveOut) -> None:
        self._device = device
        self._leave_out = leave_out

    def below(self, fd: int, path: str, depth: int) -> Iterator[WalkedEntry]:
        """Closes `fd`."""
        try:
            own = os.fstat(fd)
            with _owner(own):
                names = sorted(os.listdir(fd))
            for name in names:
                yield from self._entry(fd, own, name, f"{path}/{name}" if path else name, depth)
        finally:
            os.close(fd)

    def _entry(self, fd: int, own: os.stat_result, name: str, path: str, depth: int) -> Iterator[WalkedEntry]:
        try:
            with _owner(own):
                facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
                link = os.readlink(name, dir_fd=fd) if stat.S_ISLNK(facts.st_mode) else None
            if link is not None:
                yield WalkedEntry(path, facts, link=link)
                return
            if facts.st_dev != self._device or not (stat.S_ISDIR(facts.st_mode) or stat.S_ISREG(facts.st_mode)):
                return
            opened = _opened(fd, own, name, facts)
        except FileNotFoundError:
            return
        except OSError as error:
            self._leave_out(path, error.strerror or str(error))
            return
        if stat.S_ISREG(facts.st_mode):
            try:
                facts = os.fstat(opened)
                if reason := _unsafe(own, facts):
                    self._leave_out(path, reason)
                elif stat.S_ISREG(facts.st_mode):
                    yield WalkedEntry(path, facts, opened)
            finally:
                os.close(opened)
        elif depth >= _DEEPEST:
            os.close(opened)
            self._leave_out(path, f"it is more than {_DEEPEST} levels deep")
        else:
            yield WalkedEntry(path, facts)
            yield from self.below(opened, path, depth + 1)


def _opened(fd: int, own: os.stat_result, name: str, facts: os.stat_result) -> int:
    """Raises OSError."""
    flags = _DIRECTORY if stat.S_ISDIR(facts.st_mode) else _FILE
    try:
        with _owner(facts):
            return os.open(name, flags, dir_fd=fd)
    except PermissionError:
        # Its owner may not enter the directory.
        with _owner(own):
            return os.open(name, flags, dir_fd=fd)


def _unsafe(directory: os.stat_result, facts: os.stat_result) -> str:
    """Why root does not read a file: another user may have given it a second name there."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return ""
    others = directory.st_uid != 0 or directory.st_mode & 0o022
    return "it is a file of root with a second name" if others and facts.st_uid == 0 and facts.st_nlink > 1 else ""


def _owner(facts: os.stat_result) -> contextlib.AbstractContextManager[object]:
    return owner_of(facts.st_uid) or contextlib.nullcontext()
