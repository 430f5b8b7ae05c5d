"""Steps that a script plays on the virtual clock. Implements `ports.Launcher`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import TypeVar

from doubles.engine import Processes
from toband.domain.attempt_model import Orphans, TreeCause
from toband.domain.run_events import AttemptLost, AttemptStarted, AttemptVoided, not_started
from toband.ports import Clock, Launch
from toband.supervise.files.run_files import RunFiles

_Choice = TypeVar("_Choice")
_OUTCOMES = {"exit": 960, "hang": 20, "lost": 8, "missing": 8, "void": 4}
_CODES = {0: 88, 1: 7, 75: 4, 64: 1}


class ScriptedSteps(Processes):
    """They live as long as the soak: lives of the daemon come and go."""

    def __init__(self, files: RunFiles, chance: Random, clock: Clock) -> None:
        super().__init__(files, chance, clock)
        self.count = 0

    def launch(self, launch: Launch) -> None:
        attempt = launch.attempt
        self.count += 1
        process = self._begin(attempt)
        outcome = self._pick(_OUTCOMES)
        took = self._chance.expovariate(1 / 120)
        started = AttemptStarted(step=attempt.step, token=attempt.token, pid=1, started_at=process.began)
        if outcome == "missing":
            missing = not_started(attempt, "no such file", process.began)
            self._later(process, 0, lambda: self._over(process, missing))
            return
        if outcome == "void":
            void = AttemptVoided(step=attempt.step, token=attempt.token)
            self._later(process, 0, lambda: self._over(process, void))
            return
        asyncio.get_running_loop().call_soon(self._say, attempt, started)
        if outcome == "lost":
            lost = AttemptLost(step=attempt.step, token=attempt.token, error="gone", orphans=Orphans.ENDED)
            self._later(process, took, lambda: self._over(process, lost))
        elif launch.timeout is not None and (outcome == "hang" or took > launch.timeout):
            cause = launch.timeout_cause
            self._later(process, launch.timeout, lambda: self._killed(process, cause))
        else:
            code = self._pick(_CODES)
            self._later(process, took, lambda: self._exited(process, code))

    def live_shims(self) -> Mapping[str, int]:
        return {}

    async def close(self) -> None:
        self.detach()

    def _exited(self, process: object, code: int) -> None:
        self._over(process, self._end(process, TreeCause.EXITED, exit_code=code))  # type: ignore[arg-type]

    def _pick(self, weights: Mapping[_Choice, int]) -> _Choice:
        return self._chance.choices(list(weights), list(weights.values()))[0]
