"""Health conditions that a test reads. Implements `ports.Conditions`."""

from __future__ import annotations

from toband.ports import HealthStatus


class Conditions:
    """`now`: the detail of each condition that is reported now; `told`: every report, "well" for the end of one.

    With `all_are`, a condition of another status is an error.
    """

    def __init__(self, all_are: HealthStatus | None = None) -> None:
        self._all_are = all_are
        self.now: dict[str, str] = {}
        self.told: list[tuple[str, str]] = []

    def trouble(self, name: str, status: HealthStatus, detail: str) -> None:
        assert self._all_are in (None, status)
        self.now[name] = detail
        self.told.append((name, detail))

    def well(self, name: str) -> None:
        if self.now.pop(name, None) is not None:
            self.told.append((name, "well"))
