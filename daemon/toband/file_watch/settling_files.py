"""Holds back changes of files until they are complete: nothing changed for a while, or a rename put them there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field

from toband.file_watch.notifier import NotificationKind

Kinds = set[NotificationKind]
Released = tuple[str, float, Mapping[str, Kinds], int]
Facts = tuple[int, int, int, int]


@dataclass(slots=True)
class _Held:
    """A file that changed: `facts` are its identity, size and time, `due` is when it counts as complete."""

    kinds: Kinds
    facts: Facts
    due: float


@dataclass(slots=True)
class _Watch:
    held: dict[str, _Held] = field(default_factory=dict)
    ready: dict[str, Kinds] = field(default_factory=dict)
    more: int = 0


class SettlingFiles:
    """Changes by declared path and by the time that this watch waits for its files."""

    def __init__(self, most: int) -> None:
        """At most that many files of one watch are remembered; the rest are only counted."""
        self._most = most
        self._watches: dict[tuple[str, float], _Watch] = {}
        self._next = float("inf")

    @property
    def next_due(self) -> float:
        """No change is due before."""
        return self._next

    def declare(self, watches: Mapping[str, Collection[float]]) -> None:
        """Forgets other watches. Files of a watch whose time has changed wait for the new time."""
        for path, settle in list(self._watches):
            if settle in watches.get(path, ()):
                continue
            before = self._watches.pop((path, settle))
            for other in watches.get(path, ()):
                self._watches.setdefault((path, other), before)

    def hold(self, watch: str, settle: float, changes: Mapping[str, Kinds], now: float) -> None:
        found = self._watches.setdefault((watch, settle), _Watch())
        for path, kinds in changes.items():
            facts = _facts(path, follow=path == watch) if settle else None
            before = found.held.get(path)
            if facts is None or NotificationKind.MOVED in kinds:
                found.ready[path] = kinds | (found.held.pop(path).kinds if before is not None else set())
                self._next = now
            elif before is not None:
                before.kinds |= kinds
                before.facts, before.due = facts, now + settle
            elif len(found.held) < self._most:
                found.held[path] = _Held(set(kinds), facts, now + settle)
                self._next = min(self._next, now + settle)
            else:
                found.more += 1

    def release(self, now: float, changing: Callable[[str, str], bool]) -> list[Released]:
        """Watch, time, changes and the number of the others. `changing`: a path has a change that does not wait yet."""
        released: list[Released] = []
        self._next = float("inf")
        for (watch, settle), found in list(self._watches.items()):
            for path, held in list(found.held.items()):
                if held.due <= now:
                    facts = _facts(path, follow=path == watch)
                    if facts == held.facts and not changing(watch, path):
                        found.ready[path] = found.held.pop(path).kinds
                        continue
                    if facts is None:
                        del found.held[path]  # its deletion is reported by itself
                        continue
                    held.facts, held.due = facts, now + settle
                self._next = min(self._next, held.due)
            if found.ready:
                released.append((watch, settle, found.ready, found.more))
                found.ready, found.more = {}, 0
            if not found.held:
                del self._watches[watch, settle]
        return released

    @property
    def waiting(self) -> Set[tuple[str, float]]:
        return self._watches.keys()


def _facts(path: str, *, follow: bool) -> Facts | None:
    """None if it is not a regular file: then there is nothing to wait for."""
    try:
        found = os.stat(path, follow_symlinks=follow)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
