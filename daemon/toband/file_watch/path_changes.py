"""Finds changes of watched paths, from notifications about directories and from checks of the paths."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from toband.file_watch.file_names import is_text, shown
from toband.file_watch.notifier import NotificationKind, Notifier
from toband.file_watch.own_files import NO_FILES, OwnFiles
from toband.file_watch.path_state import PathState, Spot, is_as_before, mounts, remote, state_of
from toband.file_watch.settling_files import SettlingFiles
from toband.ports import FileChange, PathChange, WatchChanges

QUIET, LONGEST = 0.3, 1.0
"""Seconds without a change after which earlier changes are reported, and the longest delay of a report."""
LOOK_AGAIN = 15.0
"""Seconds between checks of the paths without a notification: a directory above them may have moved."""
TRY_AGAIN = 60.0
"""Seconds after which failed watches are tried again."""
CHANGES_MOST = 100
"""Changes of one watch in one report."""
MORE_MOST = 10_000
"""Further changes that are only counted."""

NOWHERE = PathState(mark=None, root="", own=frozenset(), names=frozenset(), spots=frozenset())
"""State of a path that could not be read so far."""

_CHANGES = {
    NotificationKind.ADDED: FileChange.ADDED,
    NotificationKind.MODIFIED: FileChange.MODIFIED,
    NotificationKind.DELETED: FileChange.DELETED,
}


@dataclass(slots=True)
class _Index:
    """The declared paths that a notification is about: by root of a tree, by name, and by watched directory."""

    roots: Mapping[str, Sequence[str]] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    spots: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Follower:
    """Belongs to one thread, which calls `turn` repeatedly."""

    def __init__(
        self,
        notifier: Notifier,
        own: OwnFiles = NO_FILES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Changes of `own` are not reported."""
        self._notifier = notifier
        self._own = own
        self._clock = clock
        self._states: dict[str, PathState] = {}
        self._index = _Index()
        self._unreadable: dict[str, str] = {}
        self._left_out: dict[str, str] = {}
        self._remote: dict[str, str] = {}
        self._changes: dict[str, dict[str, set[NotificationKind]]] = {}
        self._settles: Mapping[str, Collection[float]] = {}
        self._settling = SettlingFiles(CHANGES_MOST + MORE_MOST)
        self._suspects: set[str] = set()
        self._told: defaultdict[str, set[NotificationKind]] = defaultdict(set)
        self._first = self._last = 0.0
        self._look_at = clock() + LOOK_AGAIN
        self._try_at = clock() + TRY_AGAIN

    @property
    def settled(self) -> bool:
        """Whether all declared paths are watched, if possible, and all changes are reported."""
        return not (self._notifier.busy or self._changes or self._suspects or self._settling.waiting)

    @property
    def troubles(self) -> Mapping[str, str]:
        found = {
            **self._remote,
            **self._left_out,
            **self._unreadable,
            **self._notifier.troubles,
        }
        return {shown(path): why for path, why in found.items()}

    def declare(self, paths: Mapping[str, Collection[float]]) -> None:
        """Sets the watched paths, each with the times that its watches wait. Existing files are not reported."""
        self._settles = paths
        self._settling.declare(paths)
        for path in self._states.keys() - set(paths):
            del self._states[path]
            self._unreadable.pop(path, None)
            self._left_out.pop(path, None)
            self._changes.pop(path, None)
        new = sorted(set(paths) - self._states.keys())
        for path in new:
            state = self._look(path)
            self._states[path] = state or NOWHERE
        self._watch(fresh=())
        # It may have changed between the check and the watch.
        self._suspect(new)

    def turn(self, timeout: float = LOOK_AGAIN) -> Sequence[WatchChanges]:
        """Waits for changes, at most until the timeout, and returns those that are due."""
        until = min(self._look_at, self._try_at, self._due(), self._settling.next_due)
        for path, kind in self._notifier.wait(max(0.0, min(timeout, until - self._clock()))):
            self._take(path, kind)
        now = self._clock()
        if now >= self._try_at:
            self._try_at = now + TRY_AGAIN
            if self.troubles:
                self._notifier.try_again()
                self._suspect(list(self._unreadable))
        if now >= self._look_at:
            self._look_at = now + LOOK_AGAIN
            self._suspect([path for path, state in self._states.items() if _differs(path, state)])
        if now >= self._due():
            self._flush(now)
        if now < self._settling.next_due:
            return ()
        return [_batch(*each) for each in self._settling.release(now, self._changing)]

    def _changing(self, declared: str, path: str) -> bool:
        return path in self._changes.get(declared, ()) or (path == declared and path in self._suspects)

    def _due(self) -> float:
        if not self._changes and not self._suspects:
            return float("inf")
        return min(self._last + QUIET, self._first + LONGEST)

    # -- notifications

    def _take(self, path: str, kind: NotificationKind) -> None:
        if kind is NotificationKind.LOST:
            # Report each tree as a whole: its changes are unknown.
            for declared, state in self._states.items():
                if state.root:
                    self._gather(declared, declared, NotificationKind.MODIFIED)
            self._suspect(list(self._states))
            return
        if self._own.has(path):
            return
        named = self._index.names.get(path, ())
        if kind is not NotificationKind.GONE:
            for declared in named:
                if path in self._states[declared].own:
                    _note(self._told[declared], kind)
        if kind in (NotificationKind.GONE, NotificationKind.DELETED):
            self._suspect(self._index.spots.get(path, ()))
        self._suspect(named)
        if kind is NotificationKind.GONE:
            return
        root = os.path.dirname(path)
        while True:
            for declared in self._index.roots.get(root, ()):
                below = path[len(root.rstrip(os.sep)) + 1 :]
                self._gather(declared, os.path.join(declared, below), kind)
            above = os.path.dirname(root)
            if above == root:
                return
            root = above

    def _gather(self, declared: str, path: str, kind: NotificationKind) -> None:
        changes = self._changes.setdefault(declared, {})
        if path in changes or len(changes) < CHANGES_MOST + MORE_MOST:
            _note(changes.setdefault(path, set()), kind)
        self._happened()

    def _suspect(self, paths: Iterable[str]) -> None:
        before = len(self._suspects)
        self._suspects.update(paths)
        if len(self._suspects) > before:
            self._happened()

    def _happened(self) -> None:
        self._last = self._clock()
        if not self._first:
            self._first = self._last

    # -- reports

    def _flush(self, now: float) -> None:
        self._first = 0.0
        suspects, self._suspects = self._suspects, set()
        told, self._told = self._told, defaultdict(set)
        fresh: set[str] = set()
        moved: set[str] = set()
        for path in sorted(suspects & self._states.keys()):
            before, after = self._states[path], self._look(path)
            if after is None:
                continue
            if after != before:
                moved.add(path)
            self._states[path] = after
            change = _change(before, after, told[path]) if before is not NOWHERE else None
            if change is not None:
                kinds = {change} | (told[path] & {NotificationKind.MOVED})
                self._changes.setdefault(path, {}).setdefault(path, set()).update(kinds)
                if after.root:
                    fresh.add(path)
        if suspects:
            self._watch(fresh=fresh)
        gathered, self._changes = self._changes, {}
        # It may have changed again between the check and the watch.
        self._suspect(sorted(moved))
        for watch, changes in gathered.items():
            for settle in self._settles.get(watch, ()):
                self._settling.hold(watch, settle, changes, now)

    def _look(self, path: str) -> PathState | None:
        """None if it cannot be read."""
        try:
            state = state_of(path)
        except OSError as error:
            reason = error.strerror or str(error)
            self._unreadable[path] = f"{reason}; let the daemon's user read it and enter it"
            return None
        self._unreadable.pop(path, None)
        self._left_out.pop(path, None)
        if not self._own.has(os.path.realpath(path)):
            return state
        self._left_out[path] = (
            "it is one of the daemon's own files or in its state directory, which are not watched; watch another path"
        )
        spots = frozenset(spot for spot in state.spots if not spot.tree)
        return replace(state, mark=None, root="", spots=spots)

    def _watch(self, *, fresh: Collection[str]) -> None:
        roots, names, spots = defaultdict(list), defaultdict(list), defaultdict(list)
        wanted: set[Spot] = set()
        for path, state in self._states.items():
            wanted |= state.spots
            if state.root:
                roots[state.root].append(path)
            for name in state.names:
                names[name].append(path)
            for spot in state.spots:
                spots[spot.path].append(path)
        self._index = _Index(roots=roots, names=names, spots=spots)
        come = {spot for path in fresh for spot in self._states[path].spots if spot.tree}
        self._notifier.want(wanted, come)
        self._remote = {
            spots[path][0]: (
                f"it is on a network file system ({kind}), where only changes by this machine are noticed; "
                "emit an event from the machine that makes the changes"
            )
            for path, kind in remote(spots, mounts()).items()
        }


