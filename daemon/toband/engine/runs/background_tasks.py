"""Background tasks of the engine: started without waiting for them, cancelled together at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from toband.engine.health.internal_errors import unexpected


class BackgroundTasks:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def close(self) -> None:
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            unexpected("a background task failed", error)
