"""WatchRun of the RunService: the whole run, then every change, and the progress of its steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace

from toban.v1 import run_pb2 as pb
from toband.api import pages, run_messages, run_summary
from toband.api.request_errors import InvalidFieldError
from toband.api.run_pages import next_run_page, run_page
from toband.domain.attempt_model import Progress
from toband.domain.plan import Plan
from toband.domain.run_model import Run
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
"""Seconds between two looks at the logs of live steps."""


@dataclass(slots=True)
class _Told:
    """The progress that a watcher has: of the run, and of its live steps."""

    run: Progress | None = None
    steps: dict[str, Progress] = field(default_factory=dict)


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
            state, told = run.state, _Told(run.progress)
            while True:
                watch.changed.clear()
                entries = await self._store.history(request.id, after=sequence, limit=CHANGES)
                for entry in entries:
                    sequence, state, told.run = entry.sequence, entry.run.state, entry.run.progress
                    for name in entry.run.steps:
                        told.steps.pop(name, None)
                    change = run_messages.change_kind(entry.event)
                    for part, rest in _parts(run_messages.run(entry.run, plan)):
                        yield pb.WatchRunResponse(sequence=sequence, run=part, partial=rest, change=change)
                if state.terminal:
                    return
                if self._notifier.closed:
                    raise StoppingError
                if len(entries) == CHANGES:
                    continue
                live = self._progress.reporters(request.id)
                if live is not None and live.sequence == sequence:
                    for message in await self._report(live, told, plan):
                        yield message
                await watch.wait(PROGRESS_EVERY if live is not None else None)

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

    async def _report(self, live: Run, told: _Told, plan: Plan | None) -> list[pb.WatchRunResponse]:
        """Messages with the progress that the watcher does not have yet, and the steps that reported it."""
        found = await self._progress.of(live)
        now = {name: step.progress for name, step in found.steps.items() if step.progress is not None}
        news = {name: found.steps[name] for name, progress in now.items() if progress != told.steps.get(name)}
        if not news and found.progress in (None, told.run):
            return []
        told.run, told.steps = found.progress, now
        made = run_messages.run(replace(found, steps=news), plan)
        run_messages.leave_out_params(made)
        run_messages.leave_out_items(made)
        kind = pb.RUN_CHANGE_KIND_PROGRESS_REPORTED
        return [
            pb.WatchRunResponse(sequence=found.sequence, run=part, partial=more, change=kind)
            for part, more in _parts(made)
        ]


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
