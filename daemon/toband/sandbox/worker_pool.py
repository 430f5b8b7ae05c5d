"""A pool of worker processes, started on demand and ended after some idle time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from toband.sandbox.worker_process import WorkerProcess

IDLE: Final = 60.0
"""Seconds without work after which a worker is ended."""

_Result = TypeVar("_Result")


class ProcessSandbox:
    """Implements `ports.Sandbox`. Belongs to the event loop.

    Requests wait for one of a few workers. The keys take turns, so that a run with very many requests delays every
    other by at most one of them.
    """

    def __init__(self, *, workers: int = 2, idle: float = IDLE) -> None:
        self._workers = workers
        self._idle_after = idle
        self._busy: set[WorkerProcess] = set()
        self._idle: list[WorkerProcess] = []
        self._slots = workers
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._ending: asyncio.TimerHandle | None = None
        self._dying: set[asyncio.Task[None]] = set()

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(worker.pid for worker in (*self._busy, *self._idle) if worker.usable)

    async def call(self, function: Callable[..., _Result], *args: Any, key: str, seconds: float) -> _Result:
        await self._slot(key)
        worker: WorkerProcess | None = None
        try:
            worker = await self._worker()
            self._busy.add(worker)
            result: _Result = await worker.call(function, args, seconds)
            return result
        finally:
            if worker is not None:
                self._busy.discard(worker)
                self._put_away(worker)
            self._free()

    async def close(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        for worker in (*self._busy, *self._idle):
            self._end(worker)
        self._idle = []
        await asyncio.gather(*self._dying)

    # -- workers

    async def _worker(self) -> WorkerProcess:
        while self._idle:
            worker = self._idle.pop()
            if worker.usable:
                return worker
            self._end(worker)
        return await WorkerProcess.start()

    def _put_away(self, worker: WorkerProcess) -> None:
        if not worker.usable:
            self._end(worker)
            return
        self._idle.append(worker)
        if self._ending is not None:
            self._ending.cancel()
        self._ending = asyncio.get_running_loop().call_later(self._idle_after, self._end_idle)

    def _end_idle(self) -> None:
        idle, self._idle = self._idle, []
        for worker in idle:
            self._end(worker)

    def _end(self, worker: WorkerProcess) -> None:
        """Also waits for it in the background, so that no zombie is left."""
        task = asyncio.get_running_loop().create_task(worker.close())
        self._dying.add(task)
        task.add_done_callback(self._dying.discard)

    # -- turns

    async def _slot(self, key: str) -> None:
        if self._slots:
            self._slots -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free()
            raise

    def _free(self) -> None:
        """Gives the slot to the next request in turn."""
        while self._waiting:
            key, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[key] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._slots += 1
