"""The gRPC services, each given the parts of the engine that it calls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from toband.api.access_service import AccessService
from toband.api.all_runs_watch_rpc import AllRunsWatchRpc
from toband.api.artifact_rpcs import ArtifactRpcs
from toband.api.audit_rpcs import AuditRpcs
from toband.api.audited_calls import AuditedCalls
from toband.api.dead_letter_service import DeadLetterService
from toband.api.event_service import EventService
from toband.api.history_service import HistoryService
from toband.api.hook_service import HookService
from toband.api.job_service import JobService
from toband.api.lock_messages import LockMessages
from toband.api.log_line_rpcs import LogLineRpcs
from toband.api.run_service import RunService
from toband.api.run_watch_rpc import RunWatchRpc
from toband.api.schedule_rpcs import ScheduleRpcs
from toband.api.schedule_service import ScheduleService
from toband.api.secret_service import SecretService
from toband.api.summary_rpcs import SummaryRpcs
from toband.api.system_service import SystemService
from toband.api.workflow_service import WorkflowService
from toband.app.access_parts import user_name
from toband.app.adapters import Adapters
from toband.app.config_reload import ConfigReload
from toband.app.engine_parts import EngineParts
from toband.engine.access.door import Door
from toband.engine.events.event_chains import EventChains
from toband.engine.runs.run_progress import RunProgress


async def start_services(
    reload: ConfigReload, adapters: Adapters, engine: EngineParts, *, doors: Sequence[Door], started_at: datetime
) -> None:
    store = adapters.store
    access = engine.access
    locks = LockMessages(engine.runs.lock_table, engine.runs.active)
    progress = RunProgress(engine.runs.active, adapters.logs)
    runs = RunService(
        intake=engine.runs.intake,
        factory=engine.runs.factory,
        previews=engine.runs.previews,
        plans=engine.runs.plans,
        queue=engine.runs.queue,
        launches=engine.runs.launches,
        control=engine.control,
        approvals=engine.approvals,
        logs=engine.log_streams,
        lines=LogLineRpcs(engine.log_lines),
        store=store,
        watch_all=AllRunsWatchRpc(store, engine.notifier),
        watch=RunWatchRpc(engine.runs.plans, store, engine.notifier, progress),
        progress=progress,
        locks=locks,
        sampler=engine.sampler,
        artifacts=ArtifactRpcs(engine.run_artifacts),
    )
    schedules = ScheduleRpcs(engine.outlook, engine.backfill, store)
    await adapters.server.start(
        access.gate(engine.permissions, AuditedCalls(engine.audit_log, engine.clock), engine.runs.maskers),
        access.logins,
        access=AccessService(
            tokens=access.tokens,
            sessions=access.sessions,
            clock=engine.clock,
            doors=doors,
            user=user_name(),
            step_user=reload.config.step_user,
            audit=AuditRpcs(engine.audit_log, store),
        ),
        workflows=WorkflowService(engine.workflows, store, schedules, SummaryRpcs(store, engine.clock)),
        jobs=JobService(engine.workflows, engine.runs.intake, store, runs, schedules),
        runs=runs,
        dead_letters=DeadLetterService(engine.runs.dead_letters, store, runs),
        events=EventService(engine.events, store),
        history=HistoryService(store, EventChains(store), engine.clock, reload.config.timezone),
        hooks=HookService(engine.hook_admin, engine.hook_deliveries, store),
        schedules=ScheduleService(engine.subjects, store),
        secrets=SecretService(engine.secret_admin, engine.keys),
        system=SystemService(
            config=lambda: reload.config,
            reload=reload.reload,
            listen=[door.address for door in doors],
            started_at=started_at,
            store=store,
            launcher=adapters.launcher,
            recovery=engine.runs.recovery,
            queue=engine.runs.queue,
            launches=engine.runs.launches,
            health=engine.health,
            doctor=engine.doctor,
            retention=engine.retention,
            scheduling=engine.scheduling,
            definition_files=engine.definition_files,
            cgroup=adapters.cgroup,
            locks=locks,
            lock_leftovers=engine.runs.lock_leftovers,
            meter=adapters.daemon_meter,
            backups=adapters.backups,
        ),
    )
