"""What a watcher of a run is shown first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

from toband.api.run_service import WATCHED_STEPS, RunService
from toband.domain.run_model import Run, StepRun

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Restless:
    """A store with a run of more steps than a page has, which changes whenever somebody looks, or did so until now."""

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


def picture(store: Restless) -> AsyncIterator[tuple[Run, bool]]:
    unused: dict[str, Any] = dict.fromkeys(
        (
            "intake",
            "factory",
            "plans",
            "queue",
            "launches",
            "control",
            "logs",
            "notifier",
            "sampler",
            "artifacts",
        )
    )
    service = RunService(**unused, store=cast(Any, store))
    return service._picture("r")


async def test_a_run_that_changes_while_it_is_read_is_of_its_first_moment() -> None:
    """Its changes since then come once more."""
    pages = [page async for page in picture(Restless(changes=10**6))]
    assert [(run.sequence, len(run.steps), more) for run, more in pages] == [
        (1, WATCHED_STEPS, True),
        (1, 10, False),
    ]


async def test_a_page_is_read_when_the_one_before_was_taken() -> None:
    store = Restless(changes=1)
    pages = picture(store)
    await anext(pages)
    assert store.reads == 1
    await anext(pages)
    assert store.reads == 2
