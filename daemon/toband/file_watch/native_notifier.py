"""Watches directories with `watchfiles`, where the system can watch whole trees: Windows and macOS."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Mapping, Sequence, Set

from toband.file_watch.notifier import NotificationKind, Told
from toband.file_watch.own_files import NO_FILES, OwnFiles
from toband.file_watch.path_state import Spot

STEP, DEBOUNCE = 50, 200
"""Milliseconds: changes within them are reported together."""
FRESH_MOST = 10_000
"""Entries of a new directory that are reported."""
_KINDS = {1: NotificationKind.ADDED, 2: NotificationKind.MODIFIED, 3: NotificationKind.DELETED}


class Native:
    """Implements `Notifier`: one thread for trees, one for single directories."""

    def __init__(self, own: OwnFiles = NO_FILES) -> None:
        """The system reports whole trees, `own` included."""
        self._queue: queue.SimpleQueue[Told | None] = queue.SimpleQueue()
        self._spots: dict[bool, frozenset[Spot]] = {True: frozenset(), False: frozenset()}
        self._groups: dict[bool, _Group | None] = {True: None, False: None}

    @property
    def troubles(self) -> Mapping[str, str]:
        return {
            path: group.error
            for group in self._groups.values()
            if group is not None and group.error
            for path in group.paths
        }

    @property
    def busy(self) -> bool:
        return any(group is not None and not group.begun.is_set() for group in self._groups.values())

    def want(self, spots: Set[Spot], fresh: Set[Spot]) -> None:
        for tree in (True, False):
            wanted = frozenset(spot for spot in spots if spot.tree is tree)
            if wanted != self._spots[tree]:
                self._spots[tree] = wanted
                self._watch(tree)
        for spot in sorted(fresh, key=lambda spot: spot.path):
            for path in _below(spot.path):
                self._queue.put((path, NotificationKind.ADDED))

    def _watch(self, tree: bool) -> None:
        """Starts the new watch before it ends the old one, so that no change is missed."""
        before = self._groups[tree]
        paths = sorted({spot.path for spot in self._spots[tree]})
        group = _Group(paths, tree=tree, told=self._queue) if paths else None
        if group is not None:
            group.begun.wait()
        self._groups[tree] = group
        if before is not None:
            before.stop()

    def wait(self, timeout: float) -> Sequence[Told]:
        told = []
        with contextlib.suppress(queue.Empty):
            item = self._queue.get(timeout=timeout)
            while True:
                if item is not None:
                    told.append(item)
                item = self._queue.get_nowait()
        return told

    def try_again(self) -> None:
        for tree, group in self._groups.items():
            if group is not None and group.error:
                self._watch(tree)

    def wake(self) -> None:
        self._queue.put(None)

    def close(self) -> None:
        for group in self._groups.values():
            if group is not None:
                group.stop()


class _Group:
    """Paths that one thread watches until it is stopped or fails."""

    def __init__(self, paths: Sequence[str], *, tree: bool, told: queue.SimpleQueue[Told | None]) -> None:
        self.paths = paths
        self.error = ""
        self.begun = threading.Event()
        self._tree = tree
        self._told = told
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch-files", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        from watchfiles import watch

        try:
            # The first timeout shows that the watch is active.
            for changes in watch(
                *self.paths,
                watch_filter=None,
                recursive=self._tree,
                step=STEP,
                debounce=DEBOUNCE,
                rust_timeout=STEP,
                yield_on_timeout=True,
                stop_event=self._end,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                self.begun.set()
                for change, path in changes:
                    self._told.put((path, _KINDS[change]))
        except (OSError, RuntimeError) as error:
            self.error = str(error)
            self._told.put(None)
        finally:
            self.begun.set()


def _below(directory: str) -> Sequence[str]:
    found: list[str] = []
    for above, directories, files in os.walk(directory):
        found += (os.path.join(above, name) for name in (*directories, *files))
        if len(found) > FRESH_MOST:
            break
    return found[:FRESH_MOST]
