"""A launcher that starts no processes."""

from __future__ import annotations

import asyncio
from typing import Any

from toband.domain.attempt_model import Attempt


class ScriptedLauncher:
    """Records the tokens of the attempts that it gets. `error` makes preparing fail, `gate` makes it wait."""

    def __init__(self) -> None:
        self.launched: list[str] = []
        self.stopped: list[str] = []
        self.error: OSError | None = None
        self.gate: asyncio.Event | None = None
        self.preparing = False

    async def prepare(self, run_id: str, params: object, event: object = None) -> None:
        if self.gate is not None:
            self.preparing = True
            await self.gate.wait()
        if self.error is not None:
            raise self.error

    def launch(self, launch: Any) -> None:
        self.launched.append(launch.token)

    def stop(self, attempt: Attempt) -> None:
        self.stopped.append(attempt.token)
