"""Blackout windows, in which schedules start nothing: a workflow's own, and the daemon's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from toban.definition.timing.blackouts import Stretch, joined_at, never_ends, parse_blackout
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.ports import Conditions, HealthStatus, StoredWorkflow

CONDITION = "blackout"


class ActiveBlackouts:
    def __init__(self, windows: Sequence[str], zone: str) -> None:
        """`windows` are the daemon's own, in the time zone `zone`."""
        self._windows = tuple(windows)
        self._zone = zone

    def use(self, windows: Sequence[str]) -> None:
        """Replaces the daemon's own windows."""
        self._windows = tuple(windows)

    def tell(self, conditions: Conditions) -> None:
        """Reports the daemon as degraded if its own windows leave no time at all."""
        for text in self._windows:
            if never_ends(parse_blackout(text)):
                detail = (
                    f'the windows of the blackout "{text}" leave no gap, so schedules never start a run: '
                    "make them shorter in the configuration, and run `toban system reload`"
                )
                conditions.trouble(CONDITION, HealthStatus.DEGRADED, detail)
                return
        conditions.well(CONDITION)

    def until(self, stored: StoredWorkflow | None, zone: str, at: datetime) -> NotStarted | None:
        """The blackout, if a window covers that time. The workflow's own windows are in `zone`."""
        found = self._covering(stored, zone, at)
        return None if found is None else NotStarted(NotStartedReason.BLACKOUT, f"until {_shown(*found)}")

    def end(self, stored: StoredWorkflow | None, zone: str, at: datetime) -> datetime | None:
        """When to check again whether a window that covers that time has ended; None: never, or now."""
        found = self._covering(stored, zone, at)
        return None if found is None else found[0].end

    def _covering(self, stored: StoredWorkflow | None, zone: str, at: datetime) -> tuple[Stretch, ZoneInfo] | None:
        own: Sequence[str] = ()
        if stored is not None and stored.definition is not None:
            own = stored.definition.parsed.get("blackout", ())
        windows = (
            *((text, ZoneInfo(zone)) for text in own),
            *((text, ZoneInfo(self._zone)) for text in self._windows),
        )
        found = joined_at(windows, at) if windows else None
        return None if found is None else (found, windows[0][1])


def _shown(stretch: Stretch, zone: ZoneInfo) -> str:
    if stretch.end is None:
        return "further notice"
    return f"{stretch.end.astimezone(zone).isoformat()}{' or longer' if stretch.longer else ''}"
