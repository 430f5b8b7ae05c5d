"""The adapters: everything that touches the database, processes, files or the network. Built first, closed last."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

from toban import __version__
from toband.alarm.alarm_clock import ApsAlarmClock
from toband.api.server import Server
from toband.app.provider_choice import providers_of
from toband.app.state_backup import StateBackup
from toband.config import Config
from toband.engine.health.health_conditions import Health
from toband.file_watch.awaited_files import FileLooks
from toband.file_watch.definition_files import WatchedFiles
from toband.file_watch.definition_memory import RememberedFiles, reader_of_definitions
from toband.file_watch.own_files import OwnFiles, printed_to
from toband.file_watch.watched_paths import WatchedPaths
from toband.installation import database_known_by, owner_of
from toband.ports import AlarmClock
from toband.sandbox.worker_pool import ProcessSandbox
from toband.secret_backends.key_file import find_key_file
from toband.state_dir import StateDir
from toband.store import SqlStore
from toband.supervise.artifacts.artifact_store import ArtifactFiles
from toband.supervise.artifacts.value_files import ValueFiles
from toband.supervise.files.file_budget import FileLimits
from toband.supervise.files.run_files import RunFiles
from toband.supervise.host.calendar_files import HostCalendarFiles
from toband.supervise.host.daemon_meter import DaemonMeter
from toband.supervise.host.disk import StateDisk
from toband.supervise.host.host_inspection import HostInspection
from toband.supervise.host.run_archive import RunArchive
from toband.supervise.launch.descriptor_limit import OwnDescriptors
from toband.supervise.launch.process_meter import ProcessMeter
from toband.supervise.logs.line_reader import LineReader
from toband.supervise.logs.log_reader import LogReader

if sys.platform == "win32":
    from toband.supervise.launch.windows_launcher import WindowsLauncher as Launcher
else:
    from toband.supervise.launch.launcher import ProcessLauncher as Launcher
    from toband.supervise.shim import cgroups


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Adapters:
    def __init__(
        self,
        config: Config,
        state: StateDir,
        health: Health,
        clock: SystemClock,
        *,
        take_over: bool,
        new_database: bool,
    ) -> None:
        """Opens nothing but the notes of the installation. Raises OSError."""
        owner = owner_of(state, clock.now())
        self.store = SqlStore(
            config.database,
            owner,
            take_over=take_over,
            known_by="" if new_database else database_known_by(state),
        )
        self.files = RunFiles(state.join("runs"))
        self.logs = LogReader(self.files)
        self.log_lines = LineReader(self.files)
        self.values = ValueFiles(self.files)
        self.launcher = _new_launcher(config, state, self.files, clock, health)
        self.daemon_meter = DaemonMeter()
        self.meter = ProcessMeter(self.launcher.live_shims)
        self.archive = RunArchive(self.files)
        self.artifacts = ArtifactFiles(
            self.files, limits=_artifact_limits(config), rate=config.artifact_rate, conditions=health
        )
        credentials = os.environ.get("CREDENTIALS_DIRECTORY", "")
        self.secrets_key = find_key_file(config.secrets_key_file, credentials, config.state_dir)
        self.backups = StateBackup(config, self.store, self.files, self.secrets_key, owner.installation)
        self.secret_providers = providers_of(config.secret_providers, credentials)
        self.calendar_files = HostCalendarFiles()
        self.disk = StateDisk(config.state_dir, self.store.file)
        self.descriptors = OwnDescriptors()
        self.alarm: AlarmClock = ApsAlarmClock()
        self.server = Server(config.server_limits)
        logs = [path for path in (config.log_file, *printed_to()) if path]
        self.watched_paths = WatchedPaths(
            own=OwnFiles.of(state_dir=config.state_dir, database_file=self.store.file, logs=logs)
        )
        self.awaited_files = FileLooks()
        self.definition_files = WatchedFiles(config.definitions)
        self.definition_memory = RememberedFiles(
            state.join("definition-files.jsonl"),
            reader_of_definitions(__version__, config.timezone, config.shell, config.calendar),
        )
        # Two pools of processes: a definition that is slow to parse delays no step.
        self.evaluation_sandbox = ProcessSandbox()
        self.parsing_sandbox = ProcessSandbox()

    def use_artifact_limits(self, config: Config) -> None:
        self.artifacts.use(limits=_artifact_limits(config), rate=config.artifact_rate)

    def premises(self, config: Config) -> HostInspection:
        """The host as the doctor inspects it."""
        return HostInspection(
            state_dir=config.state_dir,
            files=self.files,
            database_file=self.store.file,
            sockets={each.path: each.mode for each in config.listen if each.path},
            spawner=lambda: _spawner_of(self.launcher),
            cgroup=lambda: _cgroup_text(self.launcher),
            step_user=config.step_user,
        )

    @property
    def cgroup(self) -> str:
        """The cgroup below which each attempt has its own; empty if there is none."""
        return _cgroup_of(self.launcher)

    async def close(self) -> None:
        self.server.close()
        await self.definition_files.close()
        await self.parsing_sandbox.close()
        await self.evaluation_sandbox.close()
        await self.watched_paths.close()
        await self.archive.close()
        await self.artifacts.close()
        self.logs.close()
        await self.store.close()


def _artifact_limits(config: Config) -> FileLimits:
    return FileLimits(bytes=config.artifact_bytes, files=config.artifact_files)


if sys.platform == "win32":

    def _new_launcher(config: Config, state: StateDir, files: RunFiles, clock: SystemClock, health: Health) -> Launcher:
        return Launcher(files, clock, state.join("shims.log"), conditions=health)

    def _spawner_of(launcher: Launcher) -> int | None:
        return None

    def _cgroup_text(launcher: Launcher) -> str:
        return "not used: Windows has no cgroups"

    def _cgroup_of(launcher: Launcher) -> str:
        return ""

else:

    def _new_launcher(config: Config, state: StateDir, files: RunFiles, clock: SystemClock, health: Health) -> Launcher:
        found = cgroups.find(config.cgroup)
        return Launcher(files, clock, state.join("spawner.log"), conditions=health, cgroups=found)

    def _spawner_of(launcher: Launcher) -> int | None:
        return launcher.spawner_pid

    def _cgroup_text(launcher: Launcher) -> str:
        found = launcher.cgroups
        if not found.attempts:
            return f"not used: {found.reason}"
        controllers = ", ".join(sorted(found.controllers)) or "none"
        why = f" ({found.reason})" if found.reason else ""
        return f"each step has one below {found.attempts}; controllers: {controllers}{why}"

    def _cgroup_of(launcher: Launcher) -> str:
        return launcher.cgroups.attempts
