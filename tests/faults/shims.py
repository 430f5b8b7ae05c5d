"""Ends shims, from outside and at their failpoints, and remembers which: only what they served may be LOST."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter

from faults.history import AttemptOnDisk
from helpers.daemon import Daemon
from helpers.processes import Process, alive, children_of, command_of, kill, stat_of
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
_SLACK = 1.0
"""An attempt may be claimed a moment after the daemon that launched it was killed."""


class ShimKiller:
    """Lives of a daemon in which shims die. Its spawners live, and end what dead shims leave."""

    def __init__(self, daemon: Daemon, seed: float) -> None:
        self.ways: Counter[str] = Counter()
        self.killed: set[tuple[int, int]] = set()
        self._armed: list[tuple[str, float, float]] = []
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
        began = time.time()
        self._daemon.start({"TOBAN_FAILPOINTS_SPAWNER": f"{name}=kill@{nth}"})
        self._note_spawner()
        signal.sigtimedwait([], self._rng.uniform(0.2, 0.6))
        self._daemon.kill()
        self._armed.append((name, began, time.time() + _SLACK))
        self.ways[name] += 1

    def _from_outside(self) -> None:
        self._daemon.start()
        self._note_spawner()
        for _ in range(self._rng.randint(2, 6)):
            signal.sigtimedwait([], self._rng.uniform(0.0, 0.3))
            self._kill_some()
        self._daemon.kill()
        self._kill_some()

    def _kill_some(self) -> None:
        """One or two shims, parked ones and those of earlier lives among them."""
        found = self._shims()
        for shim in self._rng.sample(found, min(len(found), self._rng.randint(1, 2))):
            self.killed.add((shim.pid, shim.start))
            kill(shim)
            self.ways["outside"] += 1

    def _shims(self) -> list[Process]:
        """A shim is a fork of its spawner and has its command line; an orphan has not."""
        return [
            child
            for spawner in self._spawners
            if alive(spawner)
            for child in children_of(spawner.pid)
            if alive(child) and command_of(child.pid) == command_of(spawner.pid)
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
        if file.shim in self.killed or self._was_armed(file.claimed_at):
            return ""
        return f"its shim {file.shim} was not killed"

    def unstarted(self, process: run_pb2.ProcessExecution, _file: AttemptOnDisk | None) -> str:
        at = process.finished_at.ToMicroseconds() / 1e6
        if process.error_message.startswith(_CANNOT_START) and self._was_armed(
            at, "shim.before_claim"
        ):
            return ""
        return "its shim was not killed before it had its claim"

    def _was_armed(self, at: float, only: str = "") -> bool:
        return any(
            began <= at <= ended and only in ("", name) for name, began, ended in self._armed
        )
