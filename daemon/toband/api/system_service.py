"""SystemService: see proto/toban/v1/system.proto."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import datetime

from toban import __version__
from toban.safe_text import sendable
from toban.v1 import system_pb2 as pb
from toban.v1 import system_pb2_grpc
from toband.api import lock_messages, run_messages
from toband.api.handler import Context, streaming, unary
from toband.api.lock_messages import LockMessages
from toband.config import Config
from toband.config.comparison import ReloadOutcome, SettingChange
from toband.engine.access.call_scope import visible
from toband.engine.definitions.file_changes import ChangeKind
from toband.engine.definitions.file_status import DefinitionFileState
from toband.engine.definitions.file_sync import FileSync
from toband.engine.execution.dispatcher import Dispatcher
from toband.engine.execution.lock_leftovers import LockLeftovers
from toband.engine.health.doctor import Doctor, FindingStatus
from toband.engine.health.health_conditions import Health
from toband.engine.retention.collector import RetentionCollector
from toband.engine.runs.recovery import Recovery
from toband.engine.runs.run_queue import RunQueue
from toband.engine.schedules.scheduler import RunScheduler
from toband.ports import BackupPiece, Backups, Counts, HealthStatus, Launcher, OwnMeter, Store, StoreError

_HEALTH = {
    HealthStatus.OK: pb.HEALTH_STATUS_OK,
    HealthStatus.DEGRADED: pb.HEALTH_STATUS_DEGRADED,
    HealthStatus.REFUSING: pb.HEALTH_STATUS_REFUSING,
}
_FOUND = {
    FindingStatus.OK: pb.FINDING_STATUS_OK,
    FindingStatus.WARNING: pb.FINDING_STATUS_WARNING,
    FindingStatus.FAILED: pb.FINDING_STATUS_FAILED,
    FindingStatus.REPAIRED: pb.FINDING_STATUS_REPAIRED,
}
_CHANGED = {
    ChangeKind.CREATED: pb.DEFINITION_OUTCOME_CREATED,
    ChangeKind.UPDATED: pb.DEFINITION_OUTCOME_UPDATED,
    ChangeKind.DISABLED: pb.DEFINITION_OUTCOME_DISABLED,
    ChangeKind.DELETED: pb.DEFINITION_OUTCOME_DELETED,
}
_LISTED = 1000
"""How many files or changes one answer has at most."""


class SystemService(system_pb2_grpc.SystemServiceServicer):
    def __init__(
        self,
        *,
        config: Callable[[], Config],
        reload: Callable[[], Awaitable[ReloadOutcome]],
        listen: Sequence[str],
        started_at: datetime,
        store: Store,
        launcher: Launcher,
        recovery: Recovery,
        queue: RunQueue,
        launches: Dispatcher,
        health: Health,
        doctor: Doctor,
        retention: RetentionCollector,
        scheduling: RunScheduler,
        definition_files: FileSync,
        cgroup: str,
        locks: LockMessages,
        lock_leftovers: LockLeftovers,
        meter: OwnMeter,
        backups: Backups,
    ) -> None:
        self._backups = backups
        self._meter = meter
        self._locks = locks
        self._lock_leftovers = lock_leftovers
        self._definition_files = definition_files
        self._cgroup = cgroup
        self._retention = retention
        self._scheduling = scheduling
        self._health = health
        self._doctor = doctor
        self._counts = Counts(workflows=0, active_runs=0)
        self._config = config
        self._reload = reload
        self._listen = listen
        self._started_at = started_at
        self._store = store
        self._launcher = launcher
        self._recovery = recovery
        self._queue = queue
        self._launches = launches

    @unary
    async def GetInfo(self, request: pb.GetInfoRequest, context: Context) -> pb.GetInfoResponse:
        if visible() is not None:
            # Counts, files and paths are about the workflows of others too.
            return pb.GetInfoResponse(
                version=__version__,
                started_at=run_messages.timestamp(self._started_at),
                draining=self._scheduling.draining,
                health=pb.Health(status=_HEALTH[self._health.status]),
            )
        counts = await self._count()
        found = self._recovery.found
        files = self._definition_files.states
        event_runs, event_runs_waiting = self._queue.event_runs()
        use = self._meter.read()
        return pb.GetInfoResponse(
            version=__version__,
            pid=os.getpid(),
            started_at=run_messages.timestamp(self._started_at),
            state_dir=self._config().state_dir,
            database=pb.DatabaseKind.Value(f"DATABASE_KIND_{self._store.kind.upper()}"),
            listen=self._listen,
            active_runs=counts.active_runs,
            running_processes=self._launcher.running(),
            workflows=counts.workflows,
            jobs=counts.jobs,
            schedules=counts.schedules,
            pending_events=counts.pending_events,
            event_runs=event_runs,
            event_runs_waiting=event_runs_waiting,
            event_concurrency=self._config().event_concurrency,
            draining=self._scheduling.draining,
            next_due=run_messages.timestamp(self._scheduling.next_alarm),
            waiting_attempts=self._launches.waiting,
            max_attempts_running=self._launches.limit,
            cgroup=self._cgroup,
            health=self._health_now(),
            load=pb.DaemonLoad(cpu=use.cpu, cpu_time=use.cpu_time, rss_bytes=use.rss_bytes),
            definition_files=[_definition_file(each) for each in files[:_LISTED]],
            definition_file_count=len(files),
            recovery=pb.Recovery(
                runs=found.runs,
                reattached=found.reattached,
                finished_meanwhile=found.finished_meanwhile,
                relaunched=found.relaunched,
                lost=found.lost,
                cleaned_up=found.cleaned_up,
                finished_at=run_messages.timestamp(found.finished_at),
            ),
        )

    async def _count(self) -> Counts:
        """Counts from the database, or the last ones if it fails: GetInfo must work to report that failure."""
        with contextlib.suppress(StoreError):
            self._counts = await self._store.counts()
        return self._counts

    def _health_now(self) -> pb.Health:
        return pb.Health(
            status=_HEALTH[self._health.status],
            conditions=[
                pb.HealthCondition(
                    name=each.name,
                    status=_HEALTH[each.status],
                    detail=each.detail,
                    since=run_messages.timestamp(each.since),
                )
                for each in self._health.conditions
            ],
        )

    @unary
    async def CollectGarbage(self, request: pb.CollectGarbageRequest, context: Context) -> pb.CollectGarbageResponse:
        done = await self._retention.collect(dry_run=request.dry_run)
        return pb.CollectGarbageResponse(
            runs=[
                pb.CollectedRun(
                    id=each.run.id,
                    workflow=each.run.workflow,
                    number=each.run.number,
                    finished_at=run_messages.timestamp(each.run.finished_at),
                    bytes=each.bytes,
                    reason=each.reason,
                )
                for each in done.runs
            ],
            run_count=done.run_count,
            bytes=done.bytes,
            strays=done.strays,
            compressed_logs=done.compressed_logs,
        )

    @unary
    async def Doctor(self, request: pb.DoctorRequest, context: Context) -> pb.DoctorResponse:
        return pb.DoctorResponse(
            findings=[
                pb.Finding(
                    check=each.check,
                    status=_FOUND[each.status],
                    detail=each.detail,
                    hint=each.hint,
                )
                for each in await self._doctor.examine(repair=request.repair)
            ]
        )

    @unary
    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainResponse:
        before = self._scheduling.draining
        self._scheduling.drain()
        return pb.DrainResponse(changed=not before)

    @unary
    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.ResumeResponse:
        before = self._scheduling.draining
        self._scheduling.resume()
        return pb.ResumeResponse(changed=before)

    @unary
    async def GetConfig(self, request: pb.GetConfigRequest, context: Context) -> pb.GetConfigResponse:
        return pb.GetConfigResponse(
            values=[
                pb.ConfigValue(
                    key=each.key,
                    value_json=json.dumps(each.value),
                    source=_config_source(each.origin.source),
                    place=each.origin.place,
                    overridden=[other.place for other in each.origin.overridden],
                    live=each.live,
                )
                for each in self._config().shown()
            ]
        )

    @streaming
    async def Backup(self, request: pb.BackupRequest, context: Context) -> AsyncIterator[pb.BackupResponse]:
        async with aclosing(self._backups.write(with_key=request.with_key)) as pieces:
            async for piece in pieces:
                yield _backup_part(piece)

    @unary
    async def ReloadConfig(self, request: pb.ReloadConfigRequest, context: Context) -> pb.ReloadConfigResponse:
        found = await self._reload()
        return pb.ReloadConfigResponse(
            applied=[_config_change(each) for each in found.changes if each.live],
            needs_restart=[_config_change(each) for each in found.changes if not each.live],
            problems=map(str, found.problems),
            warnings=found.warnings,
        )

    @unary
    async def ListLocks(self, request: pb.ListLocksRequest, context: Context) -> pb.ListLocksResponse:
        return pb.ListLocksResponse(locks=self._locks.locks())

    @unary
    async def ReleaseLock(self, request: pb.ReleaseLockRequest, context: Context) -> pb.ReleaseLockResponse:
        released = await self._lock_leftovers.release(request.name, request.run_id)
        return pb.ReleaseLockResponse(released=map(lock_messages.leftover, released))

    @unary
    async def Reload(self, request: pb.ReloadRequest, context: Context) -> pb.ReloadResponse:
        changes = await self._definition_files.reload()
        files = self._definition_files.states
        return pb.ReloadResponse(
            changes=[
                pb.DefinitionChange(name=each.name, outcome=_CHANGED[each.kind], path=each.path)
                for each in changes[:_LISTED]
            ],
            change_count=len(changes),
            files=len(files),
            broken=[_definition_file(each) for each in files[:_LISTED] if each.broken],
        )


def _config_change(change: SettingChange) -> pb.ConfigChange:
    before, after = json.dumps(change.before), json.dumps(change.after)
    return pb.ConfigChange(key=change.key, before_json=before, after_json=after)


def _backup_part(piece: BackupPiece) -> pb.BackupResponse:
    if piece.progress is not None:
        told = piece.progress
        return pb.BackupResponse(
            progress=pb.BackupProgress(
                rows=told.rows, rows_total=told.rows_total, runs=told.runs, runs_total=told.runs_total
            )
        )
    if piece.summary is not None:
        done = piece.summary
        return pb.BackupResponse(
            summary=pb.BackupSummary(
                runs=done.runs,
                files=done.files,
                bytes=done.bytes,
                removed_runs=done.removed_runs,
                left_out=map(sendable, done.left_out),
                files_left_out=done.files_left_out,
            )
        )
    return pb.BackupResponse(data=piece.data)


def _config_source(name: str) -> pb.ConfigSource.ValueType:
    return pb.ConfigSource.Value(f"CONFIG_SOURCE_{name.upper()}")


def _definition_file(state: DefinitionFileState) -> pb.DefinitionFile:
    broken, ok = pb.DEFINITION_FILE_STATE_BROKEN, pb.DEFINITION_FILE_STATE_OK
    return pb.DefinitionFile(
        path=state.path,
        state=broken if state.broken else ok,
        problems=state.problems,
        loaded_at=run_messages.timestamp(state.loaded_at),
        definitions=state.names,
    )
