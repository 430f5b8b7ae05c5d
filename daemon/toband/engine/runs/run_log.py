"""Run log: the output of all attempts of a run as one log in the order of time, read on from a position.

Each attempt has a file of its own, and each piece in it the time at which it was read from the process. The files are
merged by these times. The next piece is always the earliest of the first unread pieces, with the attempt that was
launched first if times are equal; so a position, which has the place in each file, leads to the same order again.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.structured_lines import LogLevel
from toband.engine.errors import BadPositionError, LogExpiredError
from toband.engine.runs.log_position import LogPosition
from toband.engine.runs.log_view import LogCursor, LogPlace, LogRecord, after_lines, shows
from toband.ports import PAGE, LogKind, LogPage, LogPiece, Logs, Store

ATTEMPTS_AT_ONCE = 100
LOOK_AHEAD = 16
"""Attempts that are known before their turn comes: processes may start in another order than they were launched."""
LARGE_PAGE = 1024 * 1024
SMALL_PAGE = 2 * 1024
"""Of each of many attempts that are read at the same time."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


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


@dataclass(frozen=True, slots=True)
class _Launched:
    """An attempt whose log is not read yet, and when it began. `shift` is added to its times."""

    attempt: Attempt
    began: int
    shift: int


@dataclass(slots=True)
class _Source:
    """The log of an attempt. `page` was read, and its pieces come next; None: it has no output up to now."""

    attempt: Attempt
    cursor: LogCursor
    shift: int
    page: LogPage | None = None
    looked: int = 0
    """The number of the last read of it."""

    def turn(self, piece: LogPiece) -> tuple[int, int]:
        """Pieces come in the order of this. What was returned before is read again first, and returns nothing."""
        at = 0 if self.cursor.returned(piece) else piece.at + self.shift
        return at, self.attempt.ordinal

    @property
    def next_turn(self) -> tuple[int, int]:
        assert self.page is not None
        return self.turn(self.page.pieces[0])


@dataclass(slots=True)
class _Pass:
    """One pass over all logs up to now."""

    start: int
    ahead: deque[_Launched] = field(default_factory=deque)
    waiting: list[Attempt] = field(default_factory=list)
    """For a slot: they have no output yet."""
    more: bool = True
    latest: datetime = _EPOCH
    shift: int = 0
    reading: list[_Source] = field(default_factory=list)

    def first_ahead(self) -> _Launched | None:
        return min(self.ahead, key=lambda launched: (launched.began, launched.attempt.ordinal), default=None)

    def next_source(self) -> _Source | None:
        ready = (source for source in self.reading if source.page is not None)
        return min(ready, key=lambda source: source.next_turn, default=None)

    def add(self, attempt: Attempt, *, begun: bool) -> None:
        # Attempts are created in the order of their launch: if one seems older, the clock was set back in between.
        self.latest = max(self.latest, attempt.created_at + self.shift * _MICROSECOND)
        self.shift = (self.latest - attempt.created_at) // _MICROSECOND
        known = attempt.started_at is not None and not begun
        began = _microseconds(attempt.started_at) + self.shift if known and attempt.started_at is not None else 0
        self.ahead.append(_Launched(attempt, began, self.shift))


