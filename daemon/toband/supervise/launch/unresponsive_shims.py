"""The watch over shims that do not respond. A step that runs as the daemon's user can stop its supervisor repeatedly.

The daemon continues a stopped shim. If a shim is long overdue to end its step, by timeout or on request, and still has
living processes, the daemon ends those: the cgroup first, then everything a walk finds. Then no process is left that
could stop the shim, and it writes its record. If it does not, the daemon kills it too.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("a job ends with its shim there")

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import structlog

from toband.domain.attempt_model import Attempt, TreeCause
from toband.supervise.shim import cgroups, process_tree
from toband.supervise.shim.cgroups import Cgroups

LOOK_EVERY = 2.0
SLACK = 10.0
"""Seconds that a shim may take longer than it should, on a busy machine."""
_END_PATIENCE = 5.0

log = structlog.get_logger()


@dataclass(slots=True)
class Duty:
    """The deadline by which a shim must have ended its step. `ending` is how long ending it may take."""

    ending: float
    due: float | None = None
    """By the clock of the event loop."""
    cause: TreeCause = TreeCause.TIMEOUT
    forced: bool = False
    """The daemon ended the step itself."""

    def begins(self, now: float, timeout: float | None, cause: TreeCause) -> None:
        if timeout is not None:
            self.due, self.cause = now + timeout + self.ending, cause

    def stops(self, now: float) -> None:
        """The shim was asked to end its step."""
        if self.due is None or now + self.ending < self.due:
            self.due, self.cause = now + self.ending, TreeCause.CANCEL


class Watched(Protocol):
    """A shim that lives; `pidfd` is negative when it is let go of."""

    @property
    def attempt(self) -> Attempt: ...
    @property
    def pid(self) -> int: ...
    @property
    def pidfd(self) -> int: ...
    @property
    def duty(self) -> Duty: ...


class ShimWatch:
    """Belongs to a running event loop."""

    def __init__(self, cgroups: Cgroups, living: Callable[[], Collection[Watched]]) -> None:
        self._cgroups = cgroups
        self._living = living
        self._stopped: set[int] = set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                await self.look(loop.time())
            except Exception as error:
                message = "cannot look after the supervisors"
                loop.call_exception_handler({"message": message, "exception": error})

    async def look(self, now: float) -> None:
        living = list(self._living())
        states = await asyncio.to_thread(lambda: [_state(each.pid) for each in living])
        # Only after two checks in a row, so that stopping a shim briefly for debugging works.
        before, self._stopped = self._stopped, set()
        for shim, state in zip(living, states, strict=True):
            late = shim.duty.due is not None and now > shim.duty.due
            if late:
                await self._overdue(shim, now)
            elif state in "Tt" and shim.pid not in before:
                self._stopped.add(shim.pid)
            elif state in "Tt":
                log.warning(
                    "a supervisor was stopped, and is continued",
                    action="shim_continued",
                    attempt=shim.attempt.id,
                    pid=shim.pid,
                )
                _signal(shim, signal.SIGCONT)

    async def _overdue(self, shim: Watched, now: float) -> None:
        duty = shim.duty
        again = duty.forced
        had_any = await asyncio.to_thread(self._end_tree, shim.attempt, shim.pid)
        duty.due = now + SLACK
        if not had_any and _state(shim.pid) not in "Tt":
            return  # it has ended its step, and its record waits for the disk
        log.error(
            "a supervisor does not act: ending its step", action="shim_overdue", attempt=shim.attempt.id, pid=shim.pid
        )
        duty.forced = True
        _signal(shim, signal.SIGCONT)
        if again:
            _signal(shim, signal.SIGKILL)

    def _end_tree(self, attempt: Attempt, pid: int) -> bool:
        """Whether anything lived that the shim should have ended. In a thread."""
        living = bool(process_tree.living_below(pid))
        path = self._cgroups.of(attempt.token) if self._cgroups.attempts else ""
        if path and os.path.isdir(path):
            # Not removed: the shim holds its lock and removes it.
            with contextlib.suppress(OSError):
                living = cgroups.populated(path) or living
            cgroups.kill_all(path)
        process_tree.kill_below(pid, _END_PATIENCE)
        return living


def _state(pid: int) -> str:
    seen = process_tree.stat_of(pid)
    return "X" if seen is None else seen[2]


def _signal(shim: Watched, signum: int) -> None:
    if shim.pidfd >= 0:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(shim.pidfd, signum)
