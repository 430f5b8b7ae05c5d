"""Ends shims, from outside and at their failpoints, and records which: only their attempts may be LOST."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from typing import NamedTuple

from faults.history import AttemptOnDisk
from helpers.daemon import Daemon
from helpers.processes import Process, alive, children_of, command_of, kill, stat_of, state_of
from helpers.wait import wait_until
from toban.v1 import run_pb2

FAILPOINTS = (
    "shim.before_claim",
    "claim.linked",
    "shim.claimed",
    "shim.started",
    "log.write",
    "end.before",
    "end.written",
    "end.durable",
)
_CANNOT_START = "cannot start the step's supervisor"
_TICKS = os.sysconf("SC_CLK_TCK")


class ShimKiller:
    """Lives of a daemon in which shims die. Its spawners live, and end what dead shims leave."""

    def __init__(self, daemon: Daemon, seed: float) -> None:
        self.ways: Counter[str] = Counter()
        self.killed: set[tuple[int, int]] = set()
        self._armed: list[_Armed] = []
        self._daemon = daemon
        self._rng = random.Random(seed)
        self._spawners: list[Process] = []

    def next_life(self) -> None:
        """The daemon is dead before and after."""
        if self._rng.random() < 0.5:
            self._at_failpoint(self._rng.choice(FAILPOINTS))
        else:
            self._from_outside()

    def _at_failpoint(self, name: str) -> None:
        # Each shim counts for itself: nearly all of this life's die.
        nth = self._rng.randint(1, 3) if name == "log.write" else 1
        began, first = time.time(), _uptime()
        self._daemon.start({"TOBAN_FAILPOINTS_SPAWNER": f"{name}=kill@{nth}"})
        self._note_spawner()
        signal.sigtimedwait([], self._rng.uniform(0.2, 0.6))
        self._daemon.kill()
        self._armed.append(_Armed(name, began, time.time(), first, _uptime()))
        self.ways[name] += 1

    def _from_outside(self) -> None:
        self._daemon.start()
        self._note_spawner()
        for _ in range(self._rng.randint(2, 6)):
            signal.sigtimedwait([], self._rng.uniform(0.0, 0.3))
            self._kill_some()
        self._daemon.kill()
        self._kill_some()

    def kill_one_that_serves(self) -> None:
        """A life in which something is surely lost, however slow the machine is."""
        self._daemon.start()
        self._note_spawner()
        wait_until(self._kill_serving, "no shim serves a step", 60)
        self._daemon.kill()

    def _kill_serving(self) -> bool:
        for shim in self._shims():
            kill(shim, signal.SIGSTOP)
            wait_until(lambda: state_of(shim.pid) in "TZX", "it is not stopped")  # noqa: B023
            # It can note no end any more.
            if any(alive(step) for step in children_of(shim.pid)):
                self.killed.add((shim.pid, shim.start))
                kill(shim)
                self.ways["while it served"] += 1
                return True
            kill(shim, signal.SIGCONT)
        return False

    def _kill_some(self) -> None:
        """One or two shims, parked ones and those of earlier lives among them."""
        found = self._shims()
        for shim in self._rng.sample(found, min(len(found), self._rng.randint(1, 2))):
            self.killed.add((shim.pid, shim.start))
            kill(shim)
            self.ways["outside"] += 1

    def _shims(self) -> list[Process]:
        """A shim is a child of its spawner and has the title of one; an orphan has not."""
        return [
            child
            for spawner in self._spawners
            if alive(spawner)
            for child in children_of(spawner.pid)
            if alive(child) and command_of(child.pid).startswith("toban: ")
        ]

    def _note_spawner(self) -> None:
        for pid in self._daemon.children():
            stat = stat_of(pid)
            if stat is not None and Process(pid, stat.start) not in self._spawners:
                self._spawners.append(Process(pid, stat.start))

    # -- what the checker may excuse

    def lost(self, _process: run_pb2.ProcessExecution, file: AttemptOnDisk | None) -> str:
        if file is None:
            return "there is no claim"
        if file.ended:
            return "there is an end record"
        # It may claim long after the daemon that it was forked for was killed.
        _, forked = file.shim
        if file.shim in self.killed or any(each.first <= forked <= each.last for each in self._armed):
            return ""
        return f"its shim {file.shim} was not killed"

    def unstarted(self, process: run_pb2.ProcessExecution, _file: AttemptOnDisk | None) -> str:
        at = process.finished_at.ToMicroseconds() / 1e6
        if process.error_message.startswith(_CANNOT_START) and any(
            each.name == "shim.before_claim" and each.began <= at <= each.ended for each in self._armed
        ):
            return ""
        return "its shim was not killed before it had its claim"


class _Armed(NamedTuple):
    """A life in which shims died at a failpoint: from when until when, and the same as start times of processes."""

    name: str
    began: float
    ended: float
    first: int
    last: int


def _uptime() -> int:
    """As the start time of a process that is forked now."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)
