"""Random schedules, and a daemon that is killed, stopped, drained and given a wrong clock meanwhile.

Every due time has one line in the ledger and one run at most, neither early nor late; what was missed is treated as its
policy says. When they were due is computed apart, see `timed.py`; docs/faults.md says what is compared.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults import clock, power
from faults.backfills import check_backfills
from faults.settings import LONG, SEED, announce
from faults.timed_boots import check_boots
from faults.timed_chaos import Chaos
from faults.timed_checker import WITH_RUN, check_timed
from faults.timed_runs import check_runs_done
from helpers.postgres import postgres_schema

ACTIONS = 60 if LONG else 15
ENOUGH = 10
"""Due times with a run, of each kind."""
LONG_ONLY = pytest.mark.skipif(not LONG, reason="the long form only: set TOBAN_TEST_LONG")
OVERLAPS = ("allow", "skip", "queue", "replace", "skip", "queue", "allow", "replace")

pytestmark = pytest.mark.skipif(bool(clock.why_not()), reason=f"no clock: {clock.why_not()}")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[LONG_ONLY, pytest.mark.postgres])])
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where it is, unless it is the daemon's own."""
    if request.param == "sqlite":
        yield ""
        return
    with postgres_schema() as url:
        yield url


@pytest.fixture
def disk(tmp_path: Path, database: str) -> Iterator[power.Disk | None]:
    """Whose power can be cut: in the long form, if the database is on it."""
    if not LONG or database or power.why_not():
        yield None
        return
    with power.disk(tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(400 + 40 * ACTIONS)
def test_every_due_time_is_decided_once(tmp_path: Path, database: str, disk: power.Disk | None) -> None:
    announce("schedules")
    rng = random.Random(f"{SEED} schedules")
    chaos = Chaos(tmp_path, rng, database=database, disk=disk)
    try:
        chaos.start()
        for number, overlap in enumerate(OVERLAPS):
            chaos.create(number, overlap)
        for number in range(2):
            chaos.create_booting(number)
        for number, overlap in enumerate(("queue", "skip")):
            chaos.create_past(number, overlap)
        for _ in range(ACTIONS):
            chaos.act()
        # How much is due meanwhile depends on what the clock shows, and on how fast this machine is.
        for _ in range(ACTIONS):
            if min(chaos.outcomes()[name] for name in WITH_RUN) >= ENOUGH:
                break
            chaos.act()
        ledger = chaos.settle()
    finally:
        chaos.clear()
    everyone = [*chaos.workflows, *chaos.booting, *(past.timed for past in chaos.pasts)]
    at_boot = [f"{workflow.name}/0" for workflow in chaos.booting]
    defects = [
        *check_timed(chaos.workflows, ledger, chaos.time, at_boot),
        *check_boots(chaos.booting, ledger, chaos.time),
        *check_runs_done(everyone, {**ledger.runs, **chaos.past_runs}, ledger.told, chaos.time),
        *check_backfills(chaos.pasts, chaos.past_lines, chaos.past_runs),
    ]
    outcomes = Counter(line.outcome for line in ledger.lines)
    reasons = Counter(line.reason.split()[0] for line in ledger.lines if line.outcome == "SKIPPED")
    states = Counter(run.state for run in ledger.runs.values())
    folded = sum(len(run.missed) for run in ledger.runs.values())
    print(f"{dict(chaos.ways)}: {dict(outcomes)}, skipped {dict(reasons)}, {len(chaos.time.boots)} boots")
    backfilled = sum(len(asked.dues) for past in chaos.pasts for asked in past.asked)
    print(f"{backfilled} due times were backfilled, with {len(chaos.past_runs)} runs")
    print(f"runs {dict(states)}, {folded} due times stood for; defects: {len(defects)}")
    assert not defects, f"{len(defects)} defects:\n" + "\n".join([*defects[:20], str(chaos.time)])
    assert chaos.past_runs, "nothing was backfilled"
    assert min(outcomes[name] for name in WITH_RUN) >= ENOUGH, "too little happened"
