"""The first messages that a watcher of a run gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

from toban.v1 import run_pb2 as pb
from toband.api.run_pages import next_run_page
from toband.api.run_watch_rpc import WATCHED_STEPS, RunWatchRpc
from toband.domain.run_model import Run, RunState, StepRun
from toband.engine.run_notifier import RunNotifier

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Restless:
    """A store with a run of more steps than a page has, which changes at each read, or did so until now."""

    def __init__(self, *, changes: int) -> None:
        self.reads = 0
        self._changes = changes
        self._steps = [StepRun(id=f"s{n}", index=n) for n in range(WATCHED_STEPS + 10)]

    async def get_run_page(self, run_id: str, *, after: int, limit: int) -> Run:
        self.reads += 1
        page = [step for step in self._steps if step.position > after][:limit]
        return Run(
            id=run_id,
            workflow="w",
            version=1,
            created_at=NOW,
            steps={step.id: step for step in page},
            sequence=min(self.reads, self._changes),
        )


async def whole(store: Restless) -> AsyncIterator[pb.WatchRunResponse]:
    unused = cast(Any, None)
    rpc = RunWatchRpc(unused, cast(Any, store), unused, unused)
    page, more = await next_run_page(cast(Any, store), "r", -1, WATCHED_STEPS)
    async for message in rpc._whole(page, more, None):
        yield message


async def test_a_run_that_changes_while_it_is_read_is_of_its_first_moment() -> None:
    """Its changes since then come once more."""
    pages = [page async for page in whole(Restless(changes=10**6))]
    assert [(page.sequence, len(page.run.steps), page.partial) for page in pages] == [
        (1, WATCHED_STEPS, True),
        (1, 10, False),
    ]


async def test_a_page_is_read_when_the_one_before_was_taken() -> None:
    store = Restless(changes=1)
    pages = whole(store)
    await anext(pages)
    assert store.reads == 1
    await anext(pages)
    assert store.reads == 2


class Ending:
    """A store with a run that ends between the first read and the second."""

    def __init__(self) -> None:
        self._states = [RunState.RUNNING]

    async def get_run_page(self, run_id: str, *, after: int, limit: int) -> Run:
        state = self._states.pop() if self._states else RunState.SUCCEEDED
        sequence = 2 if state.terminal else 1
        return Run(id=run_id, workflow="w", version=1, created_at=NOW, state=state, steps={}, sequence=sequence)

    async def history(self, run_id: str, *, after: int, limit: int) -> list[Any]:
        assert after == 2
        return []


class NoPlans:
    async def plan_of(self, run: Run) -> None:
        return None


class NoProgress:
    def reporter(self, run_id: str) -> None:
        return None


async def test_a_run_that_ends_while_it_is_first_read_ends_its_watch() -> None:
    rpc = RunWatchRpc(cast(Any, NoPlans()), cast(Any, Ending()), RunNotifier(), cast(Any, NoProgress()))
    async with asyncio.timeout(30):
        messages = [message async for message in rpc.watch(pb.WatchRunRequest(id="r"))]
    assert [(message.sequence, message.run.state) for message in messages] == [(2, pb.RUN_STATE_SUCCEEDED)]
