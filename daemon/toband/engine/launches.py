"""From a saved launch to a started process: who gets a place, in which order, and what to do when the system will not.

At most `limit` attempts run at once. What waits is ordered by the priority of its run, then by its age. An attempt that
waits here has certainly not begun: it can be withdrawn without a trace of it anywhere but in the database.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import structlog

from toban.definition import RenderError
from toband.domain.events import AttemptVoided, not_started
from toband.domain.model import Attempt
from toband.engine import launching
from toband.engine.actor import RETRY_FIRST, RETRY_MOST, RunActor
from toband.ports import Clock, Conditions, HealthStatus, Launcher, Logs

CONDITION = "launch"
# The system is short of something, or its disk fails: that passes, and is not the step's fault.
_PASSING = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
    )
)

log = structlog.get_logger()


@dataclass(order=True, slots=True)
class _Waiting:
    rank: tuple[int, str, int]
    actor: RunActor = field(compare=False)
    attempt: Attempt = field(compare=False)


class Launches:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        launcher: Launcher,
        files: launching.Files,
        logs: Logs,
        clock: Clock,
        conditions: Conditions,
        server: str,
        limit: int,
        log_limit: int | None,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._launcher = launcher
        self._files = files
        self._logs = logs
        self._clock = clock
        self._conditions = conditions
        self._server = server
        self._log_limit = log_limit
        self._start = start
        self.limit = limit
        self._placed: set[str] = set()
        self._queue: list[_Waiting] = []
        self._waiting: dict[str, _Waiting] = {}
        # They have a place, and the launcher does not know them yet.
        self._in_hand: set[str] = set()
        self._troubled: set[str] = set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def waits(self, token: str) -> bool:
        """Whether the attempt waits for a place."""
        return token in self._waiting

    async def launch(self, actor: RunActor, attempt: Attempt) -> None:
        """Starts it now if there is a place, else when there is one and nobody before it."""
        waiting = _Waiting((-actor.run.priority, actor.run.id, attempt.ordinal), actor, attempt)
        if len(self._placed) < self.limit and not self._waiting:
            self._give_place(attempt)
            await self._hand_over(waiting)
        else:
            self._waiting[attempt.token] = waiting
            heapq.heappush(self._queue, waiting)

    def stop(self, actor: RunActor, attempt: Attempt) -> None:
        """Ends an attempt; one that was not handed over is void at once. Repeating it is harmless."""
        waited = self._waiting.pop(attempt.token, None) is not None
        if waited or attempt.token in self._in_hand:
            self._in_hand.discard(attempt.token)
            self.over(attempt.token)
            actor.post(AttemptVoided(step=attempt.step, token=attempt.token))
        else:
            self._launcher.stop(attempt)

    def attached(self, attempt: Attempt) -> None:
        """It was found running after a restart: it has its place, whoever waits."""
        self._placed.add(attempt.token)

    def over(self, token: str) -> None:
        """It has ended, or never will begin: whoever is next gets its place."""
        self._placed.discard(token)
        while self._queue and len(self._placed) < self.limit:
            waiting = heapq.heappop(self._queue)
            if self._waiting.pop(waiting.attempt.token, None) is not None:
                self._give_place(waiting.attempt)
                self._start(self._hand_over(waiting))

    def _give_place(self, attempt: Attempt) -> None:
        self._placed.add(attempt.token)
        self._in_hand.add(attempt.token)

    async def _hand_over(self, waiting: _Waiting) -> None:
        """What the system will not do now is tried again later, and nobody waits here for that."""
        error = await self._tried(waiting)
        if error is not None:
            self._troubled.add(waiting.attempt.token)
            self._start(self._again(waiting, error))

    async def _again(self, waiting: _Waiting, error: OSError | None) -> None:
        token = waiting.attempt.token
        pause = RETRY_FIRST
        while error is not None and token in self._in_hand:
            count = len(self._troubled)
            reason = f"cannot start steps: {error.strerror or error}; {count} wait for it to pass"
            self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, reason)
            await asyncio.sleep(pause)
            pause = min(RETRY_MOST, pause * 2)
            if token in self._in_hand:
                error = await self._tried(waiting)
        self._troubled.discard(token)
        if not self._troubled:
            self._conditions.well(CONDITION)

    async def _tried(self, waiting: _Waiting) -> OSError | None:
        """Hands it to the launcher, or reports why it never will be; an error that passes is answered."""
        actor, attempt = waiting.actor, waiting.attempt
        try:
            await self._try(actor, attempt)
        except RenderError as error:
            self._failed(actor, attempt, str(error))
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _PASSING:
                return error
            # Whatever it was, the run must not wait for a process that nobody starts.
            if not isinstance(error, OSError):
                log.error("cannot launch", action="launch_failed", run=attempt.run_id, exc_info=error)  # fmt: skip
            self._failed(actor, attempt, f"cannot prepare the step: {error}")
        return None

    async def _try(self, actor: RunActor, attempt: Attempt) -> None:
        if not actor.prepared:
            await self._launcher.prepare(actor.run.id, actor.run.params)
            actor.prepared = True
        if attempt.token not in self._in_hand:
            return  # withdrawn meanwhile
        launch = launching.build(
            actor.plan,
            actor.run,
            attempt,
            base_dir=actor.base_dir,
            files=self._files,
            logs=self._logs,
            server=self._server,
            left=actor.time_left(),
            log_limit=self._log_limit,
        )
        self._launcher.launch(launch)
        self._in_hand.discard(attempt.token)

    def _failed(self, actor: RunActor, attempt: Attempt, reason: str) -> None:
        if attempt.token in self._in_hand:
            self._in_hand.discard(attempt.token)
            self.over(attempt.token)
            actor.post(not_started(attempt, reason, self._clock.now()))
