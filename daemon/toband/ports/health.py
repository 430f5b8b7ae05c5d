"""Health conditions, as adapters report them."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class HealthStatus(StrEnum):
    """OK; DEGRADED: works, but needs attention; REFUSING: starts no new runs until it recovers."""

    OK = "ok"
    DEGRADED = "degraded"
    REFUSING = "refusing"

    @property
    def rank(self) -> int:
        return list(HealthStatus).index(self)


class Conditions(Protocol):
    """Takes reports from adapters, in the event loop. Repeating a report is harmless."""

    def trouble(self, name: str, status: HealthStatus, detail: str) -> None:
        """Reports a problem. `name` is the part (`disk`, `database`, `spawner`…); `detail` says what is wrong and what
        to do about it.
        """
        ...

    def well(self, name: str) -> None:
        """Reports that the part has recovered."""
        ...
