"""A directory that no path or link can escape.

The files of steps are read and written relative to directory descriptors, one name at a time and never through a link:
a process that changes the directory meanwhile cannot make the daemon touch anything outside. Links are followed by
reading them. Windows has no such descriptors: there a directory is compared with its resolved path.

Paths are relative to the directory, with `/` between names; the empty one is the directory itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable
from itertools import islice
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

from toband.supervise.files.file_user import FileUser
from toband.supervise.files.run_directories import remove_tree

if sys.platform != "win32":
    from toband.supervise.shim import acl
    from toband.supervise.shim.trusted_path import foreign_name, open_beneath, open_directory

OLD = ".toban-old-"
NEW = ".toban-new-"
"""Prefix of names for incomplete files and files being removed; they are deleted when the same file is made again."""
_MOST_LINKS = 40
_EXCHANGE = 2
_CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_BINARY: int = getattr(os, "O_BINARY", 0)
_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
_DIRECTORY: int = os.O_RDONLY | _CLOEXEC | _NOFOLLOW | getattr(os, "O_DIRECTORY", 0)
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


class LeadsOutError(Exception):
    """A path or a link leads out of the directory; the text says which, and where it leads."""


class SpecialFileError(Exception):
    """An entry is neither a file, a directory nor a link; the text says which."""


def joined(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def clean(path: str) -> str:
    """The path without empty parts and dots, in Unix notation. Raises LeadsOutError if it leads out."""
    if sys.platform == "win32":
        path = path.replace("\\", "/")
        if os.path.splitdrive(path)[0] or ":" in path:
            raise LeadsOutError(f"{path} is not relative")
    if "\0" in path:
        raise LeadsOutError("a path has no null characters")
    if path.startswith("/"):
        raise LeadsOutError(f"{path} is absolute")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise LeadsOutError(f"{path} leads out with ..")
    return "/".join(parts)


def _replaced(path: str) -> PermissionError:
    return PermissionError(errno.EPERM, "another process has put something else there", path)


def _as_user(
    method: Callable[Concatenate[SafeDirectory, _Given], _Found],
) -> Callable[Concatenate[SafeDirectory, _Given], _Found]:
    """Runs the method with the rights of the directory's `user`."""

    def run(self: SafeDirectory, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Found:
        if self.user is None or self._acting:
            return method(self, *args, **kwargs)
        with self.user:
            self._acting = True
            try:
                return method(self, *args, **kwargs)
            finally:
                self._acting = False

    return run


class SafeDirectory:
    """One such directory, opened. Used by one thread at a time. Its methods raise OSError.

    On the way to it, only links are followed that no other user can have made; see `trusted_path`. `real` is its
    resolved path. `make`: missing directories on the way are created. `opened`: its descriptor, which is closed with
    it. `user`: everything is done with the rights of this user.
    """

    def __init__(self, path: str, *, make: bool = False, opened: int = -1, user: FileUser | None = None) -> None:
        self.user = user
        self._acting = False
        self.path = os.path.abspath(path)
        self.real = self.path
        self._top = opened
        self._near: tuple[str, int] | None = None
        if sys.platform == "win32":
            if make:
                os.makedirs(path, exist_ok=True)
            self.real = os.path.realpath(path)
            if not os.path.isdir(self.real):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        elif opened < 0:
            self._open_top(path, make=make)

    if sys.platform != "win32":

        @_as_user
        def _open_top(self, path: str, *, make: bool) -> None:
            self._top, self.real = open_directory(path, make=make, uid=self.user.uid if self.user else None)

    def __enter__(self) -> SafeDirectory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._forget()
        if self._top >= 0:
            os.close(self._top)
            self._top = -1

    @property
    def identity(self) -> tuple[int, int]:
        facts = self.facts("")
        return facts.st_dev, facts.st_ino

    # -- reading

    @_as_user
    def facts(self, path: str) -> os.stat_result:
        """The status of the entry itself, even if it is a link."""
        name, at = self._at(path)
        return os.stat(name, dir_fd=at, follow_symlinks=False)

    @_as_user
    def exists(self, path: str) -> bool:
        try:
            self.facts(path)
        except _NOT_THERE:
            return False
        return True

    @_as_user
    def directory_facts(self, path: str) -> os.stat_result:
        """The status of the open directory that is used for this path."""
        if sys.platform == "win32":
            return self.facts(path)
        return os.fstat(self._directory(path))

    @_as_user
    def names(self, path: str, most: int | None = None) -> list[str]:
        """The names in a directory, sorted; if there are more than `most`, any `most` of them."""
        if sys.platform == "win32":
            return sorted(os.listdir(self._at(path)[0]))
        with os.scandir(self._directory(path)) as entries:
            return sorted(entry.name for entry in islice(entries, most))

    @_as_user
    def resolve(self, path: str) -> str:
        """The path with links followed; it need not exist. Raises LeadsOutError."""
        waiting = path.split("/")[::-1]
        done: list[str] = []
        links = 0
        reason = f"{path} leads out"
        while waiting:
            part = waiting.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not done:
                    raise LeadsOutError(reason)
                done.pop()
                continue
            here = joined(*done, part)
            text = self._link_at(here)
            if text is None:
                done.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise LeadsOutError(f"{path} leads in a circle")
            reason = f"{here} is a link to {text}"
            if os.path.isabs(text):
                below = self._below(text)
                if below is None:
                    raise LeadsOutError(reason)
                done, text = [], below
            waiting += text.replace(os.sep, "/").split("/")[::-1]
        return "/".join(done)

    def _link_at(self, path: str) -> str | None:
        """The target of a link; None if it is no link, or does not exist."""
        try:
            if not stat.S_ISLNK(self.facts(path).st_mode):
                return None
            name, at = self._at(path)
            return os.readlink(name, dir_fd=at)
        except _NOT_THERE:
            return None

    def _below(self, text: str) -> str | None:
        for own in (self.path, self.real):
            if text == own or text.startswith(own.rstrip(os.sep) + os.sep):
                return text[len(own) :].strip(os.sep)
        return None

    @_as_user
    def open_file(self, path: str) -> int:
        """Raises SpecialFileError if it is not a file, or no longer one; or if another user made its name."""
        name, at = self._at(path)
        if sys.platform == "win32" and os.path.isdir(name):
            raise SpecialFileError(f"{path} is not a file")
        # Does not block on a pipe without a writer.
        fd = os.open(name, os.O_RDONLY | _NOFOLLOW | _NONBLOCK | _CLOEXEC | _BINARY, dir_fd=at)
        facts = os.fstat(fd)
        reason = "" if stat.S_ISREG(facts.st_mode) else "is not a file"
        if sys.platform != "win32" and foreign_name(at, facts):
            reason = "is a file of the daemon's or root's that has another name elsewhere"
        if reason:
            os.close(fd)
            raise SpecialFileError(f"{path} {reason}")
        return fd

    # -- changing

    @_as_user
    def create_file(self, path: str) -> int:
        name, at = self._at(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC | _BINARY
        return os.open(name, flags, 0o600, dir_fd=at)

    @_as_user
    def make_directory(self, path: str, mode: int = 0o755) -> None:
        name, at = self._at(path)
        os.mkdir(name, mode, dir_fd=at)

    @_as_user
    def make_inner(self, path: str, mode: int = 0o755) -> SafeDirectory:
        """Creates a directory and opens it, so that its entries can be created even if it is renamed."""
        self.make_directory(path, mode)
        name, at = self._at(path)
        if sys.platform == "win32":
            return SafeDirectory(name)
        fd = os.open(name, _DIRECTORY, dir_fd=at)
        if os.listdir(fd):
            os.close(fd)
            raise _replaced(joined(self.path, path))
        return SafeDirectory(joined(self.path, path), opened=fd, user=self.user)

    @_as_user
    def make_directories(self, path: str) -> list[str]:
        """Creates the directory and its missing parents; returns the created ones."""
        made = []
        here = ""
        for part in path.split("/") if path else ():
            here = joined(here, part)
            with contextlib.suppress(FileExistsError):
                self.make_directory(here)
                made.append(here)
        # None of them may be a link, or anything else.
        self.names(path)
        return made

    @_as_user
    def make_link(self, path: str, text: str) -> None:
        name, at = self._at(path)
        os.symlink(text, name, dir_fd=at)

    @_as_user
    def link_file(self, path: str, other: SafeDirectory, source: str) -> None:
        """A hard link to a file of another SafeDirectory, which may be of the same directory."""
        source_name, source_at = other._at(source)
        name, at = self._at(path)
        if sys.platform == "win32":
            os.link(source_name, name)
        else:
            os.link(source_name, name, src_dir_fd=source_at, dst_dir_fd=at, follow_symlinks=False)

    @_as_user
    def set_mode(self, path: str, fd: int, mode: int) -> None:
        """Sets the mode of an open file."""
        if sys.platform == "win32":
            os.chmod(self._at(path)[0], mode)
        else:
            os.fchmod(fd, mode)

    @_as_user
    def give_directory(self, path: str, owner: tuple[int, int]) -> None:
        """Gives a directory that this process made to another user, who may change its entries from then on.

        Its name could refer to another directory by now, so its descriptor is used. A daemon that may not give it away
        lets the user read it.
        """
        if sys.platform == "win32":
            return
        fd = self._directory(path)
        if os.fstat(fd).st_uid != os.geteuid():
            raise _replaced(joined(self.path, path))
        if sys.platform == "win32" or os.geteuid() == 0:
            os.fchown(fd, *owner)
        elif os.fstat(fd).st_mode & 0o005 != 0o005:
            acl.allow_open(fd, owner[0], acl.READ | acl.PASS)

    @_as_user
    def sync(self, path: str) -> None:
        """Makes the names in a directory durable."""
        if sys.platform == "win32":
            return  # Windows cannot flush a directory; NTFS journals names
        os.fsync(self._directory(path))

    @_as_user
    def remove(self, path: str) -> None:
        """Removes a file, a link, or a directory tree; a missing one is fine."""
        try:
            directory = stat.S_ISDIR(self.facts(path).st_mode)
        except _NOT_THERE:
            return
        name, at = self._at(path)
        if not directory:
            if sys.platform == "win32":
                with contextlib.suppress(OSError):
                    os.chmod(name, 0o600)
            os.unlink(name, dir_fd=at)
        elif at is None:
            remove_tree(name)
        else:
            remove_tree(f"/proc/self/fd/{at}/{name}")
        self._forget()

    @_as_user
    def put(self, new: str, path: str) -> None:
        """Replaces whatever is at `path` by the entry at `new`; where the system can exchange two names, one of them
        exists at every moment. Both are in the same directory.
        """
        self._forget()
        if not self.exists(path):
            self._rename(new, path)
        elif self._exchange(new, path):
            self.remove(new)
        else:
            parent, _, name = path.rpartition("/")
            old = joined(parent, f"{OLD}{name}")
            self.remove(old)
            self._rename(path, old)
            self._rename(new, path)
            self.remove(old)
        self._forget()

    @_as_user
    def replace_file(self, new: str, path: str) -> None:
        """The same for two files."""
        self._rename(new, path)

    def _rename(self, old: str, new: str) -> None:
        old_name, old_at = self._at(old)
        new_name, new_at = self._at(new)
        os.replace(old_name, new_name, src_dir_fd=old_at, dst_dir_fd=new_at)

    def _exchange(self, one: str, other: str) -> bool:
        """Whether the exchange succeeded."""
        if sys.platform != "linux":
            return False
        try:
            renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
        except AttributeError:
            return False
        name, at = self._at(one)
        other_name, _ = self._at(other)
        names = os.fsencode(name), os.fsencode(other_name)
        return bool(renameat2(at, names[0], at, names[1], _EXCHANGE) == 0)

    # -- directories

    if sys.platform == "win32":

        def _at(self, path: str) -> tuple[str, None]:
            """The absolute path, if it contains no link."""
            parent = os.path.join(self.real, *path.split("/")[:-1])
            real = os.path.realpath(parent)
            if os.path.normcase(real) != os.path.normcase(os.path.normpath(parent)):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            return os.path.normpath(os.path.join(self.real, *path.split("/"))), None

    else:

        def _at(self, path: str) -> tuple[str, int]:
            """A name, and a descriptor of its directory."""
            parent, _, name = path.rpartition("/")
            return name or ".", self._directory(parent)

        def _directory(self, path: str) -> int:
            """A descriptor that stays open until another directory is requested."""
            if not path:
                return self._top
            if self._near is not None and self._near[0] == path:
                return self._near[1]
            at, way = self._top, path
            if self._near is not None and path.startswith(f"{self._near[0]}/"):
                # Continues below the current directory: a deep tree is not walked from its top for every level.
                at, way = self._near[1], path[len(self._near[0]) + 1 :]
            try:
                fd = open_beneath(at, way)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
                raise
            self._forget()
            self._near = path, fd
            return fd

    def _forget(self) -> None:
        if self._near is not None:
            os.close(self._near[1])
            self._near = None
