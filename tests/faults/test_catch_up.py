"""What was missed is caught up in turns, and what is due now does not wait for it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from faults import clock
from faults.timed_checker import lines_of
from faults.timed_runs import runs_of
from helpers.daemon import Daemon
from helpers.waiting import wait_until

AWAY = 1500
IN_A_SECOND = 20
MANY = 60

pytestmark = pytest.mark.skipif(bool(clock.why_not()), reason=f"no clock: {clock.why_not()}")


def _definition(name: str, schedule: str, overlap: str) -> str:
    return (
        f"name: {name}\ndescription: x\noverlap: {overlap}\n"
        f"schedule: {schedule}\nsteps: {{only: {{run: 'true'}}}}\n"
    )


@pytest.mark.slow
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
        caught_up = Counter[int]()

        def often() -> list[str]:
            """What became of its due times since the daemon is back."""
            return [line.outcome for line in lines_of(daemon, "often") if line.due > back]

        wait_until(lambda: len(often()) >= 12, "it is not due any more", 60)
        assert set(often()) == {"FIRED"}
        names = ["all", "line", *(f"some{number}" for number in range(MANY))]
        for name in names:
            lines = lines_of(daemon, name)
            assert not [line for line in lines if line.outcome in ("SKIPPED", "MISSED")], name
            runs = {line.run: line.at for line in lines if line.outcome == "CAUGHT_UP"}
            caught_up.update(int(at) for at in runs.values())
        assert sum(caught_up.values()) > 3 * MANY
        assert max(caught_up.values()) <= 2 * IN_A_SECOND
        assert all(lines_of(daemon, f"some{number}") for number in range(MANY))
        assert len(runs_of(daemon)) >= sum(caught_up.values())
    finally:
        dial.set(0)
        daemon.clear()
