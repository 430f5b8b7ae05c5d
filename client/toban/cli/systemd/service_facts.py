"""What is known about the service now: from its record, from systemd, and from the daemon's own status text."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any, Final

from toban.cli.systemd.service_layout import ServiceLayout
from toban.cli.systemd.service_manager import ServiceManager
from toban.cli.systemd.service_record import read_record

_ASKED: Final = (
    "LoadState",
    "ActiveState",
    "SubState",
    "StatusText",
    "MainPID",
    "ActiveEnterTimestamp",
    "NRestarts",
    "UnitFileState",
    "FragmentPath",
    "Result",
)
_MISSING: Final = "not-found"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """For people and as JSON."""

    installed: bool
    """Whether systemd knows the unit."""
    active: bool
    state: str
    status: str
    pid: int
    since: str
    restarts: int
    enabled: bool
    unit: str
    version: str
    previous_version: str
    config: str
    state_dir: str
    steps: int

    def data(self) -> dict[str, Any]:
        return asdict(self)


def service_facts(layout: ServiceLayout, manager: ServiceManager) -> ServiceFacts:
    """Raises Failure if there is no systemd."""
    shown = manager.show(*_ASKED)
    record = read_record(layout.record)
    state = f"{shown.get('ActiveState', 'unknown')} ({shown.get('SubState', 'unknown')})"
    if shown.get("Result", "success") not in ("success", ""):
        state += f", {shown['Result']}"
    return ServiceFacts(
        installed=shown.get("LoadState", _MISSING) != _MISSING,
        active=shown.get("ActiveState") in ("active", "reloading"),
        state=state,
        status=shown.get("StatusText", ""),
        pid=int(shown.get("MainPID", "0")),
        since=shown.get("ActiveEnterTimestamp", ""),
        restarts=int(shown.get("NRestarts", "0")),
        enabled=shown.get("UnitFileState") == "enabled",
        unit=shown.get("FragmentPath", ""),
        version=record.current.version if record.current else "",
        previous_version=record.previous.version
        if record.previous and os.path.isdir(record.previous.directory)
        else "",
        config=layout.config,
        state_dir=layout.state_dir,
        steps=manager.steps(),
    )
