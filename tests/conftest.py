"""Settings of all tests: Hypothesis, the order of work with several workers, event loops under wine, and signals."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The time that an example takes depends on the load of the machine, so there is no deadline. CI judges a change, and so
# tries the same examples each time; other runs try new ones.
settings.register_profile(
    "toban",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("toban")

_LONG_FILES = ("windows", "faults", "e2e", "bench", "packaging", "integration", "fuzz", "contract")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers take whole files in this order: the longest first, so that all workers end at about the same time."""
    if hasattr(config, "workerinput"):
        order = {name: number for number, name in enumerate(_LONG_FILES)}
        tests = Path(__file__).parent
        items.sort(key=lambda item: order.get(item.path.relative_to(tests).parts[0], len(order)))


if sys.platform == "win32":

    class OftenAwake(selectors.SelectSelector):
        """Looks at its sockets every second: under wine a thread that waits without a timeout sometimes never wakes."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            return super().select(1.0 if timeout is None else min(timeout, 1.0))

    class OftenAwakeLoops(asyncio.DefaultEventLoopPolicy):
        """Selector loops instead of the proactor loops of Windows."""

        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return asyncio.SelectorEventLoop(OftenAwake())

    asyncio.set_event_loop_policy(OftenAwakeLoops())

# In the background of a shell the suite inherits an ignored SIGINT, and would pass it on to the programs it starts.
if sys.platform != "win32":
    for signum in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.default_int_handler if signum is signal.SIGINT else signal.SIG_DFL)
