"""`toban web` as a second unit beside the daemon's, if that is wanted."""

from __future__ import annotations

import os
from collections.abc import Callable

from toban.cli.systemd.managed_files import ManagedFiles
from toban.cli.systemd.service_files import ServiceFiles
from toban.cli.systemd.service_layout import WEB_UNIT, ServiceLayout
from toban.cli.systemd.service_manager import ServiceManager


class WebService:
    """Raises Failure."""

    def __init__(self, layout: ServiceLayout, manager: ServiceManager, files: ManagedFiles) -> None:
        self._layout = layout
        self._manager = manager
        self._files = files

    @property
    def is_installed(self) -> bool:
        return self._layout.web_unit in self._files.digests

    def place(self, shipped: ServiceFiles, *, replace: bool) -> bool:
        """Writes the unit; whether that changed it."""
        return self._files.place(self._layout.web_unit, shipped.web_unit(self._layout), replace=replace)

    def run(self, *, fresh: bool) -> None:
        """Starts it, or restarts it if anything is `fresh`, such as the version."""
        active = self._manager.ask("is-active", "--quiet", WEB_UNIT)
        if fresh:
            self._manager.tell("daemon-reload", what="read the unit")
        if not self._manager.ask("is-enabled", WEB_UNIT):
            self._manager.tell("enable", "--quiet", WEB_UNIT, what="enable the web console")
            self._files.note("enabled", WEB_UNIT)
        if active and not fresh:
            self._files.note("unchanged", WEB_UNIT, "it runs")
            return
        self._manager.ask("reset-failed", WEB_UNIT)
        self._manager.tell("restart", WEB_UNIT, what="start the web console")
        self._files.note("restarted" if active else "started", WEB_UNIT)

    def remove(self, note: Callable[[str, str], None], *, dry_run: bool) -> None:
        """Stops it and removes the unit, if there is one."""
        if not os.path.exists(self._layout.web_unit):
            return
        if not dry_run:
            self._manager.tell("disable", "--quiet", "--now", WEB_UNIT, what="stop the web console")
        note("stopped", WEB_UNIT)
        self._files.remove(self._layout.web_unit)
