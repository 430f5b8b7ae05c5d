"""What a whole run printed, as one stream that can be left and taken up again exactly where it was left.

A position names, for every attempt that has printed something not yet passed over for good, the offset reached in its
log, and behind a `+` how much was given of a piece there that came in parts. Attempts are numbered in the order of
their launch; all below the first number are done with.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field

from toband.domain.run_model import CHECK, Attempt, AttemptState, Run, RunState
from toband.engine.errors import (
    BadPositionError,
    LogExpiredError,
    RunNotFoundError,
    StepNotFoundError,
    StoppingError,
)
from toband.engine.execution.dispatcher import Launches
from toband.engine.run_notifier import RunNotifier, RunWatch
from toband.engine.runs.registry import ActiveRuns
from toband.ports import PAGE, LogKind, LogPiece, Logs, Store

ATTEMPTS_AT_ONCE = 100
FIRST_PAGES = 4 * 1024 * 1024
"""So much is given in small pages, in case the reader never takes any of them."""
LARGE_PAGE = 1024 * 1024
LARGE_PAGES_OF_ALL = 4 * 1024 * 1024
"""Shared by all streams: of many, each gets small pages."""
READS_AT_ONCE = 4
"""Of all streams: with a hundred that are ready at once, every other call would wait for a page of each."""
_DONE = (-1, 0)
_POSITION = re.compile(r"1\.[0-9]{1,18}(\.[0-9]{1,18}-([0-9]{1,18}(\+[0-9]{1,18})?|-1))*")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    attempt: Attempt
    pieces: Sequence[LogPiece]
    position: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    state: RunState
    complete: bool
    position: str


@dataclass(slots=True)
class _Place:
    """How far a reader is. `offsets` holds attempts from `first` on; _DONE marks those read to their end.

    Of each attempt: the offset of a piece, and how many bytes of it were given.
    """

    first: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        rest = ".".join(
            f"{ordinal}-{offset}" + (f"+{skip}" if skip else "")
            for ordinal, (offset, skip) in sorted(self.offsets.items())
        )
        return f"1.{self.first}" + (f".{rest}" if rest else "")

    @classmethod
    def parse(cls, text: str) -> _Place:
        """Raises BadPositionError."""
        if not text:
            return cls()
        if not _POSITION.fullmatch(text):
            raise BadPositionError(text)
        _, first, *rest = text.split(".")
        pairs = (item.partition("-") for item in rest)
        return cls(int(first), {int(ordinal): _reached(text) for ordinal, _, text in pairs})

    def within(self, launches: int) -> bool:
        """Whether it speaks only of attempts that there have been."""
        return self.first <= launches and all(ordinal < launches for ordinal in self.offsets)

    def done(self, ordinal: int) -> bool:
        return ordinal < self.first or self.offsets.get(ordinal) == _DONE

    def finish(self, ordinal: int) -> None:
        self.offsets[ordinal] = _DONE
        while self.offsets.get(self.first) == _DONE:
            del self.offsets[self.first]
            self.first += 1


def _reached(text: str) -> tuple[int, int]:
    offset, _, skip = text.partition("+")
    return int(offset), int(skip or 0)


class LogStreams:
    def __init__(
        self, *, store: Store, logs: Logs, active: ActiveRuns, launches: Launches, notifier: RunNotifier
    ) -> None:
        self._store = store
        self._logs = logs
        self._active = active
        self._launches = launches
        self._notifier = notifier
        self._open = 0
        self._turns = asyncio.Semaphore(READS_AT_ONCE)

    async def stream(self, query: LogQuery) -> AsyncIterator[LogChunk | LogEnd]:
        """Raises RunNotFoundError, StepNotFoundError, BadPositionError, LogExpiredError if what it was reading is
        gone, and StoppingError before its end.
        """
        launches = (await self._check(query)).launches
        place = _Place.parse(query.position)
        if not place.within(launches):
            raise BadPositionError(query.position)
        reader = _Reader(
            self._store,
            self._logs,
            query,
            place,
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

    def _page_size(self, given: int) -> int:
        """For a stream that has given so many bytes: a page that is not taken stays in memory."""
        if given < FIRST_PAGES:
            return PAGE
        return max(PAGE, min(LARGE_PAGE, LARGE_PAGES_OF_ALL // self._open))

    async def _stream(self, query: LogQuery, reader: _Reader, watch: RunWatch) -> AsyncIterator[LogChunk | LogEnd]:
        printed = None
        try:
            while True:
                watch.changed.clear()
                # The state is read before the logs: what had ended by then has printed all it will.
                run = await self._run(query.run_id)
                over = not query.follow or self._over(query, run)
                async for chunk in reader.pages():
                    yield chunk
                if over:
                    if run.launches > ATTEMPTS_AT_ONCE:
                        # Removed meanwhile, it has no further attempts to be read, which is not its end.
                        await self._run(query.run_id)
                    complete = reader.complete and self._over(query, run)
                    yield LogEnd(state=run.state, complete=complete, position=str(reader.place))
                    return
                if self._notifier.closed:
                    # Not the end of the log: the reader comes back with its position.
                    raise StoppingError
                if printed is None:
                    # From now on writers wake us; go round once more for what came in between.
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
            return False  # stored a moment ago, and not begun
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
    """Reads on from a place, through all attempts that the query asks for."""

    def __init__(
        self,
        store: Store,
        logs: Logs,
        query: LogQuery,
        place: _Place,
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
        self.place = place
        self.complete = True

    async def pages(self) -> AsyncIterator[LogChunk]:
        """All there is now."""
        start = self.place.first
        while True:
            attempts = await self._store.run_attempts(self._query.run_id, from_ordinal=start, limit=ATTEMPTS_AT_ONCE)
            waiting = 0
            for attempt in attempts:
                if self.place.done(attempt.ordinal):
                    continue
                if not self._asked_for(attempt):
                    self.place.finish(attempt.ordinal)
                elif self._waits(attempt.token):
                    waiting += 1  # for a slot: it has printed nothing yet
                else:
                    async for chunk in self._attempt(attempt):
                        yield chunk
            # They wait in the order of their launch: behind so many, the others wait too.
            if len(attempts) < ATTEMPTS_AT_ONCE or waiting == ATTEMPTS_AT_ONCE:
                break
            start = attempts[-1].ordinal + 1
        # What is launched from now on is followed from its first line.
        self._fresh = False

    def _asked_for(self, attempt: Attempt) -> bool:
        wanted = self._query.step
        of_group = not attempt.check and attempt.step.startswith(f"{wanted}[")
        if attempt.child or (wanted and attempt.step != wanted and not of_group):
            return False
        return not self._query.attempt or attempt.number == self._query.attempt

    async def _attempt(self, attempt: Attempt) -> AsyncIterator[LogChunk]:
        offset, skip = self.place.offsets.get(attempt.ordinal, (0, 0))
        if self._query.tail and self._fresh and attempt.ordinal not in self.place.offsets:
            offset, skip = await self._logs.tail(attempt, self._query.tail, self._kinds)
        while True:
            try:
                size = self._page_size(self._given)
                async with self._turns:
                    page = await self._logs.read(attempt, offset, skip, size)
            except ValueError:
                raise BadPositionError(self._query.position) from None
            if page.missing and offset and attempt.state.terminal:
                raise LogExpiredError(attempt.id, attempt.step)
            moved = (page.offset, page.skip) > (offset, skip)
            offset, skip = page.offset, page.skip
            self.place.offsets[attempt.ordinal] = offset, skip
            pieces = [piece for piece in page.pieces if piece.kind in self._kinds]
            pieces = [piece for piece in pieces if piece.at >= self._query.since]
            ended = page.over or (attempt.state.terminal and (page.damaged or not moved))
            if ended:
                cut_off = page.missing or (not page.over and offset > 0)
                # What never became a process printed nothing, and its claim is all there is.
                if attempt.state is AttemptState.LOST or (cut_off and attempt.pid is not None):
                    self.complete = False
                self.place.finish(attempt.ordinal)
            del page
            if pieces:
                self._given += sum(len(piece.data) for piece in pieces)
                yield LogChunk(attempt=attempt, pieces=pieces, position=str(self.place))
            if ended or not moved:
                return
