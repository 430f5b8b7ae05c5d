"""The daemon's health: its conditions, since when they exist, and whether new runs are admitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from toband.ports import Clock, HealthStatus

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One problem; `detail` is for people."""

    name: str
    status: HealthStatus
    detail: str
    since: datetime


class Health:
    """Implements `ports.Conditions`. Belongs to the event loop; adapters report to it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._conditions: dict[str, Condition] = {}
        self._listeners: list[Callable[[], None]] = []

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Worst first."""
        worst = sorted(self._conditions.values(), key=lambda c: (-c.status.rank, c.since))
        return tuple(worst)

    @property
    def status(self) -> HealthStatus:
        conditions = self.conditions
        return conditions[0].status if conditions else HealthStatus.OK

    def refusing(self) -> Condition | None:
        """The condition that refuses new runs; None if they are admitted."""
        for condition in self.conditions:
            if condition.status is HealthStatus.REFUSING:
                return condition
        return None

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def trouble(self, name: str, status: HealthStatus, detail: str) -> None:
        before = self._conditions.get(name)
        same = before is not None and before.status is status
        since = before.since if before is not None and same else self._clock.now()
        after = Condition(name=name, status=status, detail=detail, since=since)
        self._conditions[name] = after
        if not same:
            log.error("unhealthy", action="trouble", condition=name, status=status, detail=detail)
            self._tell()

    def well(self, name: str) -> None:
        gone = self._conditions.pop(name, None)
        if gone is not None:
            log.info("recovered", action="well", condition=name, was=gone.detail)
            self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()
