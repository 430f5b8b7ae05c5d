"""Watches the files and directories of workflows, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

import structlog

from toband.file_watch.notifier import Notifier
from toband.file_watch.own_files import NO_FILES, OwnFiles
from toband.file_watch.path_changes import LOOK_AGAIN, Follower
from toband.ports import WatchChanges

if sys.platform == "linux":
    from toband.file_watch.inotify_notifier import Inotify as SystemNotifier
else:
    from toband.file_watch.native_notifier import Native as SystemNotifier

FAILED_PAUSE = 1.0
SOON = 0.01
"""Seconds between turns while `settled` is awaited."""

log = structlog.get_logger()


class WatchedPaths:
    """Implements `ports.PathWatcher`. Belongs to the event loop. Without watched paths there is no thread."""

    def __init__(
        self,
        notifier: Callable[[OwnFiles], Notifier] = SystemNotifier,
        own: OwnFiles = NO_FILES,
    ) -> None:
        """Changes of `own` are not reported."""
        self._new_notifier = notifier
        self._own = own
        self._thread: _Thread | None = None
        self._batches: asyncio.Queue[Sequence[WatchChanges]] = asyncio.Queue()
        self._troubles: Mapping[str, str] = {}

    @property
    def troubles(self) -> Mapping[str, str]:
        return self._troubles

    def follow(self, paths: Mapping[str, Collection[float]]) -> None:
        if self._thread is None and paths:
            self._thread = _Thread(self._new_notifier, self._own, self._take)
        if self._thread is not None:
            self._thread.declare(dict(paths))
        if not paths and self._thread is not None:
            self._thread.stop()
            self._thread = None
            self._tell((), {})

    async def changes(self) -> Sequence[WatchChanges]:
        return await self._batches.get()

    async def settled(self) -> None:
        """Waits until all paths are watched, if possible, and all changes are reported."""
        if self._thread is not None:
            await self._thread.settled()

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
            await asyncio.to_thread(thread.join)

    def _take(self, thread: _Thread, batch: Sequence[WatchChanges], troubles: Mapping[str, str]) -> None:
        if thread is self._thread:
            self._tell(batch, troubles)

    def _tell(self, batch: Sequence[WatchChanges], troubles: Mapping[str, str]) -> None:
        if batch or troubles != self._troubles:
            self._troubles = troubles
            self._batches.put_nowait(batch)


class _Thread:
    """Runs a follower, and passes its reports to the event loop."""

    def __init__(
        self,
        new_notifier: Callable[[OwnFiles], Notifier],
        own: OwnFiles,
        take: Callable[[_Thread, Sequence[WatchChanges], Mapping[str, str]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._wanted: Mapping[str, Collection[float]] = {}
        self._end = False
        self._waiting: list[asyncio.Event] = []
        self._own = own
        self._notifier = new_notifier(own)
        self._thread = threading.Thread(target=self._run, name="watched-paths", daemon=True)
        self._thread.start()

    def declare(self, paths: Mapping[str, Collection[float]]) -> None:
        self._wanted = paths
        self._notifier.wake()

    def stop(self) -> None:
        self._end = True
        self._notifier.wake()

    def join(self) -> None:
        self._thread.join()

    async def settled(self) -> None:
        event = asyncio.Event()
        self._waiting.append(event)
        self._notifier.wake()
        await event.wait()

    def _run(self) -> None:
        follower = Follower(self._notifier, self._own)
        declared: Mapping[str, Collection[float]] | None = None
        troubles: Mapping[str, str] = {}
        while not self._end:
            try:
                waiting, wanted = list(self._waiting), self._wanted
                if wanted is not declared:
                    declared = wanted
                    follower.declare(wanted)
                batch = follower.turn(SOON if waiting else LOOK_AGAIN)
                found = dict(follower.troubles)
                if batch or found != troubles:
                    troubles = found
                    self._call(self._take, self, batch, found)
                if follower.settled and declared is self._wanted:
                    for event in waiting:
                        self._waiting.remove(event)
                        self._call(event.set)
            except Exception as error:
                # No error may end the thread; notifications meanwhile are lost.
                log.error("cannot watch files", action="watch_failed", exc_info=error)
                threading.Event().wait(FAILED_PAUSE)
        self._notifier.close()

    def _call(self, function: Callable[..., None], *args: object) -> None:
        # The event loop may be closed already.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)
