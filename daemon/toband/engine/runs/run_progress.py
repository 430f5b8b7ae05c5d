"""Progress of runs and their steps: the last that live steps have reported."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace

from toband.domain import run_index
from toband.domain.attempt_model import Attempt, Progress
from toband.domain.run_model import Run, StepRun
from toband.engine.runs.registry import ActiveRuns
from toband.ports import Logs

FRESH = 0.5
"""Seconds for which the log of an attempt is not read again, however many clients ask."""
LOGS_AT_ONCE = 100
"""Logs that one call reads; of more live steps, those that were read longest ago come first."""
_KEPT = 10_000


class RunProgress:
    """Reads the logs of live attempts only when it is asked."""

    def __init__(self, active: ActiveRuns, logs: Logs, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is monotonic."""
        self._active = active
        self._logs = logs
        self._clock = clock
        self._reading = asyncio.Lock()
        # By token: when the log was read, and the last progress in it.
        self._seen: OrderedDict[str, tuple[float, Progress | None]] = OrderedDict()

    async def of(self, run: Run) -> Run:
        """The run with the last progress of its live steps, and of its current step as its own.

        What ended attempts had reported is part of the run already.
        """
        active = self._active.run(run.id)
        if active is None:
            return run
        steps = {name: attempt for name, step in run.steps.items() if (attempt := _reporter(step)) is not None}
        current = active.steps.get(active.current_step)
        attempt = live_attempt(current) if current is not None else None
        found = await self._read([*([attempt] if attempt is not None else []), *steps.values()])
        shown = {name: replace(run.steps[name], progress=found.get(steps[name].token)) for name in steps}
        own = found.get(attempt.token) if attempt is not None else None
        return replace(run, steps={**run.steps, **shown}, progress=own or run.progress)

    def reporters(self, run_id: str) -> Run | None:
        """The active run with only the steps that may report progress now; None if there are none."""
        run = self._active.run(run_id)
        if run is None:
            return None
        steps = {name: run.steps[name] for name in run_index.moving(run.steps)}
        live = {name: step for name, step in steps.items() if live_attempt(step) is not None}
        return replace(run, steps=live) if live else None

    async def _read(self, attempts: Iterable[Attempt]) -> dict[str, Progress | None]:
        """The last progress by token. Of many attempts, some may be missing."""
        wanted = {attempt.token: attempt for attempt in attempts}
        async with self._reading:
            now = self._clock()
            at = {token: self._seen[token][0] if token in self._seen else -FRESH for token in wanted}
            due = sorted((token for token in wanted if now - at[token] >= FRESH), key=at.__getitem__)[:LOGS_AT_ONCE]
            if due:
                for token, progress in zip(due, await self._logs.progress([wanted[t] for t in due]), strict=True):
                    self._seen[token] = now, progress
                    self._seen.move_to_end(token)
                while len(self._seen) > _KEPT:
                    self._seen.popitem(last=False)
            return {token: self._seen[token][1] for token in wanted if token in self._seen}


def live_attempt(step: StepRun) -> Attempt | None:
    """The live process of a step, or of its completion check."""
    attempt = step.attempt
    return attempt if attempt is not None and not attempt.child and not attempt.state.terminal else None


def _reporter(step: StepRun) -> Attempt | None:
    """The live process of a step itself."""
    attempt = live_attempt(step)
    return None if attempt is None or attempt.check else attempt
