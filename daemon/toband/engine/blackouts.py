"""Windows in which schedules start nothing: a workflow's own, and the daemon's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from toban.definition.timing.blackouts import covers, ends_at, parse_blackout
from toband.ports import StoredWorkflow


class Blackouts:
    def __init__(self, windows: Sequence[str], zone: str) -> None:
        """The daemon's own, on the clocks of `zone`."""
        self._windows = tuple(windows)
        self._zone = zone

    def until(self, stored: StoredWorkflow | None, zone: str, at: datetime) -> str:
        """`blackout until …` if a window covers that time, or nothing. The workflow's own are in `zone`."""
        own: Sequence[str] = ()
        if stored is not None and stored.definition is not None:
            own = stored.definition.parsed.get("blackout", ())
        for texts, name in ((own, zone), (self._windows, self._zone)):
            for text in texts:
                window = parse_blackout(text)
                if covers(window, ZoneInfo(name), at):
                    end = ends_at(window, ZoneInfo(name), at)
                    shown = end.astimezone(ZoneInfo(name)).isoformat() if end else "further notice"
                    return f"blackout until {shown}"
        return ""
