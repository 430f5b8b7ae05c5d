"""Windows in which schedules start nothing: a workflow's own, and the daemon's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from toban.definition.timing.blackouts import Stretch, parse_blackout, stretch_at
from toband.ports import StoredWorkflow


class Blackouts:
    def __init__(self, windows: Sequence[str], zone: str) -> None:
        """The daemon's own, on the clocks of `zone`."""
        self._windows = tuple(windows)
        self._zone = zone

    def until(self, stored: StoredWorkflow | None, zone: str, at: datetime) -> str:
        """`blackout until …` if a window covers that time, or nothing. The workflow's own are in `zone`."""
        found = self._covering(stored, zone, at)
        return "" if found is None else f"blackout until {_shown(*found)}"

    def end(self, stored: StoredWorkflow | None, zone: str, at: datetime) -> datetime | None:
        """When it is worth looking again whether a window that covers that time has ended; None: never, or now."""
        found = self._covering(stored, zone, at)
        return None if found is None else found[0].end

    def _covering(
        self, stored: StoredWorkflow | None, zone: str, at: datetime
    ) -> tuple[Stretch, ZoneInfo] | None:
        own: Sequence[str] = ()
        if stored is not None and stored.definition is not None:
            own = stored.definition.parsed.get("blackout", ())
        for texts, name in ((own, zone), (self._windows, self._zone)):
            for text in texts:
                found = stretch_at(parse_blackout(text), ZoneInfo(name), at)
                if found is not None:
                    return found, ZoneInfo(name)
        return None


def _shown(stretch: Stretch, zone: ZoneInfo) -> str:
    if stretch.end is None:
        return "further notice"
    return f"{stretch.end.astimezone(zone).isoformat()}{' or longer' if stretch.longer else ''}"
