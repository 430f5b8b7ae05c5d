"""WatchRuns of the RunService: the active runs, then every change of every run, from the stored history."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass

from toban.v1 import run_pb2 as pb
from toband.api import pages, run_messages, run_requests
from toband.domain.run_model import Run
from toband.engine.access.call_scope import visible_among
from toband.engine.errors import BadPositionError, StoppingError
from toband.engine.run_notifier import RunNotifier
from toband.engine.runs.run_search import RunConditions, RunSearch, SearchFilter
from toband.ports import Store

AT_ONCE = 50
"""How many runs or changes a watcher reads at once: they stay in memory while it does not take them."""
SILENT = 1000
"""After so many changes that do not match, the watcher gets a position."""
LOOK_EVERY = 10.0
"""Seconds after which a watcher looks for changes that it was not notified of."""
_POSITION = re.compile(r"(\d{1,18})(?:/([0-9a-f-]{0,64}))?")


@dataclass(slots=True)
class _Place:
    """Up to which change a watcher has everything, and up to which active run while it still gets these."""

    change: int
    active: str | None = None

    def token(self) -> str:
        return pages.token(f"{self.change}" if self.active is None else f"{self.change}/{self.active}")


@dataclass(frozen=True, slots=True)
class _Wanted:
    conditions: RunConditions
    rest: SearchFilter | None


class AllRunsWatchRpc:
    def __init__(self, store: Store, notifier: RunNotifier) -> None:
        self._store = store
        self._notifier = notifier
        self._search = RunSearch(store)

    async def watch(self, request: pb.WatchRunsRequest) -> AsyncIterator[pb.WatchRunsResponse]:
        """Raises InvalidFieldError, BadPositionError, and StoppingError when the daemon stops."""
        wanted = _Wanted(run_requests.run_conditions(request), run_requests.run_filter(request))
        with self._notifier.watching_all() as watch:
            place = await self._begin(request)
            if place.active is not None:
                async for message in self._active(place, wanted):
                    yield message
            if not request.position or place.active is not None:
                place.active = None
                yield pb.WatchRunsResponse(position=place.token())
            silent = 0
            while True:
                watch.changed.clear()
                found = await self._store.changes_after(place.change, limit=AT_ONCE)
                seen = await self._visible(each.entry.run for each in found)
                matching = {
                    each.position
                    for each in found
                    if each.entry.run.workflow in seen and await self._matches(wanted, each.entry.run)
                }
                titles = await self._titles(each.entry.run for each in found if each.position in matching)
                for position, entry in found:
                    place.change = position
                    if position in matching:
                        silent = 0
                        yield pb.WatchRunsResponse(
                            run=run_messages.run(entry.run, title=titles.get(entry.run.workflow, "")),
                            sequence=entry.sequence,
                            change=run_messages.change_kind(entry.event),
                            at=run_messages.timestamp(entry.at),
                            position=place.token(),
                        )
                    else:
                        silent += 1
                if silent >= SILENT:
                    silent = 0
                    yield pb.WatchRunsResponse(position=place.token())
                if self._notifier.closed:
                    raise StoppingError("the daemon is stopping")
                if len(found) < AT_ONCE:
                    await watch.wait(LOOK_EVERY)

    async def _begin(self, request: pb.WatchRunsRequest) -> _Place:
        last = await self._store.last_change()
        if not request.position:
            return _Place(last, None if request.only_changes else "")
        text = pages.last(request.position, "position")
        parsed = _POSITION.fullmatch(text)
        # A position behind the last change is of another database.
        if parsed is None or int(parsed[1]) > last:
            raise BadPositionError(request.position)
        return _Place(int(parsed[1]), parsed[2])

    async def _active(self, place: _Place, wanted: _Wanted) -> AsyncIterator[pb.WatchRunsResponse]:
        """The runs that were active at the place, each page read when the page before was taken."""
        after: str = place.active or ""
        more = True
        while more:
            found, after = await self._store.active_at(place.change, after=after, limit=AT_ONCE)
            more = bool(after)
            seen = await self._visible(found)
            matching = [run for run in found if run.workflow in seen and await self._matches(wanted, run)]
            titles = await self._titles(matching)
            for run in matching:
                place.active = run.id
                yield pb.WatchRunsResponse(
                    run=run_messages.run(run, title=titles.get(run.workflow, "")),
                    sequence=run.sequence,
                    position=place.token(),
                    initial=True,
                )
            if self._notifier.closed:
                raise StoppingError("the daemon is stopping")

    async def _matches(self, wanted: _Wanted, run: Run) -> bool:
        return wanted.conditions.match(run) and (wanted.rest is None or await self._search.matches(wanted.rest, run))

    async def _visible(self, found: Iterable[Run]) -> Collection[str]:
        """The workflows of the runs that the caller may see."""
        return await visible_among({run.workflow for run in found}, self._store)

    async def _titles(self, found: Iterable[Run]) -> dict[str, str]:
        names = {run.workflow for run in found}
        return dict(await self._store.workflow_titles(names)) if names else {}
