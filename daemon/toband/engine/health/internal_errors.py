"""Unexpected errors: each is logged and reported as a condition of health.

Every exception of a callback or task that nothing else handles reaches the event loop's exception handler, which is
here. So a run that an internal error blocks never shows as RUNNING on a daemon that reports itself healthy.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from toband.ports import Conditions, HealthStatus

CONDITION = "internal"

log = structlog.get_logger()


def unexpected(message: str, error: BaseException) -> None:
    """Hands an error to the handler of the running event loop."""
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


def watch(loop: asyncio.AbstractEventLoop, conditions: Conditions) -> None:
    """Installs the handler. Its condition stays until the daemon is restarted."""
    count = 0

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal count
        message = str(context.get("message", ""))
        error = context.get("exception")
        if error is None:
            log.warning(message, action="loop_complained")
            return
        count += 1
        log.error(message, action="unexpected_error", exc_info=error)
        times = f"{count} unexpected errors, the last one" if count > 1 else "an unexpected error"
        detail = (
            f"{times}: {message}: {type(error).__name__}: {str(error)[:200]}; see the log and report it; "
            "if a run does not go on, restart the daemon"
        )
        conditions.trouble(CONDITION, HealthStatus.DEGRADED, detail)

    loop.set_exception_handler(handle)
