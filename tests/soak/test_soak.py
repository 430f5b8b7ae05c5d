"""The short form of `scripts/soak`, and defects that it must find."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from faults.settings import SEED, announce
from soak.daemon_life import DaemonLife
from soak.year import Report, Year, in_memory
from toband.domain.run_model import Trigger

BEFORE_CLOCKS_CHANGE = datetime(2027, 3, 11, tzinfo=UTC)
"""On 14 March in New York, on the 28th in Berlin, and in Casablanca twice around Ramadan."""


HOUR = 3600.0
SHORT = {
    **{f"retention.{name}": "4d" for name in ("age", "audit", "requests", "ledger", "events", "tokens")},
    "retention.versions": "3",
    "limits.total_logs": "1GiB",
}


def live(injected: Callable[[DaemonLife], None], *, days: float, workflows: int) -> Report:
    announce("soak")
    with TemporaryDirectory(dir=in_memory()) as directory:
        year = Year(
            root=Path(directory) / "state",
            seed=SEED,
            days=days,
            workflows=workflows,
            start=BEFORE_CLOCKS_CHANGE,
            week=timedelta(days=days / 7),
            settled=0.5,
            pause=2 * 3600,
            settings=SHORT,
            injected=injected,
        )
        return year.run()


@pytest.mark.slow
def test_nothing_grows_and_every_due_time_is_decided_once() -> None:
    report = live(lambda _: None, days=10, workflows=30)
    print(report.done)
    assert report.wrong == []
    assert report.due_times > 200
    assert report.runs > 400
    assert min(report.done.values()) > 0


def test_a_machine_that_sleeps_for_a_week_decides_what_it_missed() -> None:
    """The wall clock goes on while it sleeps, the clock of timers does not; steps sleep as well."""
    seen: list[datetime] = []

    def sleep(life: DaemonLife) -> None:
        seen.append(life.clock.now())
        if len(seen) == 2:
            loop = asyncio.get_running_loop()
            loop.call_later(HOUR, life.clock.jump, timedelta(days=7))

    report = live(sleep, days=14, workflows=10)
    # Sizes that depend on the load have no plateau in so short a time.
    assert [each for each in report.wrong if " grew from " not in each] == []
    assert len(seen) < 7, "it was a week less"
    assert report.due_times > 20


def test_a_year_by_mistake_removes_nothing_and_stops_nothing() -> None:
    """A clock that shows next year for an hour: what is old by it stays, and what comes after it is decided."""
    kept: list[int] = []

    def jump(life: DaemonLife) -> None:
        loop = asyncio.get_running_loop()
        if not kept:
            kept.append(0)
            loop.call_later(HOUR, life.clock.jump, timedelta(days=365))
            loop.call_later(2 * HOUR, look, life)

    def look(life: DaemonLife) -> None:
        tasks.append(asyncio.get_running_loop().create_task(count(life)))

    async def count(life: DaemonLife) -> None:
        await life.engine.retention._pass()
        await life.engine.row_retention.run_pass()
        kept.append(len(await life.adapters.store.list_runs(limit=1000)))
        life.clock.jump(-timedelta(days=365))
        run = await life.engine.runs.intake.start("leaf", {}, trigger=Trigger.API, caller="soak", request=None)
        await asyncio.sleep(6 * HOUR)
        found = await life.adapters.store.get_run(run.id)
        kept.append(found is not None and found.state.terminal)

    tasks: list[asyncio.Task[None]] = []
    live(jump, days=3.5, workflows=9)
    assert all(task.done() and not task.exception() for task in tasks)
    assert kept[1] > 0
    assert kept[2] is True


def lose_a_line(life: DaemonLife) -> None:
    """Decides one due time without its line in the ledger."""
    fire = life.adapters.store.fire
    lost: list[Any] = []

    async def losing(firing: Any) -> Any:
        fired = await fire(firing)
        if not lost and fired is not None and "/" in firing.before.id and fired.runs:
            lost.append(firing.before.id)
            line = firing.runs[0][0]
            await life.adapters.store._remove_lines([(line.schedule_id, line.due_at)])
        return fired

    life.adapters.store.fire = losing  # type: ignore[method-assign]


def leak_descriptors(life: DaemonLife) -> None:
    """Some in each life of the daemon."""
    LEFT_OPEN.extend(os.dup(0) for _ in range(5))


def keep_notes(life: DaemonLife) -> None:
    """Each run leaves something behind, as a cache without a limit does; it shows beside the objects of other tests."""
    notify = life.engine.runs.active.on_add
    objects = len(gc.get_objects()) // 200

    def keeping(*args: Any) -> None:
        NOTES.extend([each] for each in range(objects))
        notify(*args)

    life.engine.runs.active.on_add = keeping


NOTES: list[list[int]] = []
LEFT_OPEN: list[int] = []


@pytest.fixture(autouse=True)
def repaired() -> Iterator[None]:
    yield
    NOTES.clear()
    while LEFT_OPEN:
        os.close(LEFT_OPEN.pop())


@pytest.mark.parametrize(
    ("injected", "found"),
    [
        (lose_a_line, "not in the ledger"),
        (leak_descriptors, "descriptors grew"),
        (keep_notes, "objects grew"),
    ],
)
def test_a_defect_is_found(injected: Callable[[DaemonLife], None], found: str) -> None:
    report = live(injected, days=2.5, workflows=9)
    assert any(found in each for each in report.wrong), report.wrong
