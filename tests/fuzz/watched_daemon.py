"""The daemon of a target: after each input it lives, has logged no trouble, and has not grown."""

from __future__ import annotations

from fuzz.growth import Growth
from helpers.daemon import Daemon

_TROUBLE = ("Traceback", '"level": "error"', '"level":"error"')


class WatchedDaemon:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._growth = Growth(daemon.pid)
        self._log = daemon.log.open(errors="replace")
        self._log.read()

    def expect_unharmed(self, given: str) -> None:
        """Raises AssertionError. `given` says what it got."""
        assert self._daemon.process is not None
        assert self._daemon.process.poll() is None, f"{given}: the daemon ended"
        said = self._log.read()
        assert not any(sign in said for sign in _TROUBLE), f"{given}:\n{said[-4000:]}"
        self._growth.expect_none()
