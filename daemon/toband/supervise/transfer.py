"""Making a copy of what was selected: linked where that is asked for and possible, else cloned, else copied."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from toband.supervise.budget import Budget
from toband.supervise.extents import copy
from toband.supervise.inside import NEW, Inside, joined
from toband.supervise.selection import Entry, Kind

# Another file system, one without links, or a file that has as many as it can have.
_NO_LINK = frozenset(
    {
        errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES, errno.ENOSYS, errno.EINVAL,
    }
)  # fmt: skip
# What is kept is not changed by accident through a link to it; a step that may read it may still.
_READ_ONLY = 0o555


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """From one directory into another. `durable`: on disk, with its names, before it has its place."""

    source: Inside
    target: Inside
    link: bool = False
    durable: bool = False
    budget: Budget = field(default_factory=lambda: Budget(None))

    def put(self, entries: Sequence[Entry], path: str) -> Amount:
        """What is at `path`, if anything, is replaced by the entries in one step. The directory that it is in is there.

        Files lose their write bits, and keep their owner where that is possible. Raises OSError, SpecialFileError,
        TooMuchError, StoppedError; then all is as it was.
        """
        parent, _, name = path.rpartition("/")
        new = joined(parent, f"{NEW}{name}")
        self.target.remove(new)
        try:
            amount = self._write(entries, new)
            self.target.put(new, path)
        except BaseException:
            self.target.remove(new)
            raise
        if self.durable:
            self.target.sync(parent)
        return amount

    def _write(self, entries: Sequence[Entry], top: str) -> Amount:
        files = size = 0
        made = {""}
        directories: list[str] = []
        if not entries or entries[0].path:
            directories.append(top)
            self.target.make_directory(top)
        for entry in entries:
            self.budget.check()
            path = joined(top, entry.path)
            for above in _above(entry.path):
                if above not in made:
                    # A pattern fits what is in a directory, and not the directory.
                    made.add(above)
                    directories.append(joined(top, above))
                    self.target.make_directory(directories[-1])
            match entry.kind:
                case Kind.DIRECTORY:
                    made.add(entry.path)
                    directories.append(path)
                    self.target.make_directory(path, 0o700 | entry.mode & _READ_ONLY)
                    self._give_back(entry, path)
                case Kind.LINK:
                    self.target.make_link(path, entry.target)
                case Kind.FILE:
                    files += 1
                    size += self._file(entry, path)
        if self.durable:
            for directory in reversed(directories):
                self.target.sync(directory)
        return Amount(files=files, bytes=size)

    def _give_back(self, entry: Entry, path: str) -> None:
        """Root keeps it whose it was: a step of another user may read again what it made for itself alone."""
        if sys.platform != "win32" and os.geteuid() == 0 and entry.owner != (0, 0):
            self.target.set_owner(path, entry.owner)

    def _file(self, entry: Entry, path: str) -> int:
        if not entry.source:
            fd = self.target.create_file(path)
            self.target.set_mode(path, fd, entry.mode)
            os.close(fd)
            return 0
        if self.link:
            try:
                self.target.link_file(path, self.source, entry.source)
                return self.target.facts(path).st_size
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
        source = self.source.open_file(entry.source)
        try:
            fd = self.target.create_file(path)
            try:
                size = copy(source, fd, self.budget, durable=self.durable)
                self._give_back(entry, path)
                self.target.set_mode(path, fd, 0o400 | entry.mode & _READ_ONLY)
                if self.durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
        finally:
            os.close(source)
        return size


def _above(path: str) -> list[str]:
    """The directories on the way to it, outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]
