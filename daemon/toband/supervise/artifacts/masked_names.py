"""The names of a step's files with values of its secrets masked, different for different files."""

from __future__ import annotations

import os
import sys

from toband.masker import Masker
from toband.supervise.files.safe_directory import joined


class MaskedNames:
    """For the files of one output. Paths are relative."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._known = {"": ""}
        self._taken: set[str] = set()

    def of(self, path: str) -> str:
        """The path with each of its names masked: `***`, for others of the same directory `***-2` and so on."""
        if (known := self._known.get(path)) is not None:
            return known
        directory, _, name = path.rpartition("/")
        directory = self.of(directory)
        shown = os.fsdecode(self._masker.mask(os.fsencode(name)))
        if sys.platform == "win32":
            # No name has an asterisk there.
            shown = shown.replace("*", "_")
        found, number = joined(directory, shown), 1
        while found in self._taken:
            number += 1
            found = joined(directory, f"{shown}-{number}")
        self._taken.add(found)
        self._known[path] = found
        return found
