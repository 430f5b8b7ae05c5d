"""What a watcher of a run is shown first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from toband.api.run_service import PICTURE_TRIES, STEPS, RunService
from toband.domain.model import Run, StepRun

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Restless:
    """A store with a run of more steps than a page has, which changes whenever somebody looks, or did so until now."""

    def __init__(self, *, changes: int) -> None:
        self.reads = 0
        self._changes = changes
        self._steps = [StepRun(id=f"s{n}", index=n) for n in range(STEPS + 10)]

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


async def pictured(store: Restless) -> list[tuple[Run, bool]]:
    nobody = cast(Any, None)
    service = RunService(nobody, nobody, nobody, cast(Any, store), nobody, nobody, nobody)
    return [page async for page in service._picture("r")]


async def test_a_run_that_changes_while_it_is_read_is_read_again() -> None:
    store = Restless(changes=2)
    pages = await pictured(store)
    assert store.reads == 4
    assert [(run.sequence, len(run.steps), more) for run, more in pages] == [
        (2, STEPS, True),
        (2, 10, False),
    ]


async def test_a_run_that_never_rests_is_not_read_again_and_again() -> None:
    """Its changes since the first page come once more then."""
    store = Restless(changes=10**6)
    pages = await pictured(store)
    assert store.reads == 2 * PICTURE_TRIES
    assert [run.sequence for run, _ in pages] == [store.reads - 1] * 2
