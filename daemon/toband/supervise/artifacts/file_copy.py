"""Copies selected files: linked where that is requested and possible, else cloned, else copied."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toband.supervise.artifacts.path_selection import EMPTY_DIRECTORY, EntryKind, SelectedEntry
from toband.supervise.files.file_budget import Budget
from toband.supervise.files.file_extents import copy
from toband.supervise.files.safe_directory import NEW, SafeDirectory, SpecialFileError, joined

if sys.platform != "win32":
    from toband.supervise.shim import acl
    from toband.supervise.shim.privileges import separates_users

# Another file system, one without links, or a file at its limit of links.
_NO_LINK = frozenset(
    {
        errno.EXDEV,
        errno.EPERM,
        errno.EMLINK,
        errno.EOPNOTSUPP,
        errno.EACCES,
        errno.ENOSYS,
        errno.EINVAL,
    }
)
# Stored files are not changed by accident through a link; a step that may read them still can.
_READ_ONLY = 0o555


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Copies from one directory into another. `durable`: flushed, with its names, before its final rename."""

    source: SafeDirectory
    target: SafeDirectory
    link: bool = False
    durable: bool = False
    budget: Budget = field(default_factory=lambda: Budget(None))

    def put(self, entries: Sequence[SelectedEntry], path: str) -> Amount:
        """Replaces whatever is at `path` by the entries in one step. Its parent directory must exist.

        Files lose their write bits, and keep their owner where that is possible. Raises OSError, SpecialFileError,
        TooMuchError, StoppedError; then nothing has changed.
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

    def _write(self, entries: Sequence[SelectedEntry], new: str) -> Amount:
        if entries and not entries[0].path and entries[0].kind is not EntryKind.DIRECTORY:
            return self._single(self.target, entries[0], new)
        top = entries[0] if entries and not entries[0].path else EMPTY_DIRECTORY
        # Through its descriptor: a user who can write to the parent may rename it, but change nothing in it.
        with self.target.make_inner(new, 0o700 | top.mode & _READ_ONLY) as inner:
            return self._fill(inner, entries)

    def _fill(self, inner: SafeDirectory, entries: Sequence[SelectedEntry]) -> Amount:
        files = size = 0
        made: dict[str, SelectedEntry] = {"": EMPTY_DIRECTORY}
        sources: dict[str, SelectedEntry] = {}
        for entry in entries:
            self.budget.check()
            for above in _above(entry.path):
                if above not in made:
                    # A pattern matches the entries of a directory, and not the directory.
                    made[above] = EMPTY_DIRECTORY
                    inner.make_directory(above)
            if entry.kind is EntryKind.DIRECTORY:
                made[entry.path] = sources[entry.source] = entry
                if entry.path:
                    inner.make_directory(entry.path, 0o700 | entry.mode & _READ_ONLY)
                continue
            amount = self._single(inner, entry, entry.path)
            files, size = files + amount.files, size + amount.bytes
            self._check_directory(entry, sources)
        # Innermost first: the owner of a directory may change its entries.
        for path in reversed(made):
            if inner.user is None and _is_anothers(made[path].owner[0]):
                inner.give_directory(path, made[path].owner)
            if self.durable:
                inner.sync(path)
        return Amount(files=files, bytes=size)

    def _check_directory(self, entry: SelectedEntry, sources: Mapping[str, SelectedEntry]) -> None:
        """Does not give files from another user's directory to the owner of the selected one.

        Raises SpecialFileError.
        """
        above = entry.source.rpartition("/")[0]
        if entry.kind is not EntryKind.FILE or above not in sources or not _is_root():
            return
        facts, known = self.source.directory_facts(above), sources[above]
        if (facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode)) != (*known.owner, known.mode):
            raise SpecialFileError(f"{above} was replaced while it was read")

    def _single(self, target: SafeDirectory, entry: SelectedEntry, path: str) -> Amount:
        if entry.kind is EntryKind.LINK:
            target.make_link(path, entry.target)
            return Amount()
        return Amount(files=1, bytes=self._file(target, entry, path))

    def _file(self, target: SafeDirectory, entry: SelectedEntry, path: str) -> int:
        if not entry.source:
            fd = target.create_file(path)
            target.set_mode(path, fd, entry.mode)
            os.close(fd)
            return 0
        if self.link and (size := self._linked(target, entry, path)) is not None:
            return size
        source = self.source.open_file(entry.source)
        try:
            fd = target.create_file(path)
            try:
                size = copy(source, fd, self.budget, durable=self.durable)
                _settle(target, path, fd, os.fstat(source))
                if self.durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
        finally:
            os.close(source)
        return size

    def _linked(self, target: SafeDirectory, entry: SelectedEntry, path: str) -> int | None:
        """Links the file; its size, or None if that fails. Raises SpecialFileError if it is no longer a file."""
        try:
            target.link_file(path, self.source, entry.source)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            return None
        facts = target.facts(path)
        if not stat.S_ISREG(facts.st_mode):
            raise SpecialFileError(f"{entry.source} is not a file")
        return facts.st_size


def _settle(target: SafeDirectory, path: str, fd: int, facts: os.stat_result) -> None:
    """Keeps the owner, or lets it read: a step of another user may read again the private files that it made.

    Uses the status of the file that was read, not of its name; and comes last, since the owner may then change it.
    """
    target.set_mode(path, fd, 0o400 | facts.st_mode & _READ_ONLY)
    if sys.platform != "win32" and target.user is None and _is_anothers(facts.st_uid):
        if _is_root():
            os.fchown(fd, facts.st_uid, facts.st_gid)
        elif not facts.st_mode & 0o004:
            acl.allow_open(fd, facts.st_uid, acl.READ)


def _is_anothers(uid: int) -> bool:
    """Whether it is neither root nor this process, which starts steps of other users."""
    return sys.platform != "win32" and separates_users() and uid not in (0, os.geteuid())


def _is_root() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0


def _above(path: str) -> list[str]:
    """Its parent directories, outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]
