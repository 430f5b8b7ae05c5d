"""Where adapters tell what is not well."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class HealthStatus(StrEnum):
    """OK; DEGRADED: works, but somebody should look; REFUSING: no new runs until it is better."""

    OK = "ok"
    DEGRADED = "degraded"
    REFUSING = "refusing"

    @property
    def rank(self) -> int:
        return list(HealthStatus).index(self)


class Conditions(Protocol):
    """Where adapters tell what is not well. Called in the event loop; repeating either is harmless."""

    def trouble(self, name: str, status: HealthStatus, detail: str) -> None:
        """`name` is the thing (`disk`, `database`, `spawner`…); `detail` says what is wrong and what would help."""
        ...

    def well(self, name: str) -> None: ...
