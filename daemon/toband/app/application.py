"""Wires everything; the only place that names concrete classes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import signal
import sys
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog
import uuid_utils

from toband import __version__, exit_codes
from toband.alarm.alarm_clock import ApsAlarmClock
from toband.api.artifact_rpcs import ArtifactRpcs
from toband.api.dead_letter_service import DeadLetterService
from toband.api.event_service import EventService
from toband.api.job_service import JobService
from toband.api.run_service import RunService
from toband.api.schedule_rpcs import ScheduleRpcs
from toband.api.schedule_service import ScheduleService
from toband.api.server import Server
from toband.api.system_service import SystemService
from toband.api.workflow_service import WorkflowService
from toband.config import Config
from toband.domain.transition import Ids
from toband.engine.definitions.catalog import Workflows
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.definitions.file_loader import FileReader, Loader
from toband.engine.definitions.file_sync import DefinitionFiles
from toband.engine.drain import Draining
from toband.engine.events.event_router import Events
from toband.engine.events.path_events import FileWatches
from toband.engine.execution.expression_evaluator import Evaluation
from toband.engine.health import internal_errors
from toband.engine.health.admission import Admission
from toband.engine.health.doctor import Doctor
from toband.engine.health.health_conditions import Health
from toband.engine.health.host_monitor import Guard
from toband.engine.retention.collector import Retention
from toband.engine.retention.retention_policy import Rules
from toband.engine.run_notifier import Changes
from toband.engine.runs.log_stream import LogStreams
from toband.engine.runs.registry import Runs
from toband.engine.runs.resource_sampling import Usages
from toband.engine.runs.run_artifacts import RunArtifacts
from toband.engine.runs.run_control import Control
from toband.engine.schedules.active_blackouts import Blackouts
from toband.engine.schedules.schedule_queries import Outlook
from toband.engine.schedules.scheduler import Scheduling
from toband.engine.schedules.subject_schedules import Subjects
from toband.engine.system_events import Announcing
from toband.file_watch.definition_files import WatchedFiles
from toband.file_watch.definition_memory import RememberedFiles, reader_of_definitions
from toband.file_watch.own_files import OwnFiles, printed_to
from toband.file_watch.watched_paths import WatchedPaths
from toband.installation import database_known_by, note_database, owner_of
from toband.ports import Claim, StoreError, StoreTakenOverError
from toband.sandbox.worker_pool import ProcessSandbox
from toband.state_dir import StateDir
from toband.store import SqlStore
from toband.supervise.artifacts.artifact_store import ArtifactFiles
from toband.supervise.artifacts.value_files import ValueFiles
from toband.supervise.files.file_budget import Limits
from toband.supervise.files.run_files import RunFiles
from toband.supervise.host.disk import StateDisk
from toband.supervise.host.host_inspection import HostPremises
from toband.supervise.host.run_archive import RunArchive
from toband.supervise.launch.descriptor_limit import OwnDescriptors, raise_limit
from toband.supervise.launch.process_meter import ProcessMeter
from toband.supervise.logs.log_reader import LogFiles
from toband.systemd_notify import notify

if sys.platform == "win32":
    from toband.supervise.launch.windows_launcher import WindowsLauncher
else:
    from toband.supervise.launch.launcher import ProcessLauncher
    from toband.supervise.shim import cgroups

REQUESTS_KEPT = timedelta(days=7)
FIRES_KEPT = timedelta(days=90)
FIRES_MOST = 1000
"""Lines of the ledger that are kept of each schedule."""
EVENTS_KEPT = timedelta(days=30)
EVENTS_MOST = 100_000
HOUSEKEEPING = 3600.0
ANNOUNCE_AGAIN = 5.0

log = structlog.get_logger()


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Application:
    """One daemon on one state directory, from its start to its clean end."""

    def __init__(
        self,
        config: Config,
        state: StateDir,
        *,
        take_over: bool = False,
        new_database: bool = False,
    ) -> None:
        self._config = config
        self._state = state
        self._take_over = take_over
        self._new_database = new_database
        self._clock = SystemClock()
        self._stop = asyncio.Event()
        self._replaced: StoreTakenOverError | None = None

    async def run(self) -> None:
        """Serves until it is told to stop.

        Raises StoreError, ListenError, OSError before it serves; StoreTakenOverError when another daemon replaced it.
        """
        self._catch_signals()
        started_at = self._clock.now()
        raise_limit()
        store = SqlStore(
            self._config.database,
            owner_of(self._state, started_at),
            take_over=self._take_over,
            known_by="" if self._new_database else database_known_by(self._state),
        )
        files = RunFiles(self._state.join("runs"))
        logs = LogFiles(files)
        health = Health(self._clock)
        internal_errors.watch(asyncio.get_running_loop(), health)
        launcher = self._new_launcher(files, health)
        usages = Usages(meter=ProcessMeter(launcher.live_shims), store=store, clock=self._clock)
        archive = RunArchive(files)
        artifacts = ArtifactFiles(
            files,
            limits=Limits(bytes=self._config.artifact_bytes, files=self._config.artifact_files),
            rate=self._config.artifact_rate,
            conditions=health,
        )
        changes = Changes()
        retention = Retention(
            store=store,
            archive=archive,
            clock=self._clock,
            rules=self._retention_rules(),
            conditions=health,
        )
        disk = StateDisk(self._config.state_dir, store.file)
        admission = Admission(disk, health, self._config.disk_reserve)
        guard = Guard(
            state_dir=self._config.state_dir,
            disk=disk,
            descriptors=OwnDescriptors(),
            health=health,
            admission=admission,
            leave=self._leave,
        )
        store.watch(guard)
        guard.make_room_to_start()
        server = Server()
        watched_paths = WatchedPaths(
            own=OwnFiles.of(state_dir=self._config.state_dir, database_file=store.file, logs=self._logs())
        )
        watched = WatchedFiles(self._config.definitions)
        # Processes of their own each: a definition that is hard to read delays no step.
        evaluating = ProcessSandbox()
        evaluation = Evaluation(evaluating)
        reading = ProcessSandbox()
        parser = DefinitionParser(reading)
        await store.open()
        self._tell_claim(store.claim)
        try:
            self._note_database()
            listen = server.bind(self._config.listen)
            ids = Ids(
                new_id=lambda: str(uuid_utils.uuid7()),
                new_token=lambda: uuid.uuid4().hex,
                boot_id=launcher.boot_id,
                random=random.random,
            )
            announcing = Announcing(self._clock, ids)
            draining = Draining()
            definitions_read = asyncio.Event()
            blackouts = Blackouts(self._config.blackout, self._config.timezone)
            blackouts.tell(health)
            runs = Runs(
                store=store,
                launcher=launcher,
                files=files,
                logs=logs,
                values=ValueFiles(files),
                artifacts=artifacts,
                clock=self._clock,
                ids=ids,
                changes=changes,
                health=health,
                server=listen[0],
                tools=self._tools(),
                default_timeout=self._config.default_run_timeout,
                max_running=self._config.max_attempts_running,
                log_limit=self._config.attempt_log_limit,
                admission=admission,
                announcing=announcing,
                event_concurrency=self._config.event_concurrency,
                artifact_time=self._config.artifact_time,
                evaluation=evaluation,
            )
            await launcher.open(runs.report)
            await runs.find()
            doctor = Doctor(
                store=store,
                premises=HostPremises(
                    state_dir=self._config.state_dir,
                    files=files,
                    database_file=store.file,
                    sockets=[address.removeprefix("unix://") for address in listen if address.startswith("unix://")],
                    spawner=lambda: self._spawner_of(launcher),
                    cgroup=lambda: self._cgroup_of(launcher),
                ),
                disk=disk,
                descriptors=OwnDescriptors(),
                clock=self._clock,
                reserve=self._config.disk_reserve,
            )
            scheduling = Scheduling(
                store=store,
                runs=runs,
                clock=self._clock,
                alarm=ApsAlarmClock(),
                admission=admission,
                conditions=health,
                blackouts=blackouts,
                draining=draining,
                announcing=announcing,
                boot=self._state.boot(launcher.boot_id, self._clock.now()),
                definitions_read=definitions_read,
            )
            events = Events(
                store=store,
                runs=runs,
                clock=self._clock,
                ids=ids,
                announcing=announcing,
                admission=admission,
                draining=draining,
                evaluation=evaluation,
                started={
                    "version": __version__,
                    "pid": os.getpid(),
                    "started_at": started_at.isoformat(),
                },
            )

            file_watches = FileWatches(store=store, paths=watched_paths, announce=events.announce, conditions=health)

            def changed() -> None:
                scheduling.changed()
                events.changed()
                file_watches.changed()

            workflows = Workflows(
                store=store,
                clock=self._clock,
                parser=parser,
                admission=admission,
                zone=self._config.timezone,
                changed=changed,
                origins=runs.origins,
                refusal=partial(files.refusal, ""),
            )
            definition_files = DefinitionFiles(
                source=watched,
                memory=RememberedFiles(
                    self._state.join("definition-files.jsonl"),
                    reader_of_definitions(__version__, self._config.timezone),
                ),
                reader=FileReader(parser),
                loader=Loader(
                    store=store,
                    clock=self._clock,
                    parser=parser,
                    admission=admission,
                    zone=self._config.timezone,
                    refusal=partial(files.refusal, ""),
                ),
                store=store,
                clock=self._clock,
                conditions=health,
                changed=changed,
                read=definitions_read,
                delete_removed=self._config.definitions_removed == "delete",
                watch=bool(self._config.definitions),
            )
            run_service = RunService(
                runs,
                Control(runs, store, remove=retention.remove),
                LogStreams(store=store, logs=logs, runs=runs, changes=changes),
                store,
                changes,
                usages,
                ArtifactRpcs(RunArtifacts(store, artifacts, runs.context_of)),
            )
            schedule_rpcs = ScheduleRpcs(
                Outlook(store=store, clock=self._clock, blackouts=blackouts, draining=draining),
                store,
            )
            await server.start(
                workflows=WorkflowService(workflows, store, schedule_rpcs),
                jobs=JobService(workflows, runs, store, run_service, schedule_rpcs),
                runs=run_service,
                dead_letters=DeadLetterService(runs, store, self._clock, run_service),
                events=EventService(events, store),
                schedules=ScheduleService(
                    Subjects(
                        store=store,
                        clock=self._clock,
                        ids=ids,
                        admission=admission,
                        zone=self._config.timezone,
                        changed=scheduling.changed,
                    ),
                    store,
                ),
                system=SystemService(
                    config=self._config,
                    listen=listen,
                    started_at=started_at,
                    store=store,
                    launcher=launcher,
                    runs=runs,
                    health=health,
                    doctor=doctor,
                    retention=retention,
                    scheduling=scheduling,
                    definition_files=definition_files,
                    cgroup=self._cgroup_place(launcher),
                ),
            )
            server.follow(health)
            announced = self._announced(listen, started_at)
            # What the daemon is made of stays: looking through it for garbage would only hold everybody up.
            gc.freeze()
            log.info("serving", action="serving", listen=listen, pid=os.getpid())
            notify("READY=1", f"STATUS=serving {', '.join(listen)}", f"MAINPID={os.getpid()}")
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(runs.recover()),
                    group.create_task(self._keep_house(store)),
                    group.create_task(retention.run()),
                    group.create_task(guard.watch(store)),
                    group.create_task(server.guard_sockets(health)),
                    group.create_task(self._announce(listen, started_at, announced)),
                    group.create_task(usages.run()),
                    group.create_task(definition_files.run()),
                    group.create_task(file_watches.run()),
                ]
                starting = [
                    group.create_task(scheduling.run()),
                    group.create_task(events.run()),
                ]
                await self._stop.wait()
                # What is due from now on, or told from now on, is for the next daemon.
                for task in starting:
                    task.cancel()
                await self._wind_down(runs, launcher.running())
                for task in tasks:
                    task.cancel()
            scheduling.close()
            events.close()
            changes.close()
            await server.stop(self._config.stop_deadline / 2 if self._replaced is None else 0)
            await runs.close()
            await launcher.close()
        finally:
            server.close()
            await watched.close()
            parser.close()
            await reading.close()
            await evaluating.close()
            await watched_paths.close()
            await archive.close()
            await artifacts.close()
            logs.close()
            await store.close()
        if self._replaced is not None:
            raise self._replaced
        log.info("stopped", action="stopped")

    def _note_database(self) -> None:
        """A full disk does not keep the daemon from serving; the next start writes the note."""
        with contextlib.suppress(OSError):
            note_database(self._state)

    def _tell_claim(self, claim: Claim | None) -> None:
        if claim is not None and self._take_over and claim.previous is not None:
            log.warning(
                "took the database over",
                action="taken_over",
                previous=claim.previous.described,
                attempts_left=claim.abandoned,
            )

    async def _wind_down(self, runs: Runs, running: int) -> None:
        """What the stop policy does about runs that are active, while everybody is still served."""
        policy, deadline = self._config.stop_policy, self._config.stop_deadline
        notify("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int((deadline + 5) * 1e6)}")
        log.info("stopping", action="stopping", policy=policy, running=running)
        if policy == "detach" or self._replaced is not None:
            return
        runs.take_no_more()
        try:
            # A part is left for the rest of the stop: whatever goes on by then is detached.
            async with asyncio.timeout(deadline - min(2.0, deadline / 4)):
                if policy == "cancel":
                    await runs.cancel_all("the daemon was stopped")
                await runs.drain()
        except TimeoutError:
            log.warning("runs go on without the daemon", action="stop_detached")

    def _tools(self) -> str:
        """A directory with what steps may call; empty if there can be none."""
        try:
            return self._state.provide_command()
        except OSError as error:
            log.error("steps have no toban to call", action="tools_failed", error=str(error))
            return ""

    def _logs(self) -> list[str]:
        return [path for path in (self._config.log_file, *printed_to()) if path]

    def _announced(self, listen: list[str], started_at: datetime) -> bool:
        """A disk that takes nothing does not keep anybody from being served."""
        try:
            self._state.announce(listen, started_at, __version__)
        except OSError as error:
            log.error("cannot write toband.json", action="announce_failed", error=str(error))
            return False
        return True

    async def _announce(self, listen: list[str], started_at: datetime, done: bool) -> None:
        while not done:
            await asyncio.sleep(ANNOUNCE_AGAIN)
            done = self._announced(listen, started_at)

    def _retention_rules(self) -> Rules:
        config = self._config
        return Rules(
            age=config.keep_age,
            runs=config.keep_runs,
            bytes=config.keep_bytes,
            total_runs=config.keep_total_runs,
            total_bytes=config.keep_total_bytes,
            compress_after=config.compress_after,
            total_logs=config.total_log_limit,
        )

    async def _keep_house(self, store: SqlStore) -> None:
        while True:
            try:
                await store.forget_requests(self._clock.now() - REQUESTS_KEPT)
                await store.forget_fires(self._clock.now() - FIRES_KEPT, FIRES_MOST)
                await store.forget_schedules(self._clock.now() - FIRES_KEPT)
                await store.forget_events(self._clock.now() - EVENTS_KEPT, EVENTS_MOST)
            except StoreError as error:
                log.error("cannot forget what is old", action="housekeeping", error=str(error))
            await asyncio.sleep(HOUSEKEEPING)

    if sys.platform == "win32":

        def _new_launcher(self, files: RunFiles, health: Health) -> WindowsLauncher:
            return WindowsLauncher(files, self._clock, self._state.join("shims.log"), conditions=health)

        def _spawner_of(self, launcher: WindowsLauncher) -> int | None:
            return None

        def _cgroup_of(self, launcher: WindowsLauncher) -> str:
            return "not used: Windows has none"

        def _cgroup_place(self, launcher: WindowsLauncher) -> str:
            return ""

    else:

        def _new_launcher(self, files: RunFiles, health: Health) -> ProcessLauncher:
            return ProcessLauncher(
                files,
                self._clock,
                self._state.join("spawner.log"),
                conditions=health,
                cgroups=cgroups.find(self._config.cgroup),
            )

        def _spawner_of(self, launcher: ProcessLauncher) -> int | None:
            return launcher.spawner_pid

        def _cgroup_of(self, launcher: ProcessLauncher) -> str:
            found = launcher.cgroups
            if not found.attempts:
                return f"not used: {found.reason}"
            kept = ", ".join(sorted(found.controllers)) or "none"
            why = f" ({found.reason})" if found.reason else ""
            return f"each step has one below {found.attempts}; controllers: {kept}{why}"

        def _cgroup_place(self, launcher: ProcessLauncher) -> str:
            return launcher.cgroups.attempts

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        if sys.platform == "win32":
            # Ctrl-C, and Ctrl-Break, which is how one process asks another to stop here.
            for signum in (signal.SIGINT, signal.SIGBREAK):
                signal.signal(signum, lambda *_: loop.call_soon_threadsafe(self._told_to_stop))
            return
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._told_to_stop)

    def _leave(self, error: StoreTakenOverError) -> None:
        """Another daemon owns the database: there is nothing left to do here, not even for steps that run."""
        if self._replaced is None:
            self._replaced = error
            log.error("replaced by another toband: leaving", action="replaced", error=str(error))
            if not self._stop.is_set():
                self._told_to_stop()

    def _told_to_stop(self) -> None:
        if self._stop.is_set():
            log.warning("told to stop twice: leaving at once", action="stop_forced")
            os._exit(exit_codes.FAILED)
        self._stop.set()
        # Whatever hangs, the process ends in time; nothing acknowledged depends on a clean end.
        asyncio.get_running_loop().call_later(self._config.stop_deadline, self._too_late)

    def _too_late(self) -> None:
        log.error("could not stop in time: leaving", action="stop_late")
        os._exit(exit_codes.FAILED if self._replaced is None else exit_codes.REPLACED)
