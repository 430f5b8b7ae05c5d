"""The daemon's own files. Reporting their changes would write to them again, without end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_BESIDE_DATABASE = ("", "-wal", "-shm", "-journal", "-ballast")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFiles:
    """Paths without links: directories with all below them, and single files."""

    trees: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    @classmethod
    def of(cls, *, state_dir: str, database_file: str = "", logs: Iterable[str] = ()) -> OwnFiles:
        """`database_file` is empty if there is none."""
        database = [database_file + end for end in _BESIDE_DATABASE] if database_file else []
        return cls(
            trees=frozenset({os.path.realpath(state_dir)}),
            files=frozenset(map(os.path.realpath, (*database, *logs))),
        )

    def has(self, path: str) -> bool:
        """Whether a path without links is one of them, or below one."""
        return path in self.files or any(
            path == tree or path.startswith(tree.rstrip(os.sep) + os.sep) for tree in self.trees
        )


NO_FILES = OwnFiles()


def printed_to() -> Sequence[str]:
    """Files that standard output and error are redirected to, where the system shows them."""
    if sys.platform == "win32":
        return []
    paths = (os.path.realpath(f"/proc/self/fd/{number}") for number in (1, 2))
    return [path for path in paths if os.path.isfile(path)]
