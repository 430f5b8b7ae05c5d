"""A year of the daemon on a virtual clock: its lives, one a week, and what is checked after each."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import structlog

from soak.clients import Clients
from soak.daemon_life import DaemonLife, on_virtual_time
from soak.due_times import differences
from soak.flows import flows
from soak.growth import Sample, growth, sample
from soak.scripted_steps import ScriptedSteps
from soak.virtual_time import VirtualClock, VirtualLoop
from toband.supervise.files.run_files import RunFiles

START = datetime(2027, 1, 4, tzinfo=UTC)
DOWN = timedelta(minutes=7)
"""How long no daemon runs at the end of each week."""
SHOWN = 20
SETTINGS = {
    "retention.age": "14d",
    "retention.audit": "21d",
    "retention.requests": "7d",
    "retention.ledger": "21d",
    "retention.events": "14d",
    "retention.tokens": "21d",
    "retention.versions": "3",
    "limits.total_logs": "1GiB",
}
"""Shorter than the first part of the soak, after which nothing may grow."""


@dataclass(kw_only=True)
class Report:
    """`wrong` is empty if all is well."""

    samples: list[Sample] = field(default_factory=list)
    due_times: int = 0
    runs: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class Year:
    """`injected` is called with each life of the daemon, to break something.

    `settled`: the part of the time after which nothing may grow any more. `pause`: seconds between the requests of
    clients. `passes`: seconds between two passes of retention, which are five minutes apart in a daemon.
    """

    root: Path
    seed: int
    days: float
    workflows: int = 500
    start: datetime = START
    week: timedelta = timedelta(days=7)
    settled: float = 0.1
    pause: float = 1800.0
    passes: float = 4 * 3600.0
    settings: Mapping[str, str] = field(default_factory=lambda: SETTINGS)
    tell: Callable[[str], None] = print
    injected: Callable[[DaemonLife], None] = lambda _: None

    def run(self) -> Report:
        began = time.monotonic()
        report = Report()
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, VirtualLoop)
            clock = VirtualClock(loop, self.start)
            before = structlog.get_config()
            structlog.configure(processors=[_Errors(report)])
            try:
                with on_virtual_time(loop, clock):
                    runner.run(self._live(loop, clock, report))
            finally:
                structlog.configure(**before)
        report.seconds = time.monotonic() - began
        return report

    async def _live(self, loop: VirtualLoop, clock: VirtualClock, report: Report) -> None:
        chance = Random(self.seed)
        steps = ScriptedSteps(RunFiles(str(self.root / "runs")), chance, clock)
        clients = Clients(list(flows(self.workflows, chance, self.start)), chance, self.pause)
        end = self.start + timedelta(days=self.days)
        checked = self.start
        life = DaemonLife(self.root, clock, steps, self.settings, self.passes)
        await life.start(loop)
        await clients.prepare(life)
        while True:
            self.injected(life)
            acting = loop.create_task(clients.act(life))
            stop = min(clock.now() + self.week, end).replace(second=30)
            await asyncio.sleep((stop - clock.now()).total_seconds())
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)
            life.check_tasks()
            until = clock.now() - timedelta(minutes=2)
            count, wrong = await asyncio.to_thread(
                differences, self.root / "toban.db", list(clients.flows), checked, until
            )
            report.due_times += count
            report.wrong += wrong
            checked = until
            for flow in list(clients.flows):
                had = bool(flow.rules)
                flow.forget(checked)
                if had and not flow.rules:
                    clients.flows.remove(flow)
            report.runs = await life.runs_made()
            active = len(await life.adapters.store.active_run_ids())
            # A task that has just ended is still there for a moment.
            await asyncio.sleep(1)
            day = (clock.now() - self.start) / timedelta(days=1)
            report.samples.append(sample(day, self.root, runs=report.runs, active=active))
            cpu = time.process_time()
            self.tell(f"{report.samples[-1]}; {report.due_times:,} due times checked; {cpu:,.0f} s of CPU")
            for each in report.wrong[:SHOWN]:
                self.tell(f"  {each}")
            if report.wrong or clock.now() >= end - DOWN:
                break
            await life.stop()
            del life
            await asyncio.sleep(DOWN.total_seconds())
            life = DaemonLife(self.root, clock, steps, self.settings, self.passes)
            await life.start(loop)
        problems = life.health.conditions
        report.wrong += [f"health: {each.name}: {each.detail}" for each in problems]
        await life.stop()
        report.done = clients.done
        if not report.wrong:
            report.wrong += growth(report.samples, self.settled)
        report.wrong += [f"logged {count} times: {text}" for text, count in report.errors.items()]


class _Errors:
    """Counts the errors that the daemon logs."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def __call__(self, _logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        if method in ("error", "critical", "exception"):
            text = f"{event.get('event')}: {event.get('error', event.get('exc_info', ''))}"
            if len(self._report.errors) < SHOWN or text in self._report.errors:
                self._report.errors[text] += 1
        raise structlog.DropEvent


def in_memory() -> Path | None:
    """Where the soak keeps its files if it can: the disk is not what is examined. None: where temporary files are."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else None
