"""Log stream: the output of a whole run as one stream that a reader can resume at an exact position."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from toband.domain.attempt_model import CHECK, Attempt, AttemptState
from toband.domain.run_model import Run, RunState
from toband.engine.errors import RunNotFoundError, StepNotFoundError, StoppingError
from toband.engine.execution.dispatcher import Dispatcher
from toband.engine.run_notifier import RunNotifier, RunWatch
from toband.engine.runs.registry import ActiveRuns
from toband.engine.runs.run_log import ATTEMPTS_AT_ONCE, LARGE_PAGE, LogChunk, LogQuery, RunLog
from toband.ports import PAGE, LogKind, Logs, OutputEnd, Store

FIRST_PAGES = 4 * 1024 * 1024
"""Bytes that a stream returns in small pages first, and again after its reader was slow: it may stop reading."""
SLOW_READER = 0.1
"""Seconds that a reader may take for a page before it counts as slow."""
LARGE_PAGES_OF_ALL = 4 * 1024 * 1024
"""Shared by all streams: with many streams, each gets small pages."""
OUTPUT_END = 64 * 1024
"""Bytes at the end of a stream that a record of its process has."""
READS_AT_ONCE = 4
"""For all streams: without it, calls would wait for a page of each of many streams that are ready at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    state: RunState
    complete: bool
    position: str


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
        known = (await self._check(query)).launches

        def launches() -> int:
            run = self._active.run(query.run_id)
            return known if run is None else max(run.launches, known)

        reader = RunLog(self._store, self._logs, query, launches, self._launches.waits, self._page_size, self._turns)
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

    async def _stream(self, query: LogQuery, reader: RunLog, watch: RunWatch) -> AsyncIterator[LogChunk | LogEnd]:
        printed = None
        try:
            while True:
                watch.changed.clear()
                # The state is read before the logs: an attempt that had ended by then writes no more.
                run = await self._run(query.run_id)
                over = not query.follow or self._over(query, run)
                async for chunk in reader.chunks():
                    given = time.monotonic()
                    yield chunk
                    if time.monotonic() - given > SLOW_READER:
                        reader.slow_down()
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
            raise StepNotFoundError(run, query.step)
        return run