def _differs(path: str, state: PathState) -> bool:
    try:
        return not is_as_before(path, state)
    except OSError:
        return True


def _note(kinds: set[NotificationKind], kind: NotificationKind) -> None:
    """A file that was renamed is complete until something else happens to it."""
    kinds.discard(NotificationKind.MOVED)
    kinds |= {NotificationKind.ADDED, kind} if kind is NotificationKind.MOVED else {kind}


def _change(before: PathState, after: PathState, told: set[NotificationKind]) -> NotificationKind | None:
    """The change of a declared path itself."""
    if after.mark is None:
        if before.mark is None:
            # It was created and deleted; a deletion alone was reported before.
            return NotificationKind.DELETED if NotificationKind.ADDED in told else None
        return NotificationKind.DELETED
    if before.mark is None:
        return NotificationKind.ADDED
    # A new directory may have the inode number of the old one.
    again = NotificationKind.ADDED in told or (bool(told) and not after.root)
    return NotificationKind.MODIFIED if before.mark != after.mark or again else None


def _batch(watch: str, settle: float, changes: Mapping[str, set[NotificationKind]], more: int) -> WatchChanges:
    first = list(changes.items())[:CHANGES_MOST]
    return WatchChanges(
        watch=watch,
        settle=settle,
        changes=tuple(
            PathChange(
                path=_readable(path),
                change=_CHANGES[_one(path, kinds)],
                altered=not is_text(path),
            )
            for path, kinds in first
        ),
        more=more + len(changes) - len(first),
    )


def _one(path: str, kinds: set[NotificationKind]) -> NotificationKind:
    """Merges several changes of one path."""
    if NotificationKind.ADDED in kinds and NotificationKind.DELETED in kinds:
        # It was replaced, or created and deleted.
        return NotificationKind.MODIFIED if os.path.lexists(path) else NotificationKind.DELETED
    for kind in (NotificationKind.DELETED, NotificationKind.ADDED):
        if kind in kinds:
            return kind
    return NotificationKind.MODIFIED


def _readable(path: str) -> str:
    """The path as valid text: file names need not be."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
