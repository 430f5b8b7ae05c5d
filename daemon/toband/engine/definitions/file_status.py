"""State of each definition file, for health, `toban system info` and the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from toband.engine.definitions.file_loader import ReadFile
from toband.ports import Clock, Conditions, HealthStatus, Mark

CONDITION = "definitions"
PROBLEMS_MOST = 20
"""Lines that are kept of one file."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionFileState:
    """A file, or a directory that cannot be listed. A broken file keeps the names that it had before.

    `mark` is that of the content that was last read; None: it must be read again. `loaded_at` is None if an earlier
    daemon stored its definitions.
    """

    path: str
    mark: Mark | None
    names: tuple[str, ...] = ()
    broken: bool = False
    problems: tuple[str, ...] = ()
    loaded_at: datetime | None = None


class FileStates:
    """Belongs to the event loop."""

    def __init__(self, clock: Clock, conditions: Conditions) -> None:
        self._clock = clock
        self._conditions = conditions
        self._files: dict[str, DefinitionFileState] = {}
        self._unreadable: Mapping[str, str] = {}
        self._failure = ""

    @property
    def all(self) -> Sequence[DefinitionFileState]:
        """Broken ones first, then by path."""
        return sorted(
            (*self._files.values(), *self._unlisted()),
            key=lambda each: (not each.broken, each.path),
        )

    @property
    def paths(self) -> Iterable[str]:
        return self._files.keys()

    def are_settled(self, paths: Iterable[str]) -> bool:
        """Whether none of these files must be read again."""
        states = (self._files.get(path) for path in paths)
        return all(state and not state.broken and state.mark is not None for state in states)

    def of(self, path: str) -> DefinitionFileState | None:
        return self._files.get(path)

    def names_of(self, path: str) -> tuple[str, ...]:
        state = self._files.get(path)
        return state.names if state is not None else ()

    def gone(self, path: str) -> None:
        del self._files[path]

    def unreadable(self, reasons: Mapping[str, str]) -> None:
        """Sets the reasons why paths cannot be listed."""
        self._unreadable = reasons

    def synced(self, failure: Exception | None) -> None:
        """Sets the error of the last pass, None if it succeeded."""
        self._failure = f"{type(failure).__name__}: {failure}" if failure is not None else ""

    def usable(self, file: ReadFile, names: tuple[str, ...], warnings: tuple[str, ...]) -> None:
        before = self._files.get(file.path)
        self._files[file.path] = DefinitionFileState(
            path=file.path,
            mark=file.mark,
            names=names,
            problems=_cut(warnings),
            loaded_at=self._clock.now(),
        )
        if before is not None and before.broken:
            log.info("a definition file is usable again", action="definitions_usable", path=file.path)
        told = self._files[file.path].problems
        # Warnings of a cached file have been logged before.
        if told and not file.cached and (before is None or before.problems != told):
            log.warning(
                "a definition file has warnings",
                action="definitions_warned",
                path=file.path,
                problems=list(told),
            )

    def broken(
        self,
        file: ReadFile,
        problems: tuple[str, ...],
        names: Sequence[str],
        cause: Exception | None = None,
    ) -> None:
        """Its definitions stay as they are. `names` are those that it owns, for a file that was not read before."""
        before = self._files.get(file.path)
        after = DefinitionFileState(
            path=file.path,
            mark=file.mark,
            names=before.names if before is not None and before.names else tuple(names),
            broken=True,
            problems=_cut(problems),
            loaded_at=before.loaded_at if before is not None else None,
        )
        self._files[file.path] = after
        if before is None or replace(before, mark=None) != replace(after, mark=None):
            log.error(
                "cannot use a definition file: its definitions stay as they are",
                action="definitions_broken",
                path=file.path,
                problems=list(after.problems),
                exc_info=cause,
            )

    def report(self) -> None:
        """Sets the health condition: broken files, or a failed pass."""
        if self._failure:
            text = f"cannot load the definition files: {_shown(self._failure)}"
            detail = f"{text}; the daemon tries again, and the stored definitions stay as they are"
            self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, detail)
            return
        broken = [state for state in (*self._files.values(), *self._unlisted()) if state.broken]
        broken.sort(key=lambda state: state.path)
        if not broken:
            self._conditions.well(CONDITION)
            return
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        text = f"cannot use {broken[0].path}{more}: {broken[0].problems[0]}"
        detail = f"{text}; their stored definitions stay as they are"
        self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, detail)

    def _unlisted(self) -> Sequence[DefinitionFileState]:
        return [
            DefinitionFileState(path=path, mark=None, broken=True, problems=(f"cannot read {path}: {why}",))
            for path, why in self._unreadable.items()
        ]


def _cut(lines: tuple[str, ...]) -> tuple[str, ...]:
    shown = tuple(map(_shown, lines[:PROBLEMS_MOST]))
    if len(lines) <= PROBLEMS_MOST:
        return shown
    return (*shown[:-1], f"and {len(lines) - PROBLEMS_MOST + 1} more")


def _shown(line: str) -> str:
    """The line, with bytes that are no text escaped."""
    return line.encode("utf-8", "backslashreplace").decode()
