"""Events from clients, from steps and of the daemon itself, while that is killed with -9, or its power is cut.

No acknowledged event is lost, each starts what listens to it once, and nothing else is started. What that is is
computed apart, see `listeners.py`; docs/faults.md says what is compared.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from faults import power
from faults.emitters import Emitters
from faults.event_checker import Outcome, check_events
from faults.leftovers import check_left, end_all
from faults.listeners import SCHEDULE_TRIGGERED, listeners
from faults.scene import daemon_on
from faults.settings import CUTS, LONG, SEED, announce
from helpers.daemon import START_WITHIN, Daemon, running_daemon
from helpers.processes import Process, alive, seen, state_of
from helpers.waiting import wait_until
from toban.v1 import event_pb2, run_pb2, schedule_pb2, workflow_pb2

LIVES = 60 if LONG else 6
PAUSE = 0.15
FAILPOINTS = {
    "event.stored": 5,
    "event.resolved": 8,
    "schedule.fired": 2,
    "store.before_commit": 20,
    "store.after_commit": 20,
}
"""And at which pass the daemon dies there, at most."""
_ANY_MOMENT, _STOPPED = "at any moment", "stopped"
_LIFE = 0.8
_LIFE_ARMED = 1.5
_ACTIVE = (run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING)


class Lives:
    """A daemon that is dead before and after each of them. `disk` is where its state is, if the power can be cut."""

    def __init__(self, daemon: Daemon, rng: random.Random, disk: power.Disk | None = None) -> None:
        self.ways: Counter[str] = Counter()
        self.cuts: list[float] = []
        self._daemon = daemon
        self._rng = rng
        self._disk = disk
        self._deck: list[str] = []

    def live_and_die(self) -> None:
        if not self._deck:
            self._deck = [_STOPPED if self._disk is None else _ANY_MOMENT, _ANY_MOMENT, *FAILPOINTS]
            self._rng.shuffle(self._deck)
            # So that also a few lives come past all failpoints.
            self._deck.sort(key=lambda way: way in FAILPOINTS)
        way = self._deck.pop()
        passes = self._rng.randint(1, FAILPOINTS[way]) if way in FAILPOINTS else 0
        armed = self._start(way, passes)
        if passes:
            way = way if self._hit(armed) else "too late for its failpoint"
        else:
            # A random moment is what is wanted here.
            signal.sigtimedwait([], self._rng.uniform(0.0, _LIFE))
        self.ways[way] += 1
        if way == _STOPPED:
            code = self._daemon.stop()
            assert code == 0, f"the daemon cannot stop: {code}\n{self._daemon.tail()}"
        elif self._disk is None:
            self._daemon.kill()
        else:
            self._cut(self._disk, armed)

    def start(self, environment: Mapping[str, str] | None = None, *, wait: bool = True) -> None:
        boot_id = {"TOBAN_BOOT_ID": f"boot-{len(self.cuts)}"} if self._disk is not None else {}
        self._daemon.start({**boot_id, **(environment or {})}, wait=wait)

    def _start(self, way: str, passes: int) -> Process:
        environment = {"TOBAN_EVENT_CONCURRENCY": str(self._rng.choice((2, 10)))}
        if passes:
            # What the power is cut for stops there, and does not go on.
            action = "kill" if self._disk is None else "stop"
            environment["TOBAN_FAILPOINTS"] = f"{way}={action}@{passes}"
        self.start(environment, wait=not passes)
        return seen(self._daemon.pid)

    def _hit(self, process: Process) -> bool:
        """Waits until it has come past its failpoint, for a while once it serves."""
        until = time.monotonic() + START_WITHIN
        served = False
        while time.monotonic() < until:
            if not alive(process):
                code = self._daemon.wait()
                assert code == -signal.SIGKILL, f"it ended: {code}\n{self._daemon.tail()}"
                return True
            if state_of(process.pid) == "T":
                return True
            if not served and self._daemon.announced() == process.pid:
                served, until = True, time.monotonic() + _LIFE_ARMED
            signal.sigtimedwait([], 0.005)
        assert served, f"the daemon neither serves nor ends:\n{self._daemon.tail()}"
        return False

    def _cut(self, disk: power.Disk, process: Process) -> None:
        disk.cut()
        self.cuts.append(time.time())
        end_all(disk.directory, process)
        self._daemon.kill()
        disk.off()
        disk.on()


@pytest.mark.slow
@pytest.mark.timeout(120 + 8 * LIVES)
def test_every_event_starts_what_listens_to_it_once(tmp_path: Path) -> None:
    announce("events")
    with running_daemon(tmp_path / "s") as daemon:
        rng = random.Random(f"{SEED} events")
        _live_through(Lives(daemon, rng), daemon, rng, LIVES)


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * CUTS)
@pytest.mark.skipif(not LONG, reason="the long form only: set TOBAN_TEST_LONG")
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
        _live_through(lives, daemon, rng, CUTS)


def _live_through(lives: Lives, daemon: Daemon, rng: random.Random, count: int) -> None:
    """So many lives under load, then one in which all comes to rest. Raises AssertionError with what is wrong then."""
    workflows = listeners()
    for workflow in workflows.values():
        daemon.apply(workflow.definition())
    daemon.kill()
    emitters = Emitters(daemon.state_dir, rng.random(), pause=PAUSE, schedules=2 * count)
    emitters.start()
    try:
        for _ in range(count):
            lives.live_and_die()
        lives.start()
        emitters.stop()
        outcome = _settled(daemon)
    except BaseException:
        emitters.abandon()
        raise
    outcome.lives, outcome.cuts = count + 2, lives.cuts
    defects = list(check_events(workflows, emitters.told, outcome))
    defects += map(str, check_left(daemon.state_dir))
    types = Counter(event.type for event in outcome.events)
    cut = sum(event.state == event_pb2.EVENT_STATE_CUT for event in outcome.events)
    broken = sum(map(outcome.cut_off, outcome.runs.values()))
    print(f"{count} lives ({dict(lives.ways)}), events {dict(types)}, {cut} of them cut")
    print(f"{len(outcome.runs)} runs, {broken} of them cut off, {len(outcome.fires)} due times")
    assert not defects, f"{len(defects)} defects:\n" + "\n".join(defects[:20])
    assert cut or broken, "no chain came to its end"
    assert len(emitters.told.asked) >= 2 * count, "too little happened to prove anything"
    assert types[SCHEDULE_TRIGGERED] >= count / 3, "too little was due to prove anything"


def _settled(daemon: Daemon) -> Outcome:
    """When no schedule will be due any more, every event is decided and every run has ended."""
    wait_until(lambda: not _schedules(daemon, ended=False), "schedules do not end", 60)
    return wait_until(lambda: _at_rest(daemon), "events or runs do not come to an end", 120)


def _at_rest(daemon: Daemon) -> Outcome | None:
    """None: something goes on. Ends of runs and decisions about events make events and runs in one transaction each:

    if no event was pending before all runs were seen to have ended, and none has come since, nothing goes on.
    """
    before = _events(daemon)
    if any(event.state == event_pb2.EVENT_STATE_PENDING for event in before):
        return None
    runs = _runs(daemon)
    if any(run.state in _ACTIVE for run in runs.values()):
        return None
    events = _events(daemon)
    if len(events) != len(before):
        return None
    return Outcome(
        events=events,
        runs=runs,
        schedules=_schedules(daemon, ended=True),
        fires=_fires(daemon),
    )


def _events(daemon: Daemon) -> list[event_pb2.Event]:
    """In order."""
    request = event_pb2.ListEventsRequest(page_size=1000)
    found: list[event_pb2.Event] = []
    while True:
        answer = daemon.events.ListEvents(request, timeout=20)
        found += answer.events
        if not answer.next_page_token:
            return found[::-1]
        request.page_token = answer.next_page_token


def _runs(daemon: Daemon) -> dict[str, run_pb2.Run]:
    request = run_pb2.ListRunsRequest(page_size=1000)
    found: dict[str, run_pb2.Run] = {}
    while True:
        answer = daemon.runs.ListRuns(request, timeout=20)
        found |= {run.id: run for run in answer.runs}
        if not answer.next_page_token:
            return found
        request.page_token = answer.next_page_token


def _schedules(daemon: Daemon, *, ended: bool) -> list[schedule_pb2.Schedule]:
    request = schedule_pb2.ListSchedulesRequest(page_size=1000, include_ended=ended)
    return list(daemon.schedules.ListSchedules(request, timeout=20).schedules)


def _fires(daemon: Daemon) -> list[workflow_pb2.Fire]:
    request = workflow_pb2.ListFiresRequest(page_size=1000)
    return list(daemon.workflows.ListFires(request, timeout=20).fires)
