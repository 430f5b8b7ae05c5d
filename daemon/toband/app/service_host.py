"""The service manager that the daemon reports to; systemd needs no object for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ServiceHost(Protocol):
    def call_to_stop(self, stop: Callable[[], object]) -> None:
        """Calls `stop`, in any thread, when the service is asked to stop; at once if it already was."""

    def serving(self, detail: str) -> None:
        """Reports that the daemon serves calls."""

    def stopping(self) -> None:
        """Reports that the daemon stops, until it has."""

    def ended(self, code: int) -> None:
        """Called last, directly before the process ends."""
