"""Lists, reads and watches the definition files.

A notification of the system is only a reason to list the files: it may come late, twice or not at all (network file
systems, limits on watches), and some changes are of paths that are not watched, such as the target of a symbolic link.
So every change is found by listing, which also happens from time to time without a notification.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Mapping, Sequence

import structlog

from toban.limits import MAX_SOURCE_BYTES
from toband.file_watch.definition_tree import Folder, find, is_definition
from toband.file_watch.file_names import is_text
from toband.ports import Listing

TICK = 1.0
"""Seconds between checks of the configured paths: one may appear, or be a link to another target."""
UNSURE = 2
"""Ticks after which a new watch is certainly active."""
STEP, DEBOUNCE = 150, 500
"""Milliseconds: changes within a step are one, for at most the debounce time."""
log = structlog.get_logger()


class WatchedFiles:
    """Implements `ports.DefinitionFileSource`. Belongs to the event loop."""

    def __init__(self, places: Sequence[str]) -> None:
        self._places = tuple(places)
        self._told = asyncio.Event()
        self._watchers: list[asyncio.Task[None]] = []
        self._seen: tuple[object, ...] = ()
        self._folders: tuple[Folder, ...] = ()
        self._unsure = 0
        self._complained = False

    async def look(self) -> Listing:
        tree = await asyncio.to_thread(find, self._places, time.time())
        self._folders = tree.folders
        return tree.listing

    async def read(self, paths: Sequence[str]) -> Mapping[str, bytes | OSError]:
        return await asyncio.to_thread(lambda: {path: _tried(path) for path in paths})

    async def changed(self, within: float) -> None:
        until = time.monotonic() + within
        while True:
            await self._follow_places()
            left = until - time.monotonic()
            if self._told.is_set() or left <= 0:
                break
            try:
                async with asyncio.timeout(min(TICK, left)):
                    await self._told.wait()
            except TimeoutError:
                self._ticked()
        self._told.clear()

    def _ticked(self) -> None:
        """While notifications are not reliable, every tick counts as one."""
        if self._unsure or any(watcher.done() for watcher in self._watchers):
            self._unsure = max(0, self._unsure - 1)
            self._told.set()

    async def close(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._watchers = []

    async def _follow_places(self) -> None:
        """Watches the current directories if they have changed, which counts as a notification.

        Each directory is watched separately: a watch on a whole tree would follow the links in it.
        """
        identities = await asyncio.to_thread(lambda: tuple(map(_identity, self._places)))
        if (identities, self._folders) == self._seen:
            return
        await self.look()
        self._seen = (identities, self._folders)
        await self.close()
        self._told.set()
        self._unsure = UNSURE
        paths = await asyncio.to_thread(_watchable, self._places, self._folders)
        self._watchers = [asyncio.create_task(self._watch(paths))] if paths else []

    async def _watch(self, paths: Sequence[str]) -> None:
        """Ends when the system sends no more notifications."""
        from watchfiles import awatch

        try:
            async for _ in awatch(
                *paths,
                watch_filter=None,
                recursive=False,
                step=STEP,
                debounce=DEBOUNCE,
                ignore_permission_denied=True,
            ):
                self._told.set()
        except (OSError, RuntimeError, ValueError) as error:
            if not self._complained:
                self._complained = True
                text = "cannot watch the definition files: checking them every second"
                log.warning(text, action="watch_failed", error=str(error))


def _identity(place: str) -> object:
    """Changes when the path appears, disappears or leads elsewhere."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        # The watch on its directory reports changes of the file.
        return os.path.realpath(os.path.dirname(place))
    return (os.path.realpath(place), found.st_dev, found.st_ino)


def _watchable(places: Sequence[str], folders: Sequence[Folder]) -> list[str]:
    """The directories to watch: those that were found, and those of single files."""
    places = [place for place in places if is_text(place)]
    single = [place for place in places if not os.path.isdir(place) and is_definition(place)]
    paths = {os.path.realpath(folder.path) for folder in folders}
    # A replaced file is another file: watch its directory, and that of the target of a link.
    paths |= {os.path.realpath(os.path.dirname(place)) for place in single}
    paths |= {os.path.dirname(os.path.realpath(place)) for place in single}
    return sorted(path for path in paths if os.path.isdir(path))


def _tried(path: str) -> bytes | OSError:
    try:
        return _read(path)
    except OSError as error:
        return error


def _read(path: str) -> bytes:
    # Does not block on a pipe that replaced the file.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        return file.read(MAX_SOURCE_BYTES + 1)
