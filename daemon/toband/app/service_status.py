"""Tells the service manager that the event loop runs, and what the daemon is doing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from toband.engine.health.health_conditions import Condition
from toband.systemd_notify import extend, notify, watchdog_seconds

INTERVAL = 5.0
"""Seconds between two looks at what the daemon is doing."""
_START_EXTENSION = 120.0
"""Seconds: how long a start may go on after the event loop was last seen to run."""


class ServiceStatus:
    """Feeds the watchdog from the event loop, so that a loop that hangs is noticed, and keeps the status text current.

    The text of `describe` is used from `ready` until `stopping`.
    """

    def __init__(self) -> None:
        self._describe: Callable[[], str] | None = None
        self._text = ""
        self._starting = True
        limit = watchdog_seconds()
        # Three times within the limit: one late turn of the loop does not count as a hang.
        self._interval = INTERVAL if limit is None else min(INTERVAL, limit / 3)

    async def run(self) -> None:
        """Until it is cancelled; without a service manager it ends at once."""
        while os.environ.get("NOTIFY_SOCKET"):
            if self._starting:
                # The migration of a large database takes longer than any fixed limit of a start.
                extend(_START_EXTENSION)
            else:
                notify("WATCHDOG=1")
            if self._describe is not None:
                self._show(self._describe())
            await asyncio.sleep(self._interval)

    def starting(self, text: str) -> None:
        self._show(text)

    def ready(self, describe: Callable[[], str]) -> None:
        self._starting = False
        self._describe = describe
        self._text = describe()
        notify("READY=1", f"STATUS={self._text}", f"MAINPID={os.getpid()}", "WATCHDOG=1")

    def stopping(self, policy: str, steps: int, deadline: float) -> None:
        """From now on the text stays; the service manager waits until the deadline."""
        text = f"stopping (policy {policy}), {_counted(steps, 'step')} running"
        self._describe = None
        self._text = text
        notify("STOPPING=1", f"STATUS={text}")
        extend(deadline)

    def _show(self, text: str) -> None:
        if text != self._text:
            self._text = text
            notify(f"STATUS={text}")


def status_text(*, runs: int, steps: int, conditions: Sequence[Condition]) -> str:
    """One line, such as `2 runs active, 5 steps running; degraded: disk`; `conditions` with the worst first."""
    text = "idle" if not runs and not steps else f"{_counted(runs, 'run')} active, {_counted(steps, 'step')} running"
    if not conditions:
        return text
    return f"{text}; {conditions[0].status.value}: {', '.join(each.name for each in conditions)}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
