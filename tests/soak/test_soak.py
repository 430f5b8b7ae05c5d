"""The short form of `scripts/soak`, and defects that it must find."""

from __future__ import annotations

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

BEFORE_CLOCKS_CHANGE = datetime(2027, 3, 11, tzinfo=UTC)
"""On 14 March in New York, on the 28th in Berlin, and in Casablanca twice around Ramadan."""


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
    report = live(lambda _: None, days=14, workflows=30)
    print(report.done)
    assert report.wrong == []
    assert report.due_times > 300
    assert report.runs > 500
    assert min(report.done.values()) > 0


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
    """One in each life of the daemon."""
    LEFT_OPEN.append(os.dup(0))


def keep_notes(life: DaemonLife) -> None:
    """Each run leaves something behind, as a cache without a limit does."""
    notify = life.engine.runs.active.on_add

    def keeping(*args: Any) -> None:
        NOTES.extend([each] for each in range(1000))
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
    report = live(injected, days=3.5, workflows=9)
    assert any(found in each for each in report.wrong), report.wrong
