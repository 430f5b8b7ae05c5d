"""WatchRun of the RunService: the whole run, then every change, and the progress of its current step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

from toban.v1 import run_pb2 as pb
from toband.api import pages, run_messages, run_summary
from toband.api.request_errors import InvalidFieldError
from toband.api.run_pages import next_run_page, run_page
from toband.domain.plan import Plan
from toband.domain.run_model import Progress, Run
from toband.engine.errors import StoppingError
from toband.engine.run_notifier import RunNotifier
from toband.engine.runs.plan_cache import PlanCache
from toband.engine.runs.run_progress import RunProgress
from toband.ports import Store

WATCHED_STEPS = 200
CHANGES = 50
"""How many steps or changes a watcher reads at once: they stay in memory while it does not take them."""
WATCHED_ROOM = 128 * 1024
"""For the steps of one message to a watcher."""
PROGRESS_EVERY = 1.0
"""Seconds between two looks at the log of the current step."""


class RunWatchRpc:
    def __init__(self, plans: PlanCache, store: Store, notifier: RunNotifier, progress: RunProgress) -> None:
        self._plans = plans
        self._store = store
        self._notifier = notifier
        self._progress = progress

    async def watch(self, request: pb.WatchRunRequest) -> AsyncIterator[pb.WatchRunResponse]:
        """Raises RunNotFoundError, InvalidFieldError, and StoppingError before the end of the run."""
        with self._notifier.watching(request.id) as watch:
            sequence = request.after_sequence
            run = await run_page(self._store, request.id, limit=0)
            plan = await self._plans.plan_of(run)
            if not 0 <= sequence <= run.sequence:
                raise InvalidFieldError("after_sequence", f"must be from 0 to {run.sequence}, found {sequence}")
            if sequence == 0:
                # The state must be of the same moment as the sequence: no change follows the one that ended the run.
                run, more = await next_run_page(self._store, request.id, -1, WATCHED_STEPS)
                sequence = run.sequence
                async for message in self._whole(run, more, plan):
                    yield message
            state, reported = run.state, run.progress
            while True:
                watch.changed.clear()
                entries = await self._store.history(request.id, after=sequence, limit=CHANGES)
                for entry in entries:
                    sequence, state, reported = entry.sequence, entry.run.state, entry.run.progress
                    change = run_messages.change_kind(entry.event)
                    for part, rest in _parts(run_messages.run(entry.run, plan)):
                        yield pb.WatchRunResponse(sequence=sequence, run=part, partial=rest, change=change)
                if state.terminal:
                    return
                if self._notifier.closed:
                    raise StoppingError
                if len(entries) == CHANGES:
                    continue
                now = await self._report(request.id, sequence, reported, plan)
                if now is not None:
                    reported, message = now
                    yield message
                await watch.wait(PROGRESS_EVERY if self._progress.reporter(request.id) else None)

    async def _whole(self, page: Run, more: bool, plan: Plan | None) -> AsyncIterator[pb.WatchRunResponse]:
        """The whole run in pages, from its first on, each read when the page before was taken.

        All have the sequence of the first: changes that a run makes in the meantime follow.
        """
        sequence, first = page.sequence, True
        while True:
            made = run_messages.run(page, plan)
            if first:
                await run_summary.add_steps(made, page, self._store)
            else:
                run_messages.leave_out_params(made)
            for part, rest in _parts(made):
                yield pb.WatchRunResponse(sequence=sequence, run=part, partial=more or rest)
            if not more:
                return
            first = False
            after = max(step.position for step in page.steps.values())
            page, more = await next_run_page(self._store, page.id, after, WATCHED_STEPS)

    async def _report(
        self, run_id: str, sequence: int, last: Progress | None, plan: Plan | None
    ) -> tuple[Progress, pb.WatchRunResponse] | None:
        """The progress of the run and a message with it; None if it is the same as the last one."""
        if self._progress.reporter(run_id) is None:
            return None
        run: Run = await run_page(self._store, run_id, limit=0)
        found = await self._progress.of(run)
        if found is None or found == last or run.sequence != sequence:
            return None
        made = run_messages.run(replace(run, progress=found), plan)
        run_messages.leave_out_params(made)
        kind = pb.RUN_CHANGE_KIND_PROGRESS_REPORTED
        return found, pb.WatchRunResponse(sequence=sequence, run=made, change=kind)


def _parts(run: pb.Run) -> Iterator[tuple[pb.Run, bool]]:
    """The run in as many messages as its steps need, and whether more follow."""
    steps = list(run.steps)
    while True:
        count = pages.fitting(steps, WATCHED_ROOM - run.params.ByteSize())
        del run.steps[:]
        run.steps.extend(steps[:count])
        steps = steps[count:]
        yield run, bool(steps)
        if not steps:
            return
        run_messages.leave_out_params(run)
        run.summary.ClearField("steps")
        run.summary.left_out = 0
