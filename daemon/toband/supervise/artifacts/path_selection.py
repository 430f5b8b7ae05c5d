"""Resolves a path or pattern to its files: a file, a directory tree, or all matches. Links must stay inside."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import posixpath
import re
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from toband.supervise.files.file_budget import Budget, TooMuchError
from toband.supervise.files.file_extents import NO_CONTENTS, data_bytes, digest
from toband.supervise.files.safe_directory import NEW, OLD, SafeDirectory, SpecialFileError, clean, joined

MISSING = "missing"
"""The fingerprint of a missing path."""
_MAGIC = re.compile(r"[*?[]")
# Where links may not be created, their targets are copied.
_KEEPS_LINKS = sys.platform != "win32"


class EntryKind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedEntry:
    """`path` is where it appears, `source` where it is. A link points to `target`, relative to where it appears.

    A file without a source is empty. `owner` is a user and a group; `size` is that of a file, with its holes.
    """

    path: str
    source: str
    kind: EntryKind
    mode: int = 0
    owner: tuple[int, int] = (0, 0)
    target: str = ""
    size: int = 0


EMPTY_FILE = SelectedEntry(path="", source="", kind=EntryKind.FILE, mode=0o444)
EMPTY_DIRECTORY = SelectedEntry(path="", source="", kind=EntryKind.DIRECTORY, mode=0o755)


class _Root(NamedTuple):
    """A directory being walked, and where it appears."""

    source: str
    shown: str


class _Match(NamedTuple):
    """`shallow`: its subdirectories are matches of their own."""

    shown: str
    source: str
    shallow: bool = False


def is_pattern(path: str) -> bool:
    return _MAGIC.search(path) is not None


def select(
    inside: SafeDirectory, path: str, budget: Budget, skip: Collection[tuple[int, int]] = ()
) -> Sequence[SelectedEntry]:
    """All entries that the path selects, sorted by where they appear, directories before their entries; may be empty.

    A path that ends with a slash selects directories only. Those in `skip`, by device and inode, are passed over.
    Raises LeadsOutError, SpecialFileError, TooMuchError, StoppedError, OSError.
    """
    directories = path.endswith("/")
    path = clean(path)
    budget.check_depth(path)
    if is_pattern(path):
        matches = _matches(inside, path, budget)
    else:
        source = inside.resolve(path)
        matches = [_Match(path, source)] if inside.exists(source) else []
    found: dict[str, SelectedEntry] = {}
    for match in matches:
        if directories and not stat.S_ISDIR(inside.facts(match.source).st_mode):
            continue
        for entry in _below(inside, match, skip, budget):
            found[entry.path] = entry
    return [found[name] for name in sorted(found)]


def tree(inside: SafeDirectory, path: str, budget: Budget) -> Sequence[SelectedEntry]:
    """The tree at that path, which is not a link; it appears as the empty path. Raises as `select` does."""
    return sorted(_below(inside, _Match("", path), (), budget), key=lambda entry: entry.path)


def check_size(inside: SafeDirectory, entries: Iterable[SelectedEntry], budget: Budget) -> None:
    """Checks that the data of all files is within the limit, before any is read. Raises as `select` does."""
    if budget.limits is None:
        return
    most = budget.limits.bytes
    files = [entry for entry in entries if entry.kind is EntryKind.FILE and entry.source]
    apparent = sum(entry.size for entry in files)
    budget.check_apparent(apparent)
    if apparent <= most:
        return
    total = 0
    for entry in files:
        if not entry.size:
            continue
        fd = inside.open_file(entry.source)
        try:
            total += data_bytes(fd, budget, most - total)
        finally:
            os.close(fd)
        if total > most:
            raise budget.too_many_bytes()


def _below(
    inside: SafeDirectory, match: _Match, skip: Collection[tuple[int, int]], budget: Budget
) -> Iterator[SelectedEntry]:
    budget.count_entry(match.source)
    facts = inside.facts(match.source)
    yield _entry(match.shown, match.source, facts)
    if not stat.S_ISDIR(facts.st_mode) or match.shallow:
        return
    root = _Root(match.source, match.shown)
    waiting: list[tuple[str, str, tuple[_Root, ...]]] = [(root.source, root.shown, (root,))]
    while waiting:
        directory, shown_in, roots = waiting.pop()
        for name in inside.names(directory, budget.most_names()):
            source, shown = joined(directory, name), joined(shown_in, name)
            if name.startswith((NEW, OLD)):
                continue  # left by an interrupted copy
            budget.count_entry(shown)
            facts = inside.facts(source)
            inner = roots
            if stat.S_ISLNK(facts.st_mode):
                target = inside.resolve(source)
                kept = _shown(target, roots)
                if kept is not None and _KEEPS_LINKS:
                    text = posixpath.relpath(kept or ".", shown_in or ".")
                    yield SelectedEntry(path=shown, source=source, kind=EntryKind.LINK, target=text)
                    continue
                facts, source = _led_to(inside, source, target), target
                if any(_holds(target, each.source) for each in roots):
                    raise SpecialFileError(f"{joined(directory, name)} leads in a circle")
                inner = (*roots, _Root(source, shown))
            if stat.S_ISDIR(facts.st_mode):
                if (facts.st_dev, facts.st_ino) in skip:
                    continue
                waiting.append((source, shown, inner))
            yield _entry(shown, source, facts)


def _holds(directory: str, path: str) -> bool:
    return not directory or path == directory or path.startswith(f"{directory}/")


def _led_to(inside: SafeDirectory, link: str, target: str) -> os.stat_result:
    try:
        return inside.facts(target)
    except (FileNotFoundError, NotADirectoryError):
        raise SpecialFileError(f"{link} is a link to nothing") from None


def _shown(target: str, roots: Sequence[_Root]) -> str | None:
    """Where a target inside one of them appears."""
    for root in reversed(roots):
        if _holds(root.source, target):
            return joined(root.shown, target[len(root.source) :].lstrip("/"))
    return None


def _entry(shown: str, source: str, facts: os.stat_result) -> SelectedEntry:
    mode, owner = stat.S_IMODE(facts.st_mode), (facts.st_uid, facts.st_gid)
    if stat.S_ISREG(facts.st_mode):
        return SelectedEntry(path=shown, source=source, kind=EntryKind.FILE, mode=mode, owner=owner, size=facts.st_size)
    if stat.S_ISDIR(facts.st_mode):
        return SelectedEntry(path=shown, source=source, kind=EntryKind.DIRECTORY, mode=mode, owner=owner)
    kind = next((text for fits, text in _SPECIAL if fits(facts.st_mode)), "neither a file nor a directory")
    raise SpecialFileError(f"{shown or source} is {kind}")


_SPECIAL = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


# -- patterns


def _matches(inside: SafeDirectory, pattern: str, budget: Budget) -> list[_Match]:
    """Matches of a pattern: `*`, `?` and `[…]` within a name, `**` for any number of directories. A leading dot must be
    written out. Links to directories are followed where the pattern names them, not by `**`.
    """
    parts: list[str] = []
    for part in pattern.split("/"):
        if part and not (part == "**" and parts and parts[-1] == "**"):
            parts.append(part)
    found: list[_Match] = []
    waiting = [("", "", 0)]
    seen = set(waiting)
    while waiting:
        shown_in, directory, number = waiting.pop()
        part, last = parts[number], number + 1 == len(parts)
        following: list[tuple[str, str, int]] = []
        if part == "**" and not last:
            following.append((shown_in, directory, number + 1))
        for name in _fitting(inside, directory, part, budget):
            shown = joined(shown_in, name)
            link = joined(directory, name)
            budget.check()
            budget.check_depth(shown)
            try:
                is_link = stat.S_ISLNK(inside.facts(link).st_mode)
                source = inside.resolve(link) if is_link else link
                is_directory = stat.S_ISDIR(inside.facts(source).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                continue  # a link to nothing
            if part == "**":
                if is_directory and source != link:
                    continue
                if last:
                    found.append(_Match(shown, source, shallow=True))
                if is_directory:
                    following.append((shown, source, number))
            elif last:
                found.append(_Match(shown, source))
            elif is_directory:
                following.append((shown, source, number + 1))
        for each in following:
            if each not in seen:
                seen.add(each)
                waiting.append(each)
        if budget.limits is not None and len(seen) + len(found) > 2 * budget.limits.files:
            raise TooMuchError(
                f"{pattern} is more than {budget.limits.files} files and directories (limits.artifact_files)"
            )
    return found


def _fitting(inside: SafeDirectory, directory: str, part: str, budget: Budget) -> Iterable[str]:
    if not is_pattern(part):
        return [part] if inside.exists(joined(directory, part)) else []
    flags = re.IGNORECASE if sys.platform == "win32" else 0
    fits = re.compile(fnmatch.translate("*" if part == "**" else part), flags).match
    hidden = part.startswith(".")
    return [
        name
        for name in inside.names(directory, budget.most_names())
        if fits(name) and (hidden or not name.startswith(".")) and not name.startswith((NEW, OLD))
    ]


# -- comparing


def fingerprint(inside: SafeDirectory, entries: Sequence[SelectedEntry], budget: Budget) -> str:
    """Changes with names, contents and execute bits. Raises OSError, SpecialFileError, TooMuchError."""
    if not entries:
        return MISSING
    check_size(inside, entries, budget)
    whole = hashlib.sha256()
    for entry in entries:
        budget.check()
        executable = entry.kind is EntryKind.FILE and entry.mode & 0o111 != 0
        whole.update(
            f"{entry.kind.value}\0{entry.path}\0{executable:d}\0{entry.target}\0".encode(errors="surrogateescape")
        )
        if entry.kind is EntryKind.FILE:
            whole.update(_digest(inside, entry.source, budget))
    return whole.hexdigest()


def _digest(inside: SafeDirectory, path: str, budget: Budget) -> bytes:
    if not path:
        return NO_CONTENTS
    fd = inside.open_file(path)
    try:
        return digest(fd, budget)
    finally:
        os.close(fd)


def identity(inside: SafeDirectory, path: str, budget: Budget) -> str:
    """Changes whenever the files are touched: by inode, size and time, without reading them.

    Raises OSError, TooMuchError, StoppedError.
    """
    whole = hashlib.sha256()
    waiting = [path]
    while waiting:
        here = waiting.pop()
        budget.count_entry(here)
        facts = inside.facts(here)
        if stat.S_ISDIR(facts.st_mode):
            # Its time changes when a name is added or removed.
            names = inside.names(here, budget.most_names())
            waiting += [joined(here, name) for name in names]
        kind = stat.S_IFMT(facts.st_mode)
        text = f"{here}\0{kind}\0{facts.st_ino}\0{facts.st_size}\0{facts.st_mtime_ns}\0"
        whole.update(text.encode(errors="surrogateescape"))
    return whole.hexdigest()