class RunLog:
    """Reads on from a position, through all attempts that match the query."""

    def __init__(
        self,
        store: Store,
        logs: Logs,
        query: LogQuery,
        launches: Callable[[], int],
        waits: Callable[[str], bool],
        page_size: Callable[[int], int],
        turns: asyncio.Semaphore,
    ) -> None:
        """`launches` is the number of attempts so far. Raises BadPositionError."""
        self._launches = launches
        self._store = store
        self._logs = logs
        self._query = query
        self._waits = waits
        self._page_size = page_size
        self._turns = turns
        self._given = 0
        self._reads = 0
        self._kinds = frozenset(query.kinds) or frozenset(LogKind)
        self._cursors: dict[int, LogCursor] = {}
        self.position = LogPosition.parse(query.position, launches())
        self._begins_tails = bool(query.tail)
        if query.tail:
            # Attempts that are launched from now on are read from their first line.
            self.position.tail, self.position.tail_below = query.tail, launches()
        self.complete = True

    def slow_down(self) -> None:
        """The next pages are small again: a page stays in memory until the reader takes it."""
        self._given = 0

    async def chunks(self) -> AsyncIterator[LogChunk]:
        """Everything up to now."""
        if self._begins_tails:
            await self._begin_tails()
            self._begins_tails = False
        current = _Pass(self.position.first)
        while True:
            await self._look_ahead(current)
            source, launched = current.next_source(), current.first_ahead()
            if launched is not None and (source is None or launched.began <= source.next_turn[0]):
                current.ahead.remove(launched)
                cursor = await self._cursor(launched.attempt)
                source = _Source(launched.attempt, cursor, launched.shift)
                current.reading.append(source)
                chunk = await self._read(source, current)
            elif source is None:
                return
            elif (quiet := _not_looked_since(source, current)) is not None:
                chunk = await self._read(quiet, current)
            else:
                chunk = await self._take(source, current)
            if chunk is not None:
                yield chunk

    async def _look_ahead(self, current: _Pass) -> None:
        for attempt in [attempt for attempt in current.waiting if not self._waits(attempt.token)]:
            # It got its slot since, and may print now.
            current.waiting.remove(attempt)
            current.add(attempt, begun=self.position.begun(attempt.ordinal))
        while len(current.ahead) < LOOK_AHEAD and (current.more or current.start < self._launches()):
            found = await self._store.run_attempts(
                self._query.run_id, from_ordinal=current.start, limit=ATTEMPTS_AT_ONCE
            )
            for attempt in found:
                if self.position.done(attempt.ordinal):
                    continue
                if not self._asked_for(attempt):
                    self.position.finish(attempt.ordinal)
                elif self._waits(attempt.token):
                    current.waiting.append(attempt)
                else:
                    current.add(attempt, begun=self.position.begun(attempt.ordinal))
            # Attempts wait in the order of their launch: after so many, the rest waits too.
            many = len(current.waiting) >= ATTEMPTS_AT_ONCE
            current.more = len(found) == ATTEMPTS_AT_ONCE and not many
            if many or not found:
                current.start = sys.maxsize
            else:
                current.start = found[-1].ordinal + 1

    def _asked_for(self, attempt: Attempt) -> bool:
        wanted = self._query.step
        of_group = not attempt.check and attempt.step.startswith(f"{wanted}[")
        if attempt.child or (wanted and attempt.step != wanted and not of_group):
            return False
        return not self._query.attempt or attempt.number == self._query.attempt

    async def _cursor(self, attempt: Attempt) -> LogCursor:
        cursor = self._cursors.get(attempt.ordinal)
        if cursor is None:
            if self.position.tail_of(attempt.ordinal):
                await self._begin_tail(attempt)
            place = self.position.places.get(attempt.ordinal) or LogPlace()
            cursor = self._cursors[attempt.ordinal] = LogCursor(place, raw=self._query.raw)
            while cursor.learns:
                page = await self._page(attempt, cursor, LARGE_PAGE)
                await asyncio.to_thread(cursor.take, page)
        return cursor

    async def _read(self, source: _Source, current: _Pass) -> LogChunk | None:
        """Looks for the next output of a log; returns its last lines if there is none any more."""
        attempt, cursor = source.attempt, source.cursor
        ready = sum(each.page is not None for each in current.reading)
        while True:
            size = self._page_size(self._given)
            page = await self._page(attempt, cursor, max(size // (ready + 1), min(size, SMALL_PAGE)))
            self._reads += 1
            source.looked = self._reads
            if page.missing and cursor.place.spot[0] and attempt.state.terminal:
                raise LogExpiredError(attempt.id, attempt.step)
            if page.pieces:
                source.page = page
                return None
            moved = (page.offset, page.skip) > cursor.next
            cursor.take(page)
            if _ended(attempt, page, moved=moved):
                current.reading.remove(source)
                return self._last_chunk(source, [], page)
            self.position.places[attempt.ordinal] = cursor.place
            if not moved:
                return None

    async def _take(self, source: _Source, current: _Pass) -> LogChunk | None:
        """The pieces of a page up to the turn of another log."""
        page, source.page = source.page, None
        assert page is not None
        following, launched = current.next_source(), current.first_ahead()
        count = 1
        while count < len(page.pieces):
            turn = source.turn(page.pieces[count])
            if following is not None and turn > following.next_turn:
                break
            if launched is not None and turn[0] >= launched.began:
                break
            count += 1
        part, rest = page, page.pieces[count:]
        if rest:
            part = replace(
                page, pieces=page.pieces[:count], offset=rest[0].offset, skip=rest[0].skip, over=False, damaged=False
            )
            source.page = replace(page, pieces=rest)
        # Many structured lines in a large page would delay other calls.
        large = sum(len(piece.data) for piece in part.pieces) > PAGE
        records = await asyncio.to_thread(source.cursor.take, part) if large else source.cursor.take(part)
        if rest:
            return self._chunk(source, records)
        current.reading.remove(source)
        if _ended(source.attempt, page, moved=True):
            return self._last_chunk(source, records, page)
        # Its next page is read when the reader has taken this one.
        current.ahead.append(_Launched(source.attempt, 0, source.shift))
        return self._chunk(source, records)

    def _chunk(self, source: _Source, records: Sequence[LogRecord]) -> LogChunk | None:
        wanted = self._wanted(source.attempt, records)
        self.position.places[source.attempt.ordinal] = source.cursor.place
        return self._made(source.attempt, wanted)

    def _last_chunk(self, source: _Source, records: Sequence[LogRecord], page: LogPage) -> LogChunk | None:
        """With the lines that were held back, of a log whose last page this is."""
        attempt, cursor = source.attempt, source.cursor
        wanted = self._wanted(attempt, [*records, *cursor.finish()])
        cut_off = page.missing or (not page.over and cursor.next[0] > 0)
        # An attempt that never became a process has no output; its file is just the claim.
        if attempt.state is AttemptState.LOST or (cut_off and attempt.pid is not None):
            self.complete = False
        del self._cursors[attempt.ordinal]
        self.position.finish(attempt.ordinal)
        return self._made(attempt, wanted)

    def _made(self, attempt: Attempt, records: Sequence[LogRecord]) -> LogChunk | None:
        if not records:
            return None
        self._given += sum(len(record.data) for record in records)
        return LogChunk(attempt=attempt, records=records, position=str(self.position))

    async def _page(self, attempt: Attempt, cursor: LogCursor, size: int) -> LogPage:
        """Raises BadPositionError."""
        async with self._turns:
            try:
                return await self._logs.read(attempt, *cursor.next, size)
            except ValueError:
                raise BadPositionError(self._query.position) from None

    def _wanted(self, attempt: Attempt, records: Sequence[LogRecord]) -> list[LogRecord]:
        found = [record for record in records if shows(record, self._kinds, self._query.level)]
        if lines := self.position.left_out.pop(attempt.ordinal, 0):
            found, left = after_lines(found, lines)
            if left:
                self.position.left_out[attempt.ordinal] = left
        return [record for record in found if record.at >= self._query.since]

    async def _begin_tails(self) -> None:
        """Finds the last lines of all attempts that may print more: they are not the last ones later."""
        start = self.position.first
        while True:
            found = await self._store.run_attempts(self._query.run_id, from_ordinal=start, limit=ATTEMPTS_AT_ONCE)
            for attempt in found:
                if attempt.state.terminal or not self.position.tail_of(attempt.ordinal) or not self._asked_for(attempt):
                    continue
                if self._waits(attempt.token):
                    self.position.places[attempt.ordinal] = LogPlace()
                else:
                    await self._begin_tail(attempt)
            if len(found) < ATTEMPTS_AT_ONCE:
                return
            start = found[-1].ordinal + 1

    async def _begin_tail(self, attempt: Attempt) -> None:
        """Finds where the last lines begin. Reads the log once, and keeps the places of the pages with these lines."""
        lines = self.position.tail
        kept: deque[tuple[LogPlace, int]] = deque()
        total = 0
        within_line = False
        cursor = LogCursor(LogPlace(), raw=self._query.raw)
        while True:
            place = cursor.place
            page = await self._page(attempt, cursor, LARGE_PAGE)
            records = await asyncio.to_thread(cursor.take, page)
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
            self.position.places[attempt.ordinal] = LogPlace()
            return
        while kept[0][1] < before:
            before -= kept.popleft()[1]
        self.position.places[attempt.ordinal] = kept[0][0]
        self.position.left_out[attempt.ordinal] = before


def _not_looked_since(source: _Source, current: _Pass) -> _Source | None:
    """A live log that was found empty before this page was read: by now it may have something earlier."""
    quiet = (each for each in current.reading if each.page is None and each.looked < source.looked)
    return next(quiet, None)


def _ended(attempt: Attempt, page: LogPage, *, moved: bool) -> bool:
    """Whether no output follows the page."""
    return page.over or (attempt.state.terminal and (page.damaged or not moved))


def _microseconds(when: datetime) -> int:
    return (when - _EPOCH) // _MICROSECOND
