"""Stop policy: what a stop of the daemon does to the runs that are active."""

from __future__ import annotations

import asyncio

import structlog

from toband.engine.runs.registry import ActiveRuns

log = structlog.get_logger()


async def apply_stop_policy(policy: str, active: ActiveRuns, deadline: float) -> None:
    """Returns when the runs have ended, or continue without the daemon.

    `detach` leaves them running, `wait` waits for their end, `cancel` cancels them first.
    """
    if policy == "detach":
        return
    active.closing = True
    try:
        # Part of the deadline is left for the rest of the stop: runs that continue by then are detached.
        async with asyncio.timeout(deadline - min(2.0, deadline / 4)):
            if policy == "cancel":
                await active.cancel_all("the daemon was stopped")
            await active.drain()
    except TimeoutError:
        log.warning("runs continue without the daemon", action="stop_detached")
