"""Missed due times are caught up in turns, and current due times do not wait for them."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from faults import clock
from faults.timed_checker import lines_of
from faults.timed_runs import runs_of
from helpers.daemon import Daemon
from helpers.wait import wait_until

AWAY = 1500
IN_A_SECOND = 20
MANY = 60

pytestmark = pytest.mark.skipif(bool(clock.why_not()), reason=f"no clock: {clock.why_not()}")


def _definition(name: str, schedule: str, overlap: str) -> str:
    return f"name: {name}\ndescription: x\noverlap: {overlap}\nschedule: {schedule}\nsteps: {{only: {{run: 'true'}}}}\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_outage_is_no_storm_and_keeps_nothing_from_being_due(tmp_path: Path) -> None:
    dial = clock.Clock(tmp_path)
    assert dial.works()
    daemon = Daemon(tmp_path / "s", environment=dial.environment)
    daemon.program = dial.program
    try:
        daemon.start()
        daemon.apply(_definition("all", "{every: 2s, misfire: run_all}", "allow"))
        daemon.apply(_definition("line", "{every: 5s, misfire: run_all}", "queue"))
        daemon.apply(_definition("often", "{cron: '* * * * * *', misfire: skip}", "allow"))
        for number in range(MANY):
            daemon.apply(_definition(f"some{number}", "{every: 10m}", "skip"))
        daemon.kill()
        dial.set(AWAY)
        daemon.start()
        back = time.time() + AWAY

        def often() -> list[str]:
            """What became of its due times since the daemon is back."""
            return [line.outcome for line in lines_of(daemon, "often") if line.due > back]

        def caught_up() -> Counter[int]:
            """How many runs were started for missed times, by the second."""
            lines = (line for line in lines_of(daemon, "") if line.outcome == "CAUGHT_UP")
            return Counter(int(at) for at in {line.run: line.at for line in lines}.values())

        def schedules() -> set[str]:
            return {line.schedule for line in lines_of(daemon, "")}

        names = ["all", "line", *(f"some{number}" for number in range(MANY))]
        wait_until(lambda: len(often()) >= 12, "it is not due any more", 60)
        wait_until(lambda: caught_up().total() > 3 * MANY, "it is not caught up", 60)
        wait_until(lambda: schedules() >= {f"{name}/0" for name in names}, "one has no turn", 60)
        assert set(often()) == {"FIRED"}
        for line in lines_of(daemon, ""):
            missed = line.outcome in ("SKIPPED", "MISSED")
            assert not missed or line.schedule not in {f"{name}/0" for name in names}, line
        by_second = caught_up()
        # A daemon that was held up makes up for its turns, and never takes them before their time.
        for second in by_second:
            before = sum(count for at, count in by_second.items() if at <= second)
            assert before <= IN_A_SECOND * (second - min(by_second) + 2)
        assert len(runs_of(daemon)) >= by_second.total()
    finally:
        dial.set(0)
        daemon.clear()
