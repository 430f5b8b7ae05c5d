"""What is known of each definition file, for whoever asks why something is as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from toband.engine.definitions.file_loader import ReadFile
from toband.ports import Clock, Conditions, HealthStatus, Mark

CONDITION = "definitions"
PROBLEMS_MOST = 20
"""Lines that are told of one file."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file, or a directory that cannot be looked at. One that is broken has the names that it had before.

    `mark` is of what was read last; None: it is to be read again. `loaded_at` is None if what is stored of it was
    stored by an earlier daemon.
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
        self._files: dict[str, FileState] = {}
        self._unreadable: Mapping[str, str] = {}
        self._failure = ""

    @property
    def all(self) -> Sequence[FileState]:
        """Broken ones first, then by path."""
        return sorted(
            (*self._files.values(), *self._unlooked()),
            key=lambda each: (not each.broken, each.path),
        )

    @property
    def paths(self) -> Iterable[str]:
        return self._files.keys()

    def are_settled(self, paths: Iterable[str]) -> bool:
        """Whether none of these files has to be read again."""
        states = (self._files.get(path) for path in paths)
        return all(state and not state.broken and state.mark is not None for state in states)

    def of(self, path: str) -> FileState | None:
        return self._files.get(path)

    def names_of(self, path: str) -> tuple[str, ...]:
        state = self._files.get(path)
        return state.names if state is not None else ()

    def gone(self, path: str) -> None:
        del self._files[path]

    def unreadable(self, places: Mapping[str, str]) -> None:
        """Why places cannot be looked at, in place of what was known of that."""
        self._unreadable = places

    def followed(self, failure: Exception | None) -> None:
        """Whether all of them could be looked at, and what became of them stored."""
        self._failure = f"{type(failure).__name__}: {failure}" if failure is not None else ""

    def well(self, file: ReadFile, names: tuple[str, ...], warnings: tuple[str, ...]) -> None:
        before = self._files.get(file.path)
        self._files[file.path] = FileState(
            path=file.path,
            mark=file.mark,
            names=names,
            problems=_cut(warnings),
            loaded_at=self._clock.now(),
        )
        if before is not None and before.broken:
            log.info("a definition file is well again", action="definitions_well", path=file.path)
        told = self._files[file.path].problems
        # Of a file that need not be read the log has said it before.
        if told and not file.known and (before is None or before.problems != told):
            log.warning(
                "a definition file can be used, but look at it",
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
        """What it defined stays as it was. `names` are what it is known for if it was not read before."""
        before = self._files.get(file.path)
        after = FileState(
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
                "a definition file cannot be used: what it defined stays as it was",
                action="definitions_broken",
                path=file.path,
                problems=list(after.problems),
                exc_info=cause,
            )

    def tell(self) -> None:
        """Whoever watches over the daemon, of files that are broken, and of all if they cannot be followed."""
        if self._failure:
            text = f"cannot follow the definition files: {_shown(self._failure)}"
            detail = f"{text}; it is tried again, and what is not read yet stays as it was"
            self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, detail)
            return
        broken = [state for state in (*self._files.values(), *self._unlooked()) if state.broken]
        broken.sort(key=lambda state: state.path)
        if not broken:
            self._conditions.well(CONDITION)
            return
        more = f", and {len(broken) - 1} more like it" if len(broken) > 1 else ""
        text = f"{broken[0].path} cannot be used{more}: {broken[0].problems[0]}"
        detail = f"{text}; what was defined before stays as it was"
        self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, detail)

    def _unlooked(self) -> Sequence[FileState]:
        return [
            FileState(path=path, mark=None, broken=True, problems=(f"cannot read {path}: {why}",))
            for path, why in self._unreadable.items()
        ]


def _cut(lines: tuple[str, ...]) -> tuple[str, ...]:
    shown = tuple(map(_shown, lines[:PROBLEMS_MOST]))
    if len(lines) <= PROBLEMS_MOST:
        return shown
    return (*shown[:-1], f"and {len(lines) - PROBLEMS_MOST + 1} more")


def _shown(line: str) -> str:
    """A line with what is no character written as in a program."""
    return line.encode("utf-8", "backslashreplace").decode()
