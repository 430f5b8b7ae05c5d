"""Cache of loaded definition files, in a file that outlives the daemon.

One line for each file; a later line replaces an earlier one. So a change is one line, and a truncated line affects only
itself. Nothing is synced: a lost line only costs time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import structlog

from toban import definition
from toband import stored_json
from toband.ports import KnownFile

SPARE = 1000
"""Outdated lines, beyond one for each file, after which the file is rewritten."""

log = structlog.get_logger()


class RememberedFiles:
    """Implements `ports.DefinitionMemory`."""

    def __init__(self, path: str, reader: str) -> None:
        """`reader` identifies the code that parsed the files: entries of another one are ignored."""
        self._path = path
        self._head = json.dumps({"reader": reader}) + "\n"
        self._lines = 0
        """Lines in the file; 0: it must be rewritten."""

    async def recall(self) -> Mapping[str, KnownFile]:
        return await asyncio.to_thread(self._recall)

    async def remember(self, files: Mapping[str, KnownFile], changed: Collection[str]) -> None:
        try:
            await asyncio.to_thread(self._remember, files, changed)
        except OSError as error:
            self._lines = 0
            text = "cannot save the cache of definition files: the next start takes longer"
            log.warning(text, action="note_failed", file=self._path, error=str(error))

    def _recall(self) -> Mapping[str, KnownFile]:
        files: dict[str, KnownFile] = {}
        try:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                if file.readline() != self._head:
                    return {}
                self._lines = 1
                for line in file:
                    self._lines += 1
                    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                        _apply(stored_json.parse(line), files)
        except OSError:
            return {}
        return files

    def _remember(self, files: Mapping[str, KnownFile], changed: Collection[str]) -> None:
        if self._lines and self._lines + len(changed) <= 2 * len(files) + SPARE:
            with open(self._path, "a", encoding="utf-8") as file:
                # Starts a new line, in case the last one was truncated.
                file.write("\n")
                file.writelines(_line(path, files.get(path)) for path in sorted(changed))
            self._lines += len(changed) + 1
            return
        self._write((self._head, *(_line(path, known) for path, known in files.items())))
        self._lines = len(files) + 1

    def _write(self, lines: Iterable[str]) -> None:
        new = f"{self._path}.new"
        with open(new, "w", encoding="utf-8") as file:
            file.writelines(lines)
        os.replace(new, self._path)


def reader_of_definitions(version: str, zone: str, shell: str, calendar: str) -> str:
    """Changes with everything that storing depends on: release, parser, default zone, shell and calendar."""
    digest = hashlib.sha256()
    for folder in definition.__path__:
        for place, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted(names):
                if name.endswith(".py"):
                    with open(os.path.join(place, name), "rb") as file:
                        digest.update(file.read())
    return f"{version} {zone} {shell} {calendar} {digest.hexdigest()}"


def _line(path: str, known: KnownFile | None) -> str:
    facts: dict[str, Any] = {"path": path}
    if known is not None:
        facts |= {"digest": known.digest, "stored": dict(known.stored)}
        if known.warnings:
            facts["warnings"] = known.warnings
    return json.dumps(facts) + "\n"


def _apply(facts: Any, files: dict[str, KnownFile]) -> None:
    """Raises ValueError, KeyError, TypeError or AttributeError for a damaged line."""
    path = str(facts["path"])
    if "digest" not in facts:
        files.pop(path, None)
        return
    files[path] = KnownFile(
        digest=str(facts["digest"]),
        stored={str(name): str(state) for name, state in facts["stored"].items()},
        warnings=tuple(map(str, facts.get("warnings", ()))),
    )
