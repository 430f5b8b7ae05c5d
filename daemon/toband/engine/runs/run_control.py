"""Run control: cancels, pauses and resumes active runs, pins runs and deletes ended ones, for clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from toband.domain.run_events import CancelRequested, PauseRequested, ResumeRequested
from toband.domain.run_model import Pin, Run
from toband.engine.errors import (
    RunActiveError,
    RunInUseError,
    RunNotFoundError,
    RunPinnedError,
    RunTerminalError,
)
from toband.engine.runs.registry import ActiveRuns
from toband.ports import Clock, RunStore


class RunControl:
    def __init__(
        self, active: ActiveRuns, store: RunStore, clock: Clock, *, remove: Callable[[str], Awaitable[bool]]
    ) -> None:
        """`remove` deletes an ended run with its files; False if an active run needs it."""
        self._active = active
        self._store = store
        self._clock = clock
        self._remove = remove

    def active_run(self, run_id: str) -> Run | None:
        """The run with its steps; None if it is not active."""
        return self._active.run(run_id)

    async def cancel(self, run_id: str, reason: str, *, ends_finally: bool) -> Run:
        """Returns when the request is saved. With `ends_finally` a second request ends `finally` steps that have begun,
        those of the child runs that the run still waits for too.

        Raises RunNotFoundError, RunTerminalError.
        """
        actor = await self._active.find(run_id)
        again = (await actor.settled()).cancel_requested_at is not None
        request = CancelRequested(reason=reason, ends_finally=ends_finally)
        run = await actor.ask(request)
        if run.state.terminal and run.cancel_requested_at is None:
            raise RunTerminalError(run)
        if again and ends_finally:
            # The first request, or the end of the finally steps, has cancelled them: this one is their second.
            for child in self._active.descendants(run_id):
                await child.ask(request)
        return run

    async def pause(self, run_id: str) -> Run:
        """Starts no more steps of the run; running steps continue. Raises RunNotFoundError, RunTerminalError."""
        run = await (await self._active.find(run_id)).ask(PauseRequested())
        if run.state.terminal:
            raise RunTerminalError(run)
        return run

    async def resume(self, run_id: str) -> Run:
        """Raises RunNotFoundError, RunTerminalError."""
        run = await (await self._active.find(run_id)).ask(ResumeRequested())
        if run.state.terminal:
            raise RunTerminalError(run)
        return run

    async def delete(self, run_id: str) -> None:
        """Deletes an ended run with its files.

        Raises RunNotFoundError, RunActiveError, RunInUseError, RunPinnedError.
        """
        actor = self._active.actor(run_id)
        if actor is not None and not (run := await actor.settled()).state.terminal:
            raise RunActiveError(run)
        stored = await self._store.get_run_page(run_id, limit=0)
        if stored is None:
            raise RunNotFoundError(run_id)
        if not stored.state.terminal:
            raise RunActiveError(stored)
        if stored.pin is not None:
            raise RunPinnedError(stored)
        if not await self._remove(run_id):
            raise RunInUseError(stored)

    async def pin(self, run_id: str, *, by: str, note: str) -> None:
        """Keeps the run from removal. Raises RunNotFoundError."""
        await self._pin(run_id, Pin(at=self._clock.now(), by=by, note=note))

    async def unpin(self, run_id: str) -> None:
        """Raises RunNotFoundError."""
        await self._pin(run_id, None)

    async def _pin(self, run_id: str, pin: Pin | None) -> None:
        if not await self._store.pin_run(run_id, pin):
            raise RunNotFoundError(run_id)
