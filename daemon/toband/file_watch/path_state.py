"""State of a watched path, and the directories to watch for changes of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

NETWORK: Final = frozenset(
    {
        *("9p", "afs", "ceph", "cifs", "coda", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs"),
        *("fuse.sshfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"),
    }
)
"""File systems on which changes by other machines cause no notification."""


@dataclass(frozen=True, slots=True)
class Spot:
    """An existing directory to watch, alone or as a tree. A new directory at the same path is a different Spot."""

    path: str
    device: int
    inode: int
    tree: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PathState:
    """State of a declared path.

    `mark` identifies the content of a file, or a directory; None: nothing exists there. `root` is the directory that
    the path leads to, empty if none. `own` are its names without links; `names` are the paths whose creation or
    deletion changes it: its own names, or missing directories above them.
    """

    mark: tuple[int, ...] | None
    root: str
    own: frozenset[str]
    names: frozenset[str]
    spots: frozenset[Spot]


def state_of(declared: str) -> PathState:
    """The state of an absolute path. Raises OSError, but not for a missing one."""
    entry = os.path.join(os.path.realpath(os.path.dirname(declared)), os.path.basename(declared.rstrip(os.sep)))
    real = os.path.realpath(declared)
    found = _stat(declared)
    names: set[str] = set()
    spots: set[Spot] = set()
    own = frozenset({entry, real})
    for path in own:
        spot, name = _above(path)
        names.add(name)
        if spot is not None:
            spots.add(spot)
    root = real if found is not None and stat.S_ISDIR(found.st_mode) else ""
    if found is not None and root:
        spots.add(Spot(root, found.st_dev, found.st_ino, True))
    return PathState(mark=_mark(found), root=root, own=own, names=frozenset(names), spots=frozenset(spots))


def is_as_before(declared: str, state: PathState) -> bool:
    """A quick check; the watches notice the rest. Raises OSError."""
    if _mark(_stat(declared)) != state.mark:
        return False
    return all(
        (found := _stat(spot.path)) is not None and (found.st_dev, found.st_ino) == (spot.device, spot.inode)
        for spot in state.spots
    )


def _above(path: str) -> tuple[Spot | None, str]:
    """The nearest existing directory above it, and the entry in it whose creation or deletion matters."""
    name, directory = path, os.path.dirname(path)
    while True:
        found = _stat(directory)
        if found is not None and stat.S_ISDIR(found.st_mode):
            return Spot(directory, found.st_dev, found.st_ino, False), name
        if directory == os.path.dirname(directory):
            return None, name
        name, directory = directory, os.path.dirname(directory)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _mark(found: os.stat_result | None) -> tuple[int, ...] | None:
    if found is None:
        return None
    if stat.S_ISDIR(found.st_mode):
        return (found.st_dev, found.st_ino)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def mounts(table: str = "/proc/self/mountinfo") -> dict[str, str]:
    """Types of file systems by mount point; empty where the system does not show them."""
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")[0]
        if len(fields) > 4 and kind:
            found[_unescaped(fields[4])] = kind
    return found


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def remote(paths: Iterable[str], mounted: dict[str, str]) -> dict[str, str]:
    """The paths on network file systems, with the type."""
    found = {}
    for path in paths:
        above = path
        while above not in mounted and above != os.path.dirname(above):
            above = os.path.dirname(above)
        if mounted.get(above) in NETWORK:
            found[path] = mounted[above]
    return found
