"""What runs the daemon as a service, as far as the daemon must speak to it; systemd needs no object for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ServiceHost(Protocol):
    def call_to_stop(self, stop: Callable[[], object]) -> None:
        """Calls `stop`, in any thread, when the service is asked to stop; at once if it already was."""

    def serving(self, detail: str) -> None:
        """The daemon serves calls."""

    def stopping(self) -> None:
        """The daemon begins to stop, and continues to report that it does."""

    def ended(self, code: int) -> None:
        """The process ends in this moment."""
