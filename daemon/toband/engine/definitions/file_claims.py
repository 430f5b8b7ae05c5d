"""Which file a name belongs to, and which files are read or stored together."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from toband.engine.definitions.file_loader import ReadFile, UnusableFileError
from toband.ports import Listing, Mark, StoredWorkflow

READ_AT_ONCE, BYTES_AT_ONCE = 64, 1024 * 1024
"""Files, and about how many bytes, that are read and stored together."""


class FirstClaims:
    """Claims of names while files are still being read."""

    def __init__(self, owned: Mapping[str, StoredWorkflow]) -> None:
        self._owned = owned
        self._paths: dict[str, str] = {}

    def take(self, path: str, names: Sequence[str]) -> bool:
        """False if another file has, had or may still get one of the names: `claims_of` decides those."""
        free = True
        for name in names:
            owner = self._owned[name].file if name in self._owned else path
            free = self._paths.setdefault(name, path) == owner == path and free
        return free


def claims_of(names: Mapping[str, Sequence[str]], owned: Mapping[str, StoredWorkflow]) -> Mapping[str, str]:
    """By name, the file that it belongs to: its current owner if that still defines it, else the first by path.

    `names` are those of each file, by path.
    """
    claims: dict[str, str] = {}
    for path in sorted(names):
        for name in names[path]:
            if name not in claims or (name in owned and owned[name].file == path):
                claims[name] = path
    return claims


def check_claims(file: ReadFile, claims: Mapping[str, str]) -> None:
    """Raises UnusableFileError for names that belong to another file."""
    taken = [
        f"{file.path}:{document.line}:1: {document.name!r} is defined twice: also in {claims[document.name]}"
        for document in file.documents
        if claims[document.name] != file.path
    ]
    if taken:
        raise UnusableFileError(taken)


def losing(file: ReadFile, owned: Mapping[str, StoredWorkflow], listing: Listing) -> Mapping[str, str]:
    """By name, the owners that may lose it to this file; never a file that cannot be read."""
    return {
        name: owned[name].owner
        for name in file.names
        if name in owned and not below(owned[name].file, listing.unreadable)
    }


def below(path: str, roots: Iterable[str]) -> bool:
    """Whether the path is one of the roots, or below one."""
    return any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in roots)


def by_owner(owned: Iterable[StoredWorkflow]) -> Mapping[str, Sequence[StoredWorkflow]]:
    by_owner: dict[str, list[StoredWorkflow]] = defaultdict(list)
    for each in owned:
        by_owner[each.file].append(each)
    return by_owner


def portions(files: Mapping[str, Mark]) -> Iterator[Sequence[str]]:
    paths: list[str] = []
    size = 0
    for path, mark in files.items():
        if paths and (len(paths) == READ_AT_ONCE or size + mark.size > BYTES_AT_ONCE):
            yield paths
            paths, size = [], 0
        paths.append(path)
        size += mark.size
    if paths:
        yield paths
