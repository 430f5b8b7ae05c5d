"""The lives of a daemon while events come, and how each of them ends."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping

from faults import power
from faults.event_drains import Drained
from faults.leftovers import end_all
from helpers.daemon import START_WITHIN, Daemon
from helpers.processes import Process, alive, seen, state_of
from helpers.wait import wait_until
from toban.v1 import event_pb2, system_pb2

FAILPOINTS = {
    "event.stored": 5,
    "event.resolved": 8,
    "event.burst_ended": 2,
    "schedule.fired": 2,
    "store.before_commit": 20,
    "store.after_commit": 20,
}
"""And at which pass the daemon dies there, at most."""
_ANY_MOMENT, _STOPPED = "at any moment", "stopped"
_DRAINED, _APPLYING = "drained", "while it stores a definition"
_LIFE = 0.8
_LIFE_ARMED = 1.5
_STORING = 0.3
_DRAINS = "the daemon drains"


class Lives:
    """A daemon that is dead before and after each of them. `disk` is where its state is, if the power can be cut."""

    def __init__(self, daemon: Daemon, rng: random.Random, disk: power.Disk | None = None) -> None:
        self.ways: Counter[str] = Counter()
        self.cuts: list[float] = []
        self.drains: list[Drained] = []
        self.applying = threading.Event()
        """Set by others: a definition is about to be stored."""
        self._daemon = daemon
        self._rng = rng
        self._disk = disk
        self._deck: list[str] = []

    def live_and_die(self) -> None:
        way = self._next_way()
        passes = self._rng.randint(1, FAILPOINTS[way]) if way in FAILPOINTS else 0
        armed = self._start(way, passes)
        if passes:
            way = way if self._hit(armed) else "too late for its failpoint"
        elif way == _DRAINED:
            self._drain()
        elif way == _APPLYING:
            wait_until(self.applying.is_set, "no definition is stored")
            self._last(_STORING)
            self.ways["of them before the answer"] += self.applying.is_set()
        else:
            self._last(_LIFE)
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

    def _next_way(self) -> str:
        if not self._deck:
            stopped = _STOPPED if self._disk is None else _ANY_MOMENT
            self._deck = [stopped, _ANY_MOMENT, _APPLYING, _DRAINED, *FAILPOINTS]
            self._rng.shuffle(self._deck)
            # So that also a few lives come past all failpoints.
            self._deck.sort(key=lambda way: way in FAILPOINTS)
        return self._deck.pop()

    def _last(self, most: float) -> None:
        """A random moment is what is wanted here."""
        signal.sigtimedwait([], self._rng.uniform(0.0, most))

    def _start(self, way: str, passes: int) -> Process:
        environment = {"TOBAN_EVENT_CONCURRENCY": str(self._rng.choice((2, 10)))}
        if passes:
            # What the power is cut for stops there, and does not go on.
            action = "kill" if self._disk is None else "stop"
            environment["TOBAN_FAILPOINTS"] = f"{way}={action}@{passes}"
        self.start(environment, wait=not passes)
        return seen(self._daemon.pid)

    # -- drains

    def _drain(self) -> None:
        """It is drained when it dies, or has resumed just before."""
        self._last(_LIFE / 2)
        waits = self._hold_back()
        self._daemon.system.Resume(system_pb2.ResumeRequest(), timeout=20)
        if self._rng.random() < 0.5:
            self._last(_LIFE / 4)
            self.ways["of them resumed"] += 1
            return
        request = event_pb2.GetEventRequest(id=waits)
        wait_until(
            lambda: self._daemon.events.GetEvent(request, timeout=20).event.HasField("resolved_at"),
            "what waited for the end of a drain is not decided",
        )
        self._hold_back()

    def _hold_back(self) -> str:
        """Drains it until an event waits for the end of that, and for a while; the id of the event."""
        self._daemon.system.Drain(system_pb2.DrainRequest(), timeout=20)
        begun = time.time()
        waits = wait_until(lambda: self._waiting(begun), "no event waits for the end of a drain")
        self._last(_LIFE / 2)
        self.drains.append(Drained(begun, time.time()))
        return waits

    def _waiting(self, since: float) -> str:
        """The newest event, if it came after that and waits."""
        request = event_pb2.ListEventsRequest(page_size=1)
        for newest in self._daemon.events.ListEvents(request, timeout=20).events:
            if newest.reason == _DRAINS and newest.emitted_at.ToMicroseconds() / 1e6 > since:
                return newest.id
        return ""

    # -- ends

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
