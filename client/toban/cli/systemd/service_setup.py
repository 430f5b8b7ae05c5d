"""Installs the service, and switches it from one version to another. Everything may be repeated."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("systemd is part of Linux")

import fcntl
import grp
import os
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.systemd.environment_copy import EnvironmentCopy
from toban.cli.systemd.managed_files import ManagedFiles, ServiceChange, failures, read_text
from toban.cli.systemd.service_files import ServiceFiles
from toban.cli.systemd.service_layout import UNIT, ServiceLayout
from toban.cli.systemd.service_manager import ServiceManager
from toban.cli.systemd.service_record import ServiceRecord, ServiceVersion, read_record
from toban.cli.systemd.version_directories import (
    VersionDirectories,
    contents_of,
    interpreter,
    known_schemas,
)
from toban.cli.systemd.web_service import WebService

_PREFIX: Final = re.compile("^toband: ")
_CHECK_TIME: Final = 120.0
_NOT_OURS: Final = "it was not written by `toban service install`, or was edited"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallChoices:
    """What the caller wants to be installed."""

    wheel: str = ""
    find_links: str = ""
    python: str = ""
    hardened: bool = False
    web: bool = False
    force: bool = False
    dry_run: bool = False


class ServiceSetup:
    """One service, and what is to change of it. Methods raise Failure, with what was done until then in `changes`."""

    def __init__(self, layout: ServiceLayout, choices: InstallChoices) -> None:
        self.layout = layout
        self._choices = choices
        self.manager = ServiceManager(user=layout.user)
        self._directories = VersionDirectories(layout)
        self._record = read_record(layout.record)
        self._files = ManagedFiles(dict(self._record.digests), dry_run=choices.dry_run)
        self._web = WebService(layout, self.manager, self._files)
        # Of the version that is to run, as soon as that is known.
        self._shipped = ServiceFiles()

    @property
    def changes(self) -> Sequence[ServiceChange]:
        return self._files.changes

    @property
    def record(self) -> ServiceRecord:
        return self._record

    def install(self) -> ServiceVersion:
        """Brings everything to the wanted state; the version that now runs."""
        self._require_possible("install the service")
        target = self._make_version()
        self._place_account()
        if self._files.place_once(
            self.layout.config,
            self._shipped.config(self.layout),
            mode=0o600 if self.layout.user else 0o640,
            group=self.layout.account,
        ):
            self._save()
        self._activate(target)
        return target

    def upgrade(self) -> ServiceVersion:
        """Switches to another version of an installed service."""
        self._require_possible("upgrade the service")
        before = self._require_installed("upgrade the service")
        if not self._choices.wheel and self._directories.own() == before.directory:
            raise Failure(
                f"cannot upgrade the service: this is the toban of version {before.version}, which it runs",
                Exit.USAGE,
                hint="name a wheel with --from, or use the toban of the environment that has the new version",
            )
        target = self._make_version()
        self._place_account()
        self._activate(target)
        return target

    def roll_back(self) -> ServiceVersion:
        """Switches to the version before this one, if that can use the database."""
        self._require_possible("go back")
        current = self._require_installed("go back")
        previous = self._record.previous
        if previous is None:
            raise Failure("cannot go back: there is no earlier version", Exit.CONFLICT)
        if not os.path.isdir(previous.directory):
            raise Failure(f"cannot go back to version {previous.version}: {previous.directory} is gone", Exit.CONFLICT)
        schema = self._database_schema(current.directory)
        if schema != "new" and schema not in (known := known_schemas(previous.directory)):
            raise Failure(
                f"cannot go back to version {previous.version}: the database has the schema {schema}, "
                f"and that version knows only up to {max(known)}",
                Exit.CONFLICT,
                hint="restore a backup from before the upgrade, with that version",
            )
        self._activate(previous, unit=previous.unit)
        return previous

    # -- parts

    def _require_possible(self, what: str) -> None:
        if not self._choices.dry_run:
            if not self.layout.user and os.geteuid() != 0:
                raise Failure(
                    f"cannot {what}: this needs root",
                    Exit.REFUSED,
                    hint="use sudo, or --user for a service of your own; --dry-run shows what would be done",
                )
            # Other users must be able to read what is installed.
            os.umask(0o022)
        self.manager.require()
        if not self._choices.dry_run:
            self._lock(what)
        if packaged := self.layout.packaged_unit():
            raise Failure(
                f"cannot {what}: {packaged} belongs to a package of the distribution",
                Exit.CONFLICT,
                hint="install, upgrade and remove it with the package manager",
            )

    def _lock(self, what: str) -> None:
        """Until this program ends. Raises Failure if another one changes the same service."""
        with failures(self.layout.prefix):
            os.makedirs(self.layout.prefix, mode=0o755, exist_ok=True)
            descriptor = os.open(self.layout.prefix, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise Failure(f"cannot {what}: another `toban service` is changing it", Exit.CONFLICT) from None
        # What another one did since this one began.
        self._record = read_record(self.layout.record)
        self._files.digests = dict(self._record.digests)

    def _require_installed(self, what: str) -> ServiceVersion:
        if self._record.current is None:
            raise Failure(
                f"cannot {what}: it is not installed", Exit.NOT_FOUND, hint="`toban service install` installs it"
            )
        return self._record.current

    def _place_account(self) -> None:
        """The users, and the directory of the configuration."""
        if self.layout.user:
            return
        changed = self._files.place(self.layout.sysusers, self._shipped.sysusers(), replace=self._choices.force)
        if (changed or not _is_group(self.layout.account)) and not self._choices.dry_run:
            self.manager.run(["systemd-sysusers", self.layout.sysusers], what="create the users")
        changed = self._files.place(self.layout.tmpfiles, self._shipped.tmpfiles(), replace=self._choices.force)
        directory = os.path.dirname(self.layout.config)
        if (changed or not os.path.isdir(directory)) and not self._choices.dry_run:
            self.manager.run(["systemd-tmpfiles", "--create", self.layout.tmpfiles], what=f"create {directory}")

    def _make_version(self) -> ServiceVersion:
        """The virtual environment of the wanted version."""
        if self._choices.wheel:
            return self._make_of_wheel()
        if own := self._directories.own():
            return self._made(own, "unchanged")
        source = EnvironmentCopy()
        python = interpreter(self.layout, self._choices.python)
        final = self._directories.path_of(source.version, source.identity())
        if os.path.isdir(final):
            return self._made(final, "unchanged")
        if self._choices.dry_run:
            return self._planned(final, source.version)
        return self._made(self._directories.copy(source, python), "created")

    def _make_of_wheel(self) -> ServiceVersion:
        wheel = self._choices.wheel
        named = re.match(r"toban-([^-]+)-\S+\.whl", os.path.basename(wheel))
        if named is None:
            raise Failure(f"cannot install {wheel}: it is not a wheel of toban", Exit.USAGE)
        if not os.path.isfile(wheel):
            raise Failure(f"cannot install {wheel}: there is no such file", Exit.USAGE)
        source = EnvironmentCopy()
        python = interpreter(self.layout, self._choices.python)
        if self._choices.dry_run:
            return self._planned(self._directories.path_of(named[1], "*"), named[1])
        existing = set(os.listdir(self.layout.versions)) if os.path.isdir(self.layout.versions) else set()
        final = self._directories.install(source, python, wheel, self._choices.find_links)
        return self._made(final, "unchanged" if os.path.basename(final) in existing else "created")

    def _planned(self, directory: str, version: str) -> ServiceVersion:
        self._files.note("created", directory)
        return ServiceVersion(version=version, directory=directory, unit=self._unit())

    def _made(self, directory: str, action: str) -> ServiceVersion:
        self._files.note(action, directory)
        contents = contents_of(directory)
        self._shipped = ServiceFiles(contents["packages"]["toban"])
        version = contents["versions"]["toban"]
        try:
            return ServiceVersion(version=version, directory=directory, unit=self._unit())
        except FileNotFoundError:
            raise Failure(
                f"cannot use version {version}: it has no files for a service", Exit.USAGE, hint="it is too old"
            ) from None

    def _unit(self) -> str:
        return self._shipped.unit(self.layout, self.manager.version())

    def _activate(self, target: ServiceVersion, *, unit: str = "") -> None:
        """Lets the service run this version; if it does not start, the earlier one runs again."""
        if not self._choices.dry_run and (target != self._record.current or not self._is_active()):
            self._check(target)
        before = self._record.current or self._foreign_version()
        fresh = self._place_units(target, unit or target.unit, exact=bool(unit))
        if self._is_managed(target):
            owned = f"{self.layout.versions}/"
            fresh |= self._files.link(
                self.layout.current, target.directory, owned=lambda found: found.startswith(owned)
            )
            for name in ("toban", "toband"):
                self._files.link(f"{self.layout.links}/{name}", self.layout.program(name), owned=lambda _: False)
        web = self._choices.web or self._web.is_installed
        fresh_web = web and self._web.place(self._shipped, replace=self._choices.force)
        if self._choices.dry_run:
            self._files.note("restarted" if self._is_active() else "started", UNIT)
            return
        switched = before is not None and before.directory != target.directory
        earlier = self._record.previous
        self._record.current = target
        if switched:
            assert before is not None
            self._record.previous = before
            self._directories.switched_off(before.directory)
        self._save()
        self._run(fresh, ServiceRecord(current=before, previous=earlier) if switched else None)
        if web:
            self._web.run(fresh=fresh_web or switched)
        self._remove_unused()

    def _check(self, target: ServiceVersion) -> None:
        """Refuses a version that could not start, before anything changes."""
        program = f"{target.directory}/bin/toband"
        if os.path.exists(self.layout.config):
            done = self._as_daemon([program, "--config", self.layout.config, "--check-config"])
            if done.returncode != 0:
                raise Failure(
                    f"cannot use version {target.version} with {self.layout.config}",
                    Exit.USAGE,
                    lines=[_PREFIX.sub("", line) for line in done.stderr.splitlines()],
                )
        done = self._as_daemon([program, *self._config_option(), "--check-database"])
        # Releases before this command do not know the option; for them `roll_back` compares the schemas.
        if done.returncode not in (0, 2):
            lines = [_PREFIX.sub("", line) for line in done.stderr.splitlines()]
            raise Failure(f"cannot use version {target.version}", Exit.CONFLICT, lines=lines)
        unit = self._shipped.hardening() if self._choices.hardened else ""
        self.manager.verify(target.unit, program, {"hardening.conf": unit} if unit else {})

    def _database_schema(self, directory: str) -> str:
        done = self._as_daemon([f"{directory}/bin/toband", *self._config_option(), "--check-database"])
        found = re.search(r"^database: (\w+)$", done.stdout, re.MULTILINE)
        if found is None:
            raise Failure("cannot go back: the database cannot be read", Exit.CONFLICT, lines=done.stderr.splitlines())
        return found[1]

    def _config_option(self) -> Sequence[str]:
        return ("--config", self.layout.config) if os.path.exists(self.layout.config) else ()

    def _as_daemon(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Runs a program as the user of the daemon, whose files it may create."""
        names = ("PATH", "HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        account = pwd.getpwnam(self.layout.account) if self.layout.account else None
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_CHECK_TIME,
                check=False,
                cwd="/",
                env={**environment, "LC_ALL": "C.UTF-8"},
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                extra_groups=() if account else None,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failure(f"cannot run {command[0]}: {error}", Exit.CONFLICT) from None

    def _place_units(self, target: ServiceVersion, unit: str, *, exact: bool) -> bool:
        """The unit, the drop-in, and what systemd must know of them; whether anything changed."""
        changed = self._files.place(self.layout.unit, unit, replace=self._choices.force or exact)
        found = read_text(self.layout.unit)
        if self._is_managed(target) and found is not None and self.layout.program("toband") not in found:
            raise Failure(
                f"cannot install the service: {self.layout.unit} starts another program: {_NOT_OURS}",
                Exit.CONFLICT,
                hint=f"--force replaces it, and keeps it as {self.layout.unit}.old",
            )
        if self._choices.hardened or self.layout.hardening in self._files.digests:
            changed |= self._files.place(self.layout.hardening, self._shipped.hardening(), replace=self._choices.force)
        return changed

    def _is_managed(self, target: ServiceVersion) -> bool:
        """Whether `current` leads to this version; not to one that was installed in another way."""
        return os.path.dirname(target.directory) == self.layout.versions

    def _foreign_version(self) -> ServiceVersion | None:
        """The version that a unit starts which was installed by hand: one can go back to it."""
        unit = read_text(self.layout.unit)
        if unit is None or (found := re.search(r"^ExecStart=(/\S+)/bin/toband(?:\s|$)", unit, re.MULTILINE)) is None:
            return None
        try:
            version = contents_of(found[1])["versions"]["toban"]
        except (Failure, KeyError):
            return None
        return ServiceVersion(version=version, directory=found[1], unit=unit)

    def _run(self, fresh: bool, before: ServiceRecord | None) -> None:
        """Starts the daemon, or restarts it if anything is `fresh`; `before` is what to go back to."""
        active = self._is_active()
        if fresh:
            self.manager.tell("daemon-reload", what="read the unit")
        if not self.manager.ask("is-enabled", UNIT):
            self.manager.tell("enable", "--quiet", UNIT, what="enable the service")
            self._files.note("enabled", UNIT)
        if active and not fresh:
            self._files.note("unchanged", UNIT, "it runs")
            return
        try:
            # After too many failures it would not be started.
            self.manager.ask("reset-failed", UNIT)
            self.manager.tell("restart", UNIT, what="start the service")
        except Failure as failure:
            if before is None or before.current is None:
                raise
            self._go_back_after(failure, before.current, before.previous)
        self._files.note("restarted" if active else "started", UNIT)

    def _go_back_after(self, failure: Failure, before: ServiceVersion, earlier: ServiceVersion | None) -> None:
        """Raises Failure: that of the start, and whether the earlier version runs again."""
        assert self._record.current is not None
        failed, self._record.current, self._record.previous = self._record.current, before, earlier
        try:
            self.manager.tell("stop", UNIT, what="stop the service")
            schema = self._database_schema(failed.directory)
            if schema != "new" and schema not in known_schemas(before.directory):
                raise Failure(f"the database has the schema {schema} by now", Exit.CONFLICT)
            self._files.place(self.layout.unit, before.unit, replace=True)
            if self._is_managed(before):
                self._files.link(self.layout.current, before.directory, owned=lambda _: True)
            self._save()
            self.manager.ask("reset-failed", UNIT)
            self.manager.tell("daemon-reload", what="read the unit")
            self.manager.tell("restart", UNIT, what="start the earlier version")
            outcome = f"version {before.version} runs again"
        except Failure as second:
            outcome = f"version {before.version} could not be started either: {second.message}"
        raise Failure(
            f"cannot start version {failed.version}: {outcome}", Exit.CONFLICT, lines=failure.lines
        ) from failure

    def _is_active(self) -> bool:
        return self.manager.show("ActiveState").get("ActiveState") in ("active", "activating", "reloading")

    def _remove_unused(self) -> None:
        """Versions that no step can use any more."""
        kept = [each.directory for each in (self._record.current, self._record.previous) if each is not None]
        oldest = min((_started_at(pid) for pid, _ in self.manager.processes()), default=float("inf"))
        for path in self._directories.unused(kept, oldest):
            with failures(path):
                shutil.rmtree(path)
            self._files.note("removed", path)

    def _save(self) -> None:
        if not self._choices.dry_run:
            self._record.digests = self._files.digests
            self._record.save(self.layout.record)


def _is_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _started_at(pid: int) -> float:
    """When a process was started; the end of time, if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return float("inf")
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted + ticks / os.sysconf("SC_CLK_TCK")
