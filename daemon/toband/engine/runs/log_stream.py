"""Log stream: the output of a whole run as one stream that a reader can resume at an exact position.

A position has, for every attempt whose log is not read to its end, the place reached in that log, as a `LogPlace`.
Attempts are numbered in the order of their launch; those below the first number are read completely.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from toband.domain.run_model import CHECK, Attempt, AttemptState, Run, RunState
from toband.domain.structured_lines import LogLevel
from toband.engine.errors import (
    BadPositionError,
    LogExpiredError,
    RunNotFoundError,
    StepNotFoundError,
    StoppingError,
)
from toband.engine.execution.dispatcher import Dispatcher
from toband.engine.run_notifier import RunNotifier, RunWatch
from toband.engine.runs.log_view import PLACE, LogCursor, LogPlace, LogRecord, after_lines, shows
from toband.engine.runs.registry import ActiveRuns
from toband.ports import PAGE, LogKind, LogPage, Logs, OutputEnd, Store

ATTEMPTS_AT_ONCE = 100
FIRST_PAGES = 4 * 1024 * 1024
"""Bytes that a stream returns in small pages first: its reader may stop reading."""
LARGE_PAGE = 1024 * 1024
LARGE_PAGES_OF_ALL = 4 * 1024 * 1024
"""Shared by all streams: with many streams, each gets small pages."""
OUTPUT_END = 64 * 1024
"""Bytes at the end of a stream that a record of its process has."""
READS_AT_ONCE = 4
"""For all streams: without it, calls would wait for a page of each of many streams that are ready at once."""
_DONE: Final = None
_POSITION = re.compile(rf"1\.[0-9]{{1,18}}(?:\.[0-9]{{1,18}}-(?:{PLACE}|-1))*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    run_id: str
    step: str = ""
    attempt: int = 0
    kinds: Collection[LogKind] = ()
    tail: int = 0
    since: int = 0
    follow: bool = False
    position: str = ""
    raw: bool = False
    level: LogLevel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    attempt: Attempt
    records: Sequence[LogRecord]
    position: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    state: RunState
    complete: bool
    position: str


@dataclass(slots=True)
class _Position:
    """The position of a reader. `places` has attempts from `first` on; _DONE marks those read to their end."""

    first: int = 0
    places: dict[int, LogPlace | None] = field(default_factory=dict)

    def __str__(self) -> str:
        places = [f".{ordinal}-{'-1' if place is _DONE else place}" for ordinal, place in sorted(self.places.items())]
        return f"1.{self.first}{''.join(places)}"

    @classmethod
    def parse(cls, text: str) -> _Position:
        """Raises BadPositionError."""
        if not text:
            return cls()
        if not _POSITION.fullmatch(text):
            raise BadPositionError(text)
        _, first, *rest = text.split(".")
        pairs = (item.partition("-") for item in rest)
        try:
            return cls(int(first), {int(n): _DONE if place == "-1" else LogPlace.parse(place) for n, _, place in pairs})
        except ValueError:
            raise BadPositionError(text) from None

    def within(self, launches: int) -> bool:
        """Whether it names only attempts that exist."""
        return self.first <= launches and all(ordinal < launches for ordinal in self.places)

    def done(self, ordinal: int) -> bool:
        return ordinal < self.first or self.places.get(ordinal, LogPlace()) is _DONE

    def finish(self, ordinal: int) -> None:
        self.places[ordinal] = _DONE
        while self.places.get(self.first, LogPlace()) is _DONE:
            del self.places[self.first]
            self.first += 1


class LogStreams:
    def __init__(
        self, *, store: Store, logs: Logs, active: ActiveRuns, launches: Dispatcher, notifier: RunNotifier
    ) -> None:
        self._store = store
        self._logs = logs
        self._active = active
        self._launches = launches
        self._notifier = notifier
        self._open = 0
        self._turns = asyncio.Semaphore(READS_AT_ONCE)

    async def stream(self, query: LogQuery) -> AsyncIterator[LogChunk | LogEnd]:
        """Raises RunNotFoundError, StepNotFoundError, BadPositionError, LogExpiredError if a log was deleted meanwhile,
        and StoppingError before its end.
        """
        launches = (await self._check(query)).launches
        position = _Position.parse(query.position)
        if not position.within(launches):
            raise BadPositionError(query.position)
        reader = _Reader(
            self._store,
            self._logs,
            query,
            position,
            self._launches.waits,
            self._page_size,
            self._turns,
        )
        self._open += 1
        try:
            with self._notifier.watching(query.run_id) as watch:
                async for item in self._stream(query, reader, watch):
                    yield item
        finally:
            self._open -= 1

    async def ends(self, attempt: Attempt) -> Mapping[LogKind, OutputEnd]:
        """The last bytes of each stream of a process; of a running one, so far."""
        if attempt.child or self._launches.waits(attempt.token):
            return {}
        known = attempt.state.terminal and attempt.state is not AttemptState.LOST
        if known and not (attempt.stdout_bytes or attempt.stderr_bytes):
            return {}
        async with self._turns:
            return await self._logs.ends(attempt, OUTPUT_END)

    def _page_size(self, given: int) -> int:
        """For a stream that has returned so many bytes. A page stays in memory until the reader takes it."""
        if given < FIRST_PAGES:
            return PAGE
        return max(PAGE, min(LARGE_PAGE, LARGE_PAGES_OF_ALL // self._open))

    async def _stream(self, query: LogQuery, reader: _Reader, watch: RunWatch) -> AsyncIterator[LogChunk | LogEnd]:
        printed = None
        try:
            while True:
                watch.changed.clear()
                # The state is read before the logs: an attempt that had ended by then writes no more.
                run = await self._run(query.run_id)
                over = not query.follow or self._over(query, run)
                async for chunk in reader.pages():
                    yield chunk
                if over:
                    if run.launches > ATTEMPTS_AT_ONCE:
                        # A run that was deleted meanwhile has no more attempts, but that is not its end.
                        await self._run(query.run_id)
                    complete = reader.complete and self._over(query, run)
                    yield LogEnd(state=run.state, complete=complete, position=str(reader.position))
                    return
                if self._notifier.closed:
                    # Not the end of the log: the reader resumes at its position.
                    raise StoppingError
                if printed is None:
                    # From now on new output wakes this stream; read once more for output in between.
                    printed = self._logs.watching(query.run_id, watch.changed)
                    printed.__enter__()
                    continue
                await watch.wait()
        finally:
            if printed is not None:
                printed.__exit__(None, None, None)

    async def _run(self, run_id: str) -> Run:
        run = self._active.run(run_id) or await self._store.get_run_page(run_id, limit=0)
        if run is None:
            raise RunNotFoundError(run_id)
        return run

    def _over(self, query: LogQuery, run: Run) -> bool:
        if run.state.terminal or not query.step:
            return run.state.terminal
        step = run.steps.get(query.step.removesuffix(CHECK))
        if step is None:
            return False  # the run was stored a moment ago and has not begun
        count = step.checks if query.step.endswith(CHECK) else step.attempts
        latest = step.attempt
        if query.attempt and count >= query.attempt and latest is not None:
            passed = count > query.attempt or latest.step != query.step
            return passed or latest.state.terminal
        return step.state.terminal

    async def _check(self, query: LogQuery) -> Run:
        run = await self._store.get_run(query.run_id) if query.step else await self._run(query.run_id)
        if run is None:
            raise RunNotFoundError(query.run_id)
        if query.step and query.step.removesuffix(CHECK) not in run.steps:
            raise StepNotFoundError(query.run_id, query.step)
        return run


class _Reader:
    """Reads on from a position, through all attempts that match the query."""

    def __init__(
        self,
        store: Store,
        logs: Logs,
        query: LogQuery,
        position: _Position,
        waits: Callable[[str], bool],
        page_size: Callable[[int], int],
        turns: asyncio.Semaphore,
    ) -> None:
        self._page_size = page_size
        self._turns = turns
        self._given = 0
        self._store = store
        self._waits = waits
        self._logs = logs
        self._query = query
        self._kinds = frozenset(query.kinds) or frozenset(LogKind)
        self._fresh = not query.position
        self._cursors: dict[int, LogCursor] = {}
        self._left_out: dict[int, int] = {}
        """Of attempts with a tail: how many lines are still to be left out."""
        self.position = position
        self.complete = True

    async def pages(self) -> AsyncIterator[LogChunk]:
        """Everything up to now."""
        start = self.position.first
        while True:
            attempts = await self._store.run_attempts(self._query.run_id, from_ordinal=start, limit=ATTEMPTS_AT_ONCE)
            waiting = 0
            for attempt in attempts:
                if self.position.done(attempt.ordinal):
                    continue
                if not self._asked_for(attempt):
                    self.position.finish(attempt.ordinal)
                elif self._waits(attempt.token):
                    waiting += 1  # for a slot: it has no output yet
                else:
                    async for chunk in self._attempt(attempt):
                        yield chunk
            # Attempts wait in the order of their launch: after so many, the rest waits too.
            if len(attempts) < ATTEMPTS_AT_ONCE or waiting == ATTEMPTS_AT_ONCE:
                break
            start = attempts[-1].ordinal + 1
        # Attempts that are launched from now on are read from their first line.
        self._fresh = False

    def _asked_for(self, attempt: Attempt) -> bool:
        wanted = self._query.step
        of_group = not attempt.check and attempt.step.startswith(f"{wanted}[")
        if attempt.child or (wanted and attempt.step != wanted and not of_group):
            return False
        return not self._query.attempt or attempt.number == self._query.attempt

    async def _attempt(self, attempt: Attempt) -> AsyncIterator[LogChunk]:
        cursor = self._cursors.get(attempt.ordinal)
        if cursor is None:
            place = self.position.places.get(attempt.ordinal)
            if place is None:
                tail = self._query.tail if self._fresh else 0
                place = await self._tail(attempt, tail) if tail else LogPlace()
            cursor = self._cursors[attempt.ordinal] = LogCursor(place, raw=self._query.raw)
        while cursor.learns:
            await self._page(attempt, cursor, LARGE_PAGE)
        while True:
            before = cursor.next
            page, records = await self._page(attempt, cursor, self._page_size(self._given))
            if page.missing and cursor.place.spot[0] and attempt.state.terminal:
                raise LogExpiredError(attempt.id, attempt.step)
            moved = cursor.next > before
            ended = _ended(attempt, page, moved=moved)
            if ended:
                records += cursor.finish()
                cut_off = page.missing or (not page.over and cursor.next[0] > 0)
                # An attempt that never became a process has no output; its file is just the claim.
                if attempt.state is AttemptState.LOST or (cut_off and attempt.pid is not None):
                    self.complete = False
                del self._cursors[attempt.ordinal]
                self.position.finish(attempt.ordinal)
            else:
                self.position.places[attempt.ordinal] = cursor.place
            del page
            records = self._wanted(attempt, records)
            if records:
                self._given += sum(len(record.data) for record in records)
                yield LogChunk(attempt=attempt, records=records, position=str(self.position))
            if ended or not moved:
                return

    async def _page(self, attempt: Attempt, cursor: LogCursor, size: int) -> tuple[LogPage, list[LogRecord]]:
        """The next page of an attempt, and its records. Raises BadPositionError."""
        async with self._turns:
            try:
                page = await self._logs.read(attempt, *cursor.next, size)
            except ValueError:
                raise BadPositionError(self._query.position) from None
            # Many structured lines in a large page would delay other calls.
            return page, cursor.take(page) if size <= PAGE else await asyncio.to_thread(cursor.take, page)

    def _wanted(self, attempt: Attempt, records: Sequence[LogRecord]) -> list[LogRecord]:
        found = [record for record in records if shows(record, self._kinds, self._query.level)]
        if lines := self._left_out.pop(attempt.ordinal, 0):
            found, left = after_lines(found, lines)
            if left:
                self._left_out[attempt.ordinal] = left
        return [record for record in found if record.at >= self._query.since]

    async def _tail(self, attempt: Attempt, lines: int) -> LogPlace:
        """Where to begin for the last lines. Reads the log once, and keeps the places of the pages with these lines."""
        kept: deque[tuple[LogPlace, int]] = deque()
        total = 0
        within_line = False
        cursor = LogCursor(LogPlace(), raw=self._query.raw)
        while True:
            place = cursor.place
            page, records = await self._page(attempt, cursor, LARGE_PAGE)
            over = _ended(attempt, page, moved=cursor.next > place.spot)
            if over:
                records += cursor.finish()
            found = [record for record in records if shows(record, self._kinds, self._query.level)]
            if found:
                count = sum(record.data.count(b"\n") for record in found)
                within_line = not found[-1].data.endswith(b"\n")
                kept.append((place, count))
                total += count
                while total - kept[0][1] > lines:
                    total -= kept.popleft()[1]
            if over or cursor.next <= place.spot:
                break
        before = total + within_line - lines
        if before <= 0:
            return LogPlace()
        while kept[0][1] < before:
            before -= kept.popleft()[1]
        self._left_out[attempt.ordinal] = before
        return kept[0][0]


def _ended(attempt: Attempt, page: LogPage, *, moved: bool) -> bool:
    """Whether no output follows the page."""
    return page.over or (attempt.state.terminal and (page.damaged or not moved))
