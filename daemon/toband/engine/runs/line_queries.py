"""Log lines: the lines of one process by their numbers, and the lines of a run's processes that have a text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from toband.domain.attempt_model import Attempt
from toband.engine.errors import AttemptNotFoundError, LogExpiredError, RunNotFoundError
from toband.ports import LinePage, LineQuery, LogLineReader, NumberedLine, Store, TextQuery

READS_AT_ONCE = 2
"""For all callers: reading a log for the first time takes a processor for a while."""
LOGS_OF_SEARCH = 200
"""Processes whose logs one call searches at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChoice:
    """Processes of a run: all, those of a step, or one attempt of it; or one process alone."""

    process: str = ""
    run_id: str = ""
    step: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage:
    """Lines with their processes. `next`: where a further search begins, the number of a process and of a line."""

    found: Sequence[tuple[Attempt, NumberedLine]]
    next: tuple[int, int] | None = None


class LineQueries:
    """Belongs to the event loop; logs are read in threads. `waits` says whether an attempt has no process yet."""

    def __init__(self, store: Store, reader: LogLineReader, waits: Callable[[str], bool]) -> None:
        self._store = store
        self._reader = reader
        self._waits = waits
        self._turns = asyncio.Semaphore(READS_AT_ONCE)

    async def read(self, choice: LogChoice, query: LineQuery) -> tuple[Attempt, LinePage]:
        """Of the last process that was chosen.

        Raises RunNotFoundError, AttemptNotFoundError, LogExpiredError.
        """
        found = await self._attempts(choice, 0)
        if not found:
            raise AttemptNotFoundError(choice.process or f"{choice.step} of run {choice.run_id}")
        attempt = found[-1]
        async with self._turns:
            page = await asyncio.to_thread(self._reader.read, attempt, query)
        if page.missing and attempt.pid is not None:
            raise LogExpiredError(attempt.id, attempt.step)
        return attempt, page

    async def search(self, choice: LogChoice, query: TextQuery, start: tuple[int, int]) -> SearchPage:
        """From a process, by its position in the order of launches, and after a line of it. Logs that are gone have no
        lines. Raises RunNotFoundError, AttemptNotFoundError.
        """
        found: list[tuple[Attempt, NumberedLine]] = []
        searched = 0
        for attempt in await self._attempts(choice, start[0]):
            after = start[1] if attempt.ordinal == start[0] else 0
            if searched >= LOGS_OF_SEARCH:
                return SearchPage(found=found, next=(attempt.ordinal, after))
            if self._waits(attempt.token):
                continue
            searched += 1
            async with self._turns:
                of_log = replace(query, after=after, count=query.count - len(found))
                lines = await asyncio.to_thread(self._reader.search, attempt, of_log)
            found += [(attempt, line) for line in lines.lines]
            if lines.resume is not None:
                return SearchPage(found=found, next=(attempt.ordinal, lines.resume))
            if len(found) >= query.count:
                return SearchPage(found=found, next=(attempt.ordinal + 1, 0))
        return SearchPage(found=found)

    async def _attempts(self, choice: LogChoice, first: int) -> list[Attempt]:
        """Those that are chosen, in the order of their launches."""
        if choice.process:
            attempt = await self._store.get_attempt(choice.process)
            if attempt is None or choice.run_id not in ("", attempt.run_id):
                raise AttemptNotFoundError(choice.process)
            return [attempt] if attempt.ordinal >= first else []
        if await self._store.get_run_page(choice.run_id, limit=0) is None:
            raise RunNotFoundError(choice.run_id)
        found: list[Attempt] = []
        while page := await self._store.run_attempts(choice.run_id, from_ordinal=first):
            found += [attempt for attempt in page if _is_chosen(choice, attempt)]
            first = page[-1].ordinal + 1
        return found


def _is_chosen(choice: LogChoice, attempt: Attempt) -> bool:
    of_group = not attempt.check and attempt.step.startswith(f"{choice.step}[")
    if attempt.child or (choice.step and attempt.step != choice.step and not of_group):
        return False
    return not choice.attempt or attempt.number == choice.attempt
