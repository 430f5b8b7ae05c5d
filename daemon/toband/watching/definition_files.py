"""The files that definitions are read from, and word of their changes.

What the system tells is only ever a reason to look: it may come late, twice or not at all (network file systems, limits
on watches), and some changes are of things that nobody watches, such as the target of a symbolic link. So everything
that counts is found by looking, and now and then somebody looks without being told.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Mapping, Sequence

import structlog

from toban.limits import MAX_SOURCE_BYTES
from toband.ports import Listing, Mark
from toband.watching.names import is_text, shown

SUFFIXES = (".yaml", ".yml", ".json")
TICK = 1.0
"""Seconds between looks at the places themselves: one that was missing may be there, or lead elsewhere."""
UNSURE = 2
"""Ticks after which watching, once begun, has surely begun."""
YOUNG = 0.3
"""Seconds for which a file is taken to be still written to."""
STEP, DEBOUNCE = 150, 500
"""Milliseconds: changes that follow each other so closely are one, unless that goes on for so long."""
DEEPEST = 32
"""Directories within each other; a symbolic link to its own parent ends here at the latest."""

NOT_TEXT = "its name is not UTF-8: rename it"

log = structlog.get_logger()


class WatchedFiles:
    """Implements `ports.DefinitionSource`. Belongs to the event loop."""

    def __init__(self, places: Sequence[str]) -> None:
        self._places = tuple(places)
        self._told = asyncio.Event()
        self._watchers: list[asyncio.Task[None]] = []
        self._seen: tuple[object, ...] = ()
        self._unsure = 0
        self._complained = False

    async def look(self) -> Listing:
        return await asyncio.to_thread(look, self._places, time.time())

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
        """Without word from the system, every tick is a reason to look."""
        if self._unsure or any(watcher.done() for watcher in self._watchers):
            self._unsure = max(0, self._unsure - 1)
            self._told.set()

    async def close(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._watchers = []

    async def _follow_places(self) -> None:
        """Watches what the places are now, if that is not what is watched; tells if it has changed."""
        seen = await asyncio.to_thread(lambda: tuple(map(_identity, self._places)))
        if seen == self._seen:
            return
        self._seen = seen
        await self.close()
        self._told.set()
        self._unsure = UNSURE
        trees, flat = await asyncio.to_thread(_watchable, self._places)
        self._watchers = [
            asyncio.create_task(self._watch(paths, recursive=recursive))
            for paths, recursive in ((trees, True), (flat, False))
            if paths
        ]

    async def _watch(self, paths: Sequence[str], *, recursive: bool) -> None:
        """Ends when the system does not tell any more."""
        from watchfiles import awatch

        try:
            async for _ in awatch(
                *paths,
                watch_filter=None,
                recursive=recursive,
                step=STEP,
                debounce=DEBOUNCE,
                ignore_permission_denied=True,
            ):
                self._told.set()
        except (OSError, RuntimeError, ValueError) as error:
            if not self._complained:
                self._complained = True
                text = "cannot watch the definition files: they are looked at every second"
                log.warning(text, action="watch_failed", error=str(error))


def look(places: Sequence[str], now: float) -> Listing:
    """What there is at these places at that time of the wall clock."""
    files: dict[str, Mark] = {}
    unreadable: dict[str, str] = {}
    for place in places:
        if not is_text(place):
            unreadable[shown(place)] = NOT_TEXT
            continue
        try:
            found = os.stat(place)
        except OSError as error:
            # A file that is gone was removed; a directory that is gone may come back, as one on another machine does.
            if not (_is_definition(place) and os.path.isdir(os.path.dirname(place))):
                unreadable[place] = error.strerror or str(error)
            continue
        if stat.S_ISDIR(found.st_mode):
            _look_into(place, files, unreadable, (), DEEPEST)
            if not _is_still(place, found):
                # Files that were not found are where the directory is now, and not gone.
                unreadable.setdefault(place, "it was moved while somebody looked at it")
        elif stat.S_ISREG(found.st_mode):
            files[place] = _mark(found)
        else:
            unreadable[place] = "it is neither a file nor a directory"
    limit = int((now - YOUNG) * 1e9)
    young = frozenset(path for path, mark in files.items() if _last_change(mark) > limit)
    return Listing(files=files, unreadable=unreadable, young=young)


def _is_still(place: str, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(place), found)
    except OSError:
        return False


def _look_into(
    directory: str,
    files: dict[str, Mark],
    unreadable: dict[str, str],
    above: tuple[tuple[int, int], ...],
    depth: int,
) -> None:
    """`above` are the directories that it is in, as the system knows them: a link back to one is passed over."""
    try:
        here = os.stat(directory)
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError as error:
        unreadable[directory] = error.strerror or str(error)
        return
    identity = (here.st_dev, here.st_ino)
    if identity in above or depth == 0:
        return
    for name in names:
        if _is_hidden(name):
            continue
        path = os.path.join(directory, name)
        if is_text(name):
            _look_at(path, files, unreadable, (*above, identity), depth - 1)
            continue
        inside: dict[str, Mark] = {}
        denied: dict[str, str] = {}
        _look_at(path, inside, denied, (*above, identity), depth - 1)
        if inside or denied:
            unreadable[shown(path)] = NOT_TEXT


def _look_at(
    path: str,
    files: dict[str, Mark],
    unreadable: dict[str, str],
    above: tuple[tuple[int, int], ...],
    depth: int,
) -> None:
    try:
        found = os.stat(path)
    except OSError as error:
        # A link that leads nowhere is no file, and what is gone by now is none either.
        if not isinstance(error, FileNotFoundError):
            unreadable[path] = error.strerror or str(error)
        return
    if stat.S_ISDIR(found.st_mode):
        _look_into(path, files, unreadable, above, depth)
    elif stat.S_ISREG(found.st_mode) and _is_definition(path):
        files[path] = _mark(found)


def _is_hidden(name: str) -> bool:
    """Hidden files, and what editors leave beside the file that they write."""
    return name.startswith((".", "#")) or name.endswith(("~", ".swp", ".tmp", ".bak"))


def _is_definition(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _mark(found: os.stat_result) -> Mark:
    return Mark(
        device=found.st_dev,
        inode=found.st_ino,
        size=found.st_size,
        modified_ns=found.st_mtime_ns,
        changed_ns=found.st_ctime_ns,
    )


def _last_change(mark: Mark) -> int:
    return max(mark.modified_ns, mark.changed_ns)


def _identity(place: str) -> object:
    """Changes when a place appears, goes, or leads elsewhere."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        # Its directory is watched, and tells of the file itself.
        return os.path.realpath(os.path.dirname(place))
    return (os.path.realpath(place), found.st_dev, found.st_ino)


def _watchable(places: Sequence[str]) -> tuple[list[str], list[str]]:
    """Directories to be watched with all below them, and those of single files, of which many may be large."""
    places = [place for place in places if is_text(place)]
    trees = {os.path.realpath(place) for place in places if os.path.isdir(place)}
    single = [place for place in places if not os.path.isdir(place) and _is_definition(place)]
    # One that is replaced is another file: its directory tells, and that of what a link leads to.
    parents = {os.path.realpath(os.path.dirname(place)) for place in single}
    parents |= {os.path.dirname(os.path.realpath(place)) for place in single}
    return sorted(trees), sorted(path for path in parents - trees if os.path.isdir(path))


def _tried(path: str) -> bytes | OSError:
    try:
        return _read(path)
    except OSError as error:
        return error


def _read(path: str) -> bytes:
    # Nobody waits here for a pipe that took the place of the file.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        return file.read(MAX_SOURCE_BYTES + 1)
