"""Events from clients, from steps and of the daemon itself, while that is killed with -9, drained, or its power is cut.

No acknowledged event is lost, each starts what listens to it once, and nothing else is started. What that is is
computed apart, see `listeners.py`; docs/faults.md says what is compared.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults import power
from faults.emitters import Emitters, Told
from faults.event_checker import check_events
from faults.event_drains import held_back
from faults.event_files import Inbox
from faults.event_lives import Lives
from faults.event_outcome import events_of, settled
from faults.event_paces import coalesced
from faults.leftovers import check_left
from faults.listeners import FILE_CHANGED, SCHEDULE_TRIGGERED, listeners, witness_below
from faults.scene import daemon_on
from faults.settings import CUTS, LONG, SEED, announce
from helpers.daemon import Daemon, running_daemon
from helpers.postgres import postgres_schema
from helpers.wait import wait_until
from toban.v1 import event_pb2, workflow_pb2

LIVES = 60 if LONG else 8
PAUSE = 0.15
LONG_ONLY = pytest.mark.skipif(not LONG, reason="the long form only: set TOBAN_TEST_LONG")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[LONG_ONLY, pytest.mark.postgres])])
def database(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """What tells the daemon where it is, unless it is the daemon's own."""
    if request.param == "sqlite":
        yield {}
        return
    with postgres_schema() as url:
        yield {"TOBAN_DATABASE": url}


@pytest.mark.slow
@pytest.mark.timeout(300 + 8 * LIVES)
def test_every_event_starts_what_listens_to_it_once(tmp_path: Path, database: dict[str, str]) -> None:
    announce("events")
    with running_daemon(tmp_path / "s", environment=database) as daemon:
        rng = random.Random(f"{SEED} events")
        _live_through(Lives(daemon, rng), daemon, rng, LIVES, Inbox(tmp_path / "inbox"))


@pytest.mark.slow
@pytest.mark.timeout(300 + 10 * CUTS)
@LONG_ONLY
@pytest.mark.skipif(bool(power.why_not()), reason=f"no power cuts: {power.why_not()}")
def test_power_cuts_lose_no_event(tmp_path: Path) -> None:
    announce(f"TOBAN_TEST_CUTS={CUTS} events")
    with (
        power.disk(tmp_path) as disk,
        daemon_on(disk.directory, tmp_path / "daemon.log") as daemon,
    ):
        rng = random.Random(f"{SEED} cut events")
        lives = Lives(daemon, rng, disk)
        lives.start()
        _live_through(lives, daemon, rng, CUTS, Inbox(tmp_path / "inbox"))


def _live_through(lives: Lives, daemon: Daemon, rng: random.Random, count: int, inbox: Inbox) -> None:
    """So many lives under load, then one in which all comes to rest. Raises AssertionError with what is wrong then."""
    inbox.make()
    workflows = listeners(inbox.path)
    begun = _begun(daemon)
    for workflow in workflows.values():
        daemon.apply(workflow.definition())
    daemon.kill()
    emitters = Emitters(
        daemon.state_dir,
        rng.random(),
        pause=PAUSE,
        schedules=2 * count,
        workflows=workflows,
        put_file=inbox.put,
        applying=lives.applying,
    )
    emitters.start()
    try:
        lived = 0
        # On a busy machine they are over before much has happened.
        while lived < count or not _enough(emitters.told, count):
            lives.live_and_die()
            lived += 1
        lives.start()
        emitters.stop()
        inbox.put_quietly(daemon)
        outcome = settled(daemon, workflows)
    except BaseException:
        emitters.abandon()
        raise
    outcome.events = [event for event in outcome.events if event.sequence > begun]
    outcome.lives, outcome.cuts = lived + 2, lives.cuts
    outcome.coalesced = coalesced(witness_below(inbox.path))
    told = emitters.told
    defects = list(check_events(workflows, told, outcome, inbox=inbox, drains=lives.drains))
    defects += map(str, check_left(daemon.state_dir))
    types = Counter(event.type for event in outcome.events)
    cut = sum(event.state == event_pb2.EVENT_STATE_CUT for event in outcome.events)
    broken = sum(map(outcome.cut_off, outcome.runs.values()))
    waited = held_back(lives.drains, outcome)
    by_the_dying = sum(not each.changed for each in told.applied)
    print(f"{lived} lives ({dict(lives.ways)}), events {dict(types)}, {cut} of them cut")
    bursts = [count for counts in outcome.coalesced.values() for count in counts]
    reasons = Counter(row.reason for event in outcome.events for row in event.runs)
    throttled = reasons[workflow_pb2.NOT_STARTED_REASON_THROTTLED]
    print(f"{len(bursts)} bursts of {sum(bursts)} events, {throttled} events throttled")
    print(f"{len(outcome.runs)} runs, {broken} of them cut off, {len(outcome.fires)} due times")
    print(
        f"{len(lives.drains)} drains that {waited} events waited for; {len(told.applied)} new versions, "
        f"{by_the_dying} of them found stored; {types[FILE_CHANGED]} of {len(inbox.came)} files told"
    )
    assert not defects, f"{len(defects)} defects:\n" + "\n".join(defects[:20])
    assert cut or broken, "no chain came to its end"
    assert _enough(told, count), "too little happened to prove anything"
    assert types[SCHEDULE_TRIGGERED] >= count / 3, "too little was due to prove anything"
    assert sum(bursts) > len(bursts) > count / 10, "too few bursts to prove anything"
    assert throttled > count / 3, "too little was throttled to prove anything"
    assert waited >= len(lives.drains), "too little was held back to prove anything"


def _enough(told: Told, count: int) -> bool:
    """Whether the events so far are enough for a result after so many lives."""
    # Each that was stored and is not cancelled is due once at least.
    due = [bound for bound in told.bound if bound.id and bound.subject not in told.cancelled]
    return len(told.asked) >= 2 * count and len(told.applied) >= count / 4 and len(due) >= count / 3


def _begun(daemon: Daemon) -> int:
    """Waits until the daemon has emitted the event of its start; returns the last event by then."""
    daemon.emit("BEGUN")

    def all_decided() -> list[event_pb2.Event] | None:
        found = events_of(daemon)
        return found if all(event.HasField("resolved_at") for event in found) else None

    return wait_until(all_decided, "the daemon does not decide")[-1].sequence
