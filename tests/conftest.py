"""What holds for every test."""

from __future__ import annotations

import asyncio
import signal
import sys

from hypothesis import HealthCheck, settings

# How long an example takes, or the making of one, says how busy the machine is, and nothing about what is tested.
settings.register_profile("toban", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("toban")

if sys.platform == "win32":
    # The loop that waits for sockets: wine now and then loses a completion, and then the other one waits for ever.
    asyncio.set_event_loop_policy(asyncio.WindowsSelectorEventLoopPolicy())

# A suite that is run in the background of a shell inherits that Ctrl-C is ignored, and so do its programs.
if sys.platform != "win32":
    for signum in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(
                signum, signal.default_int_handler if signum is signal.SIGINT else signal.SIG_DFL
            )
