"""What holds for every test."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import sys

from hypothesis import HealthCheck, settings

# How long an example takes, or the making of one, says how busy the machine is, and nothing about what is tested. CI
# says something about a change, and so tries the same examples each time; everybody else tries new ones.
settings.register_profile(
    "toban",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("toban")

if sys.platform == "win32":

    class OftenAwake(selectors.SelectSelector):
        """Looks at its sockets every second: wine now and then does not tell a thread that waits for ever."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            return super().select(1.0 if timeout is None else min(timeout, 1.0))

    class OftenAwakeLoops(asyncio.DefaultEventLoopPolicy):
        """The kind of loop that looks at sockets, so that it can look again."""

        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return asyncio.SelectorEventLoop(OftenAwake())

    asyncio.set_event_loop_policy(OftenAwakeLoops())

# A suite that is run in the background of a shell inherits that Ctrl-C is ignored, and so do its programs.
if sys.platform != "win32":
    for signum in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.default_int_handler if signum is signal.SIGINT else signal.SIG_DFL)
