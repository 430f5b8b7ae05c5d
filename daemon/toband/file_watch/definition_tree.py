"""Finds definition files, and the directories that they are in.

A link to a file is followed anywhere. A link to a directory is followed only within the configured directory, and no
directory is entered twice. So a link to `/` is reported, and not walked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

from toband.file_watch.file_names import is_text, shown
from toband.ports import Listing, Mark

SUFFIXES = (".yaml", ".yml", ".json")
YOUNG = 0.3
"""Seconds after a change during which a file may still be written."""
DEEPEST = 32
"""Depth of directories."""
FILES_MOST = 20_000
"""Definition files in total."""
ENTRIES_MOST = 200_000
"""Directory entries of any kind, in total."""

NOT_TEXT = "its name is not UTF-8: rename it"
LEADS_OUT = "it is a link that leads out of the directory: list its target in definitions instead"
TOO_DEEP = f"it is more than {DEEPEST} directories deep: move it up"


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory that was listed. A new directory at the same path is a different Folder."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Tree:
    """The listing, and the directories in which it may change."""

    listing: Listing
    folders: tuple[Folder, ...]


def find(places: Sequence[str], now: float) -> Tree:
    """Lists these files and directories. `now` is the time of the wall clock."""
    search = _Search()
    for place in places:
        search.place(place)
    limit = int((now - YOUNG) * 1e9)
    young = frozenset(path for path, mark in search.files.items() if _last_change(mark) > limit)
    listing = Listing(files=search.files, unreadable=search.unreadable, young=young)
    return Tree(listing=listing, folders=tuple(search.folders))


class _TooMuchError(Exception):
    """A limit is exceeded; the text says which."""


@dataclass(slots=True)
class _Search:
    files: dict[str, Mark] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    folders: list[Folder] = field(default_factory=list)
    entries: int = 0
    _root: str = ""
    _entered: set[tuple[int, int]] = field(default_factory=set)
    _links: list[tuple[str, int]] = field(default_factory=list)
    """Links to directories, with their depth: their targets may be found without them."""

    def place(self, place: str) -> None:
        if not is_text(place):
            self.unreadable[shown(place)] = NOT_TEXT
            return
        try:
            found = os.stat(place)
        except OSError as error:
            # A missing file was removed; a missing directory may come back, as on a network file system.
            if not (is_definition(place) and os.path.isdir(os.path.dirname(place))):
                self.unreadable[place] = error.strerror or str(error)
            return
        if stat.S_ISDIR(found.st_mode):
            self._tree(place)
            if not _is_still(place, found):
                # Files that were not found moved with the directory, and are not gone.
                self.unreadable.setdefault(place, "it was moved while it was being listed")
        elif stat.S_ISREG(found.st_mode):
            self.files[place] = _mark(found)
        else:
            self.unreadable[place] = "it is neither a file nor a directory"

    def _tree(self, place: str) -> None:
        self._root, self._entered, self._links = os.path.realpath(place), set(), []
        try:
            self._enter(place, DEEPEST)
            # Directories are found under their own names first. Linked ones may have links themselves.
            for path, depth in self._links:
                self._follow(path, depth)
        except _TooMuchError as error:
            # Files that are left out do not count as removed.
            self.unreadable[place] = str(error)

    def _enter(self, directory: str, depth: int) -> None:
        try:
            here = os.stat(directory)
            with os.scandir(directory) as entries:
                names = sorted(self._counted(entry.name) for entry in entries)
        except OSError as error:
            self.unreadable[directory] = error.strerror or str(error)
            return
        identity = (here.st_dev, here.st_ino)
        if identity in self._entered:
            return
        if depth == 0:
            self.unreadable[directory] = TOO_DEEP
            return
        self._entered.add(identity)
        self.folders.append(Folder(directory, *identity))
        for name in names:
            if not _is_hidden(name):
                self._entry(os.path.join(directory, name), name, depth - 1)

    def _counted(self, name: str) -> str:
        self.entries += 1
        if self.entries > ENTRIES_MOST:
            raise _TooMuchError(f"it has more than {ENTRIES_MOST:,} entries: list fewer directories")
        return name

    def _entry(self, path: str, name: str, depth: int) -> None:
        if is_text(name):
            self._look_at(path, depth)
            return
        inside = _Search(entries=self.entries, _root=self._root, _entered=self._entered)
        inside._look_at(path, depth)
        self.entries = inside.entries
        if inside.files or inside.unreadable:
            self.unreadable[shown(path)] = NOT_TEXT

    def _look_at(self, path: str, depth: int) -> None:
        try:
            found = os.stat(path)
            link = stat.S_ISDIR(found.st_mode) and os.path.islink(path)
        except OSError as error:
            # A broken link is not a file, nor is a file that is gone by now.
            if not isinstance(error, FileNotFoundError):
                self.unreadable[path] = error.strerror or str(error)
            return
        if link:
            self._links.append((path, depth))
        elif stat.S_ISDIR(found.st_mode):
            self._enter(path, depth)
        elif stat.S_ISREG(found.st_mode) and is_definition(path):
            if len(self.files) >= FILES_MOST:
                raise _TooMuchError(f"it has more than {FILES_MOST:,} definition files: split it")
            self.files[path] = _mark(found)

    def _follow(self, path: str, depth: int) -> None:
        target = os.path.realpath(path)
        if target == self._root or target.startswith(self._root.rstrip(os.sep) + os.sep):
            self._enter(path, depth)
        else:
            self.unreadable[path] = LEADS_OUT


def is_definition(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _is_still(place: str, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(place), found)
    except OSError:
        return False


def _is_hidden(name: str) -> bool:
    """Hidden files, and backup and temporary files of editors."""
    return name.startswith((".", "#")) or name.endswith(("~", ".swp", ".tmp", ".bak"))


def _mark(found: os.stat_result) -> Mark:
    return Mark(
        device=found.st_dev,
        inode=found.st_ino,
        size=found.st_size,
        modified_ns=found.st_mtime_ns,
        changed_ns=found.st_ctime_ns,
    )


def _last_change(mark: Mark) -> int:
    return max(mark.modified_ns, mark.changed_ns)
