"""Emits FILE_CHANGED events for changes of the paths that workflows watch."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from toban.definition import FILE_CHANGED
from toban.limits import MAX_TITLE_CHARS
from toband.backoff import Backoff
from toband.domain.emitted_events import WatchedPath
from toband.engine.errors import EngineError
from toband.ports import (
    Conditions,
    HealthStatus,
    PathWatcher,
    StoreError,
    TriggerStore,
    WatchChanges,
)

CONDITION = "watches"
SETTLE = 0.1
"""Seconds to wait for further changes of definitions before reading the watched paths."""
KEPT_MOST = 10_000
"""Limit on the events kept in memory while they cannot be stored."""
AT_ONCE = 500
"""Events that are stored with one call."""
PAUSE, RESTLESS = 10.0, 600.0
"""Seconds without a change that count as a pause, and seconds without a pause before this is reported."""

log = structlog.get_logger()

Announce = Callable[[str, Sequence[Any]], Awaitable[None]]


@dataclass(slots=True)
class _Streak:
    """Changes of one watch, with no pause between them."""

    since: float
    last: float
    told: bool = False


class PathEvents:
    """Belongs to the event loop. Watches nothing while no workflow listens to FILE_CHANGED."""

    def __init__(
        self,
        *,
        store: TriggerStore,
        paths: PathWatcher,
        announce: Announce,
        conditions: Conditions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`announce` stores events of a type with these payloads, or raises StoreError or an EngineError.

        `clock` is monotonic.
        """
        self._store = store
        self._paths = paths
        self._announce = announce
        self._conditions = conditions
        self._clock = clock
        self._stale = asyncio.Event()
        self._stale.set()
        self._watches: Mapping[str, Sequence[WatchedPath]] = {}
        self._kept: deque[dict[str, Any]] = deque()
        self._filled = asyncio.Event()
        self._dropped = 0
        self._streaks: dict[str, _Streak] = {}

    def changed(self) -> None:
        """Definitions may have changed: reads the watched paths again."""
        self._stale.set()

    async def run(self) -> None:
        """Runs until it is cancelled. No error ends it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._gather())
            group.create_task(self._send())

    # -- watched paths

    async def _follow(self) -> None:
        backoff = Backoff()
        while True:
            await self._stale.wait()
            await asyncio.sleep(SETTLE)
            self._stale.clear()
            try:
                watches = await self._read()
            except Exception as error:
                _complain("cannot read which paths are watched", error)
                self._stale.set()
                await asyncio.sleep(backoff.pause())
                continue
            backoff.reset()
            if _settles(watches) != _settles(self._watches):
                self._paths.follow(_settles(watches))
            self._watches = watches
            self._streaks = {watch: streak for watch, streak in self._streaks.items() if watch in watches}
            self._tell()

    async def _read(self) -> Mapping[str, Sequence[WatchedPath]]:
        """The watches of each path."""
        found: defaultdict[str, list[WatchedPath]] = defaultdict(list)
        if FILE_CHANGED in await self._store.listened_types():
            for each in await self._store.watched_paths():
                found[each.path].append(each)
        return found

    # -- changes

    async def _gather(self) -> None:
        while True:
            try:
                async with asyncio.timeout(PAUSE if self._streaks else None):
                    batch = await self._paths.changes()
            except TimeoutError:
                batch = ()
            for changes in batch:
                self._keep(changes)
            self._watch_streaks()
            self._tell()

    def _keep(self, changes: WatchChanges) -> None:
        watches = self._watches.get(changes.watch, ())
        concerned = [each for each in watches if each.settle == changes.settle]
        if not concerned or not changes.changes:
            return  # it is not watched any more
        for each in concerned:
            self._kept.extend(_payloads(changes, each))
        while len(self._kept) > KEPT_MOST:
            self._kept.popleft()
            if not self._dropped:
                log.error("changes of files are dropped", action="watch_dropped")
            self._dropped += 1
        self._filled.set()
        now = self._clock()
        streak = self._streaks.get(changes.watch)
        if streak is None or now - streak.last > PAUSE:
            self._streaks[changes.watch] = _Streak(now, now)
        else:
            streak.last = now

    async def _send(self) -> None:
        backoff = Backoff()
        while True:
            await self._filled.wait()
            # They stay until they are stored; if events are dropped meanwhile, these are the oldest, and go first.
            sent = list(itertools.islice(self._kept, AT_ONCE))
            try:
                await self._announce(FILE_CHANGED, sent)
            except Exception as error:
                _complain("cannot store what became of watched files", error)
                await asyncio.sleep(backoff.pause())
                continue
            backoff.reset()
            last = sent[-1]
            if any(each is last for each in itertools.islice(self._kept, AT_ONCE)):
                while self._kept.popleft() is not last:
                    pass
            if not self._kept:
                self._filled.clear()
                self._dropped = 0
                self._tell()

    # -- health

    def _watch_streaks(self) -> None:
        """Reports a workflow that writes where it watches: it starts itself for ever, as file changes have no depth."""
        now = self._clock()
        self._streaks = {watch: streak for watch, streak in self._streaks.items() if now - streak.last <= PAUSE}
        for watch, streak in self._streaks.items():
            if now - streak.since >= RESTLESS and not streak.told:
                streak.told = True
                log.warning(self._restless(watch), action="watch_restless", path=watch)

    def _restless(self, watch: str) -> str:
        names = ", ".join(each.workflow for each in self._watches.get(watch, ()))
        return (
            f"{watch}, which {names} watches, has been changing for {RESTLESS / 60:.0f} minutes without a pause; "
            "if what it starts writes there, let that write elsewhere or leave its files out in the condition"
        )

    def _tell(self) -> None:
        found = [f"cannot watch {path}: {why}" for path, why in sorted(self._paths.troubles.items())]
        if self._dropped:
            found.insert(
                0,
                f"{self._dropped} changes of watched files were dropped: events could not be stored in time",
            )
        found += (self._restless(watch) for watch, streak in self._streaks.items() if streak.told)
        if not found:
            self._conditions.well(CONDITION)
            return
        more = f"; and {len(found) - 1} more like it" if len(found) > 1 else ""
        self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, found[0] + more)


def _settles(watches: Mapping[str, Sequence[WatchedPath]]) -> Mapping[str, frozenset[float]]:
    return {path: frozenset(each.settle for each in found) for path, found in watches.items()}


def _payloads(changes: WatchChanges, watched: WatchedPath) -> Iterator[dict[str, Any]]:
    last = len(changes.changes) - 1
    for place, each in enumerate(changes.changes):
        payload: dict[str, Any] = {
            "path": each.path,
            "change": each.change.value,
            "workflow": watched.workflow,
            "workflow_title": watched.title[:MAX_TITLE_CHARS],
            "watch": changes.watch,
        }
        if each.altered:
            payload["altered"] = True
        if place == last and changes.more:
            payload["more"] = changes.more
        yield payload


def _complain(text: str, error: Exception) -> None:
    known = isinstance(error, (StoreError, EngineError))
    log.error(text, action="watch_failed", error=str(error), exc_info=None if known else error)
