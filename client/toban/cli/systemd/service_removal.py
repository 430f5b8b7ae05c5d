"""Removes the service: never under steps that run, and with its state only if that is wanted."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("systemd is part of Linux")

import os
import shutil
import time
from collections.abc import Sequence
from typing import Final

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.systemd.managed_files import ManagedFiles, ServiceChange, failures
from toban.cli.systemd.service_layout import UNIT, ServiceLayout
from toban.cli.systemd.service_manager import ServiceManager
from toban.cli.systemd.service_record import read_record
from toban.cli.systemd.web_service import WebService

# Seconds that the spawner and parked shims take to notice that the daemon is gone.
_GONE: Final = 10.0


class ServiceRemoval:
    """Raises Failure."""

    def __init__(self, layout: ServiceLayout, *, purge: bool, force: bool, dry_run: bool) -> None:
        self._layout = layout
        self._purge = purge
        self._force = force
        self._dry_run = dry_run
        self._manager = ServiceManager(user=layout.user)
        record = read_record(layout.record)
        self._installed = record.current is not None
        self._files = ManagedFiles(dict(record.digests), dry_run=dry_run)

    @property
    def changes(self) -> Sequence[ServiceChange]:
        return self._files.changes

    def remove(self) -> None:
        self._require_possible()
        WebService(self._layout, self._manager, self._files).remove(self._files.note, dry_run=self._dry_run)
        self._stop()
        self._remove_files()
        if self._purge:
            self._remove_state()

    def _require_possible(self) -> None:
        what = "uninstall the service"
        if not self._layout.user and not self._dry_run and os.geteuid() != 0:
            raise Failure(f"cannot {what}: this needs root", Exit.REFUSED, hint="use sudo, or --user for your own")
        self._manager.require()
        if not self._installed and not (self._purge and os.path.isdir(self._layout.state_dir)):
            raise Failure(
                f"cannot {what}: `toban service install` did not install it",
                Exit.NOT_FOUND,
                hint="a service of a package is removed with the package manager",
            )
        if (steps := self._manager.steps()) and not self._force:
            self._refuse(f"{steps} steps are running" if steps > 1 else "1 step is running")

    def _refuse(self, why: str) -> None:
        raise Failure(
            f"cannot uninstall the service: {why}",
            Exit.CONFLICT,
            hint="wait for them, or cancel their runs; --force ends them",
        )

    def _stop(self) -> None:
        active = self._manager.show("ActiveState").get("ActiveState") not in ("inactive", "failed", None)
        if self._dry_run:
            self._files.note("stopped", UNIT)
            return
        if active:
            self._manager.tell("stop", UNIT, what="stop the service")
            self._files.note("stopped", UNIT)
        self._end_processes()
        if os.path.exists(self._layout.unit):
            self._manager.tell("disable", "--quiet", UNIT, what="disable the service")

    def _end_processes(self) -> None:
        """Waits for processes that supervise nothing to end; those that remain belong to steps."""
        deadline = time.monotonic() + _GONE
        while any(True for _ in self._manager.processes()):
            if time.monotonic() > deadline:
                if not self._force:
                    self._manager.tell("start", UNIT, what="start the service again")
                    self._refuse("processes of steps are running")
                # The daemon is gone: whatever has this cgroup is a step or its supervisor.
                self._manager.tell("kill", "--kill-who=all", "--signal=KILL", UNIT, what="end the steps")
                self._files.note("ended", "the processes of steps")
                deadline = time.monotonic() + _GONE
            time.sleep(0.1)

    def _remove_files(self) -> None:
        layout = self._layout
        self._files.remove(layout.hardening, only_ours=not self._purge)
        self._files.remove(layout.unit)
        for name in ("toban", "toband"):
            link = f"{layout.links}/{name}"
            if os.path.islink(link) and os.readlink(link) == layout.program(name):
                self._files.remove(link)
        # The users stay, so that no other user gets their numbers: files that they own may be anywhere.
        for path in (layout.sysusers, layout.tmpfiles):
            if path:
                self._files.remove(path, only_ours=True)
        if not self._dry_run:
            self._manager.tell("daemon-reload", what="forget the unit")
            self._manager.ask("reset-failed", UNIT)
        self._remove_tree(layout.versions)
        self._files.remove(layout.current)
        self._files.remove(layout.record)
        self._remove_empty(layout.prefix)

    def _remove_state(self) -> None:
        self._remove_tree(self._layout.state_dir)
        if self._layout.user:
            # The contexts of this user's command line are in the same directory.
            self._files.remove(self._layout.config)
            self._remove_empty(os.path.dirname(self._layout.config))
            return
        for path in (os.path.dirname(self._layout.config), "/run/toban", "/var/lib/toban-step"):
            self._remove_tree(path)

    def _remove_tree(self, path: str) -> None:
        if not os.path.isdir(path):
            return
        if not self._dry_run:
            with failures(path):
                shutil.rmtree(path)
        self._files.note("removed", path)

    def _remove_empty(self, path: str) -> None:
        """A directory with other files stays: they were put there by hand."""
        if self._dry_run or not os.path.isdir(path) or os.listdir(path):
            return
        with failures(path):
            os.rmdir(path)
