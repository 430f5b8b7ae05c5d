"""Ways in which daemon and spawner end. Each is one life: started, and killed with -9 or stopped at any moment."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter

from helpers.daemon import Daemon
from helpers.processes import Process, alive, kill, stat_of

DAEMON_FAILPOINTS = (
    "store.before_commit",
    "store.after_commit",
    "launch.before_send",
    "launch.after_send",
)
ENGINE_FAILPOINTS = (
    "child.ended",
    "child.made",
    "child.make",
    "inputs.laid_out",
    "launch.ready",
    "outputs.collect",
    "outputs.kept",
    "run.prepared",
    "step.evaluate",
)
"""Between two changes of one run; the daemon comes past them less often."""
SPAWNER_FAILPOINTS = ("spawner.asked", "spawner.fork")
"""Those of the spawner itself. What is armed there is armed in its shims too, but they never come past these."""
_LIFE = 0.5
_LIFE_ARMED = 1.0


class Killer:
    """Ends one life after the other, and counts how."""

    def __init__(self, daemon: Daemon, seed: float) -> None:
        self.ways: Counter[str] = Counter()
        self._daemon = daemon
        self._rng = random.Random(seed)
        self._spawners: list[Process] = []

    def next_life(self) -> None:
        """The daemon is dead before and after."""
        ways = {
            self._outside: 4,
            self._failpoint: 5,
            self._spawner_first: 2,
            self._spawner_failpoint: 1,
            self._old_spawner: 1,
            self._stop: 2,
        }
        (way,) = self._rng.choices(list(ways), list(ways.values()))
        self.ways[way()] += 1

    def _outside(self) -> str:
        self._start()
        self._live(_LIFE)
        self._daemon.kill()
        return "outside"

    def _failpoint(self) -> str:
        often = self._rng.random() < 0.5
        name = self._rng.choice(DAEMON_FAILPOINTS if often else ENGINE_FAILPOINTS)
        armed = f"{name}=kill@{self._rng.randint(1, 12 if often else 3)}"
        self._daemon.start({**self._places(), "TOBAN_FAILPOINTS": armed}, wait=False)
        died = not self._daemon.wait_serving() or self._died_within(_LIFE_ARMED)
        self._daemon.kill()
        return name if died else "too late for its failpoint"

    def _spawner_first(self) -> str:
        """The spawner alone, then perhaps the next one, then the daemon: sooner or later, or at once."""
        self._start()
        self._live(_LIFE)
        kill(self._spawners[-1])
        if self._rng.random() < 0.5:
            self._live(_LIFE)
            for spawner in self._note_spawners():
                if self._rng.random() < 0.5:
                    kill(spawner)
        self._daemon.kill()
        return "spawner and daemon"

    def _spawner_failpoint(self) -> str:
        name = self._rng.choice(SPAWNER_FAILPOINTS)
        # At least three requests are answered: a spawner that dies at its first is one that cannot be started.
        armed = f"{name}=kill@{self._rng.randint(4, 9)}"
        self._start({"TOBAN_FAILPOINTS_SPAWNER": armed})
        self._live(2 * _LIFE)
        self._daemon.kill()
        return name

    def _old_spawner(self) -> str:
        """One that guards what was started in an earlier life."""
        self._start()
        self._live(_LIFE)
        old = [spawner for spawner in self._spawners[:-1] if alive(spawner)]
        if old:
            kill(self._rng.choice(old))
        self._daemon.kill()
        return "an old spawner and daemon" if old else "outside"

    def _stop(self) -> str:
        """In order, with all that is under way: what it leaves is what a killed one leaves."""
        self._start()
        self._live(_LIFE)
        code = self._daemon.stop()
        assert code == 0, f"the daemon cannot stop: {code}\n{self._daemon.tail()}"
        return "stopped"

    def _start(self, environment: dict[str, str] | None = None) -> None:
        self._daemon.start({**self._places(), **(environment or {})})
        self._note_spawners()

    def _places(self) -> dict[str, str]:
        """In some lives attempts have to wait for each other."""
        return {"TOBAN_MAX_ATTEMPTS_RUNNING": str(self._rng.choice((2, 5, 256)))}

    def _note_spawners(self) -> list[Process]:
        found = []
        for pid in self._daemon.children():
            stat = stat_of(pid)
            if stat is not None:
                found.append(Process(pid, stat.start))
        self._spawners += [each for each in found if each not in self._spawners]
        return found

    def _live(self, most: float) -> None:
        """A random moment is what is wanted here."""
        signal.sigtimedwait([], self._rng.uniform(0.0, most))

    def _died_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        assert self._daemon.process is not None
        while self._daemon.process.poll() is None:
            if time.monotonic() > deadline:
                return False
            signal.sigtimedwait([], 0.005)
        return True
