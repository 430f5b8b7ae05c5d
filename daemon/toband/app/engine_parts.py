"""The engine's parts, each given the adapters and the other parts that it needs."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import Coroutine, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import uuid_utils

from toban import __version__
from toban.definition.timing.business_days import default_calendar
from toban.token_text import TokenText
from toband.app.access_parts import AccessParts
from toband.app.adapters import Adapters, SystemClock
from toband.app.run_parts import RunParts
from toband.app.step_settings import rules_of
from toband.config import Config
from toband.domain.transition import Ids
from toband.engine.access.audit_log import AuditLog
from toband.engine.access.door import Door
from toband.engine.access.permissions import Permissions
from toband.engine.definitions.applier import Applier
from toband.engine.definitions.catalog import Workflows
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.definitions.file_loader import FileLoader, FileReader
from toband.engine.definitions.file_sync import FileSync
from toband.engine.drain import DrainMode
from toband.engine.events.event_router import EventRouter
from toband.engine.events.path_events import PathEvents
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.engine.execution.step_rules import StepRules
from toband.engine.health.admission import Admission
from toband.engine.health.doctor import Doctor
from toband.engine.health.health_conditions import Health
from toband.engine.hooks.hook_admin import HookAdmin
from toband.engine.hooks.hook_deliveries import HookDeliveries
from toband.engine.retention.collector import RetentionCollector
from toband.engine.retention.retention_policy import RetentionRules
from toband.engine.retention.row_retention import RowLimits, RowRetention
from toband.engine.run_notifier import RunNotifier
from toband.engine.runs.approvals import Approvals
from toband.engine.runs.line_queries import LineQueries
from toband.engine.runs.log_stream import LogStreams
from toband.engine.runs.resource_sampling import ResourceSampler
from toband.engine.runs.run_artifacts import RunArtifacts
from toband.engine.runs.run_control import RunControl
from toband.engine.schedules.active_blackouts import ActiveBlackouts
from toband.engine.schedules.backfill import Backfill
from toband.engine.schedules.calendar_refresh import CalendarRefresh
from toband.engine.schedules.schedule_queries import ScheduleQueries
from toband.engine.schedules.scheduler import RunScheduler
from toband.engine.schedules.subject_schedules import SubjectSchedules
from toband.engine.schedules.zone_refresh import ZoneRefresh
from toband.engine.secrets.key_ring import KeyRing
from toband.engine.secrets.secret_admin import SecretAdmin
from toband.engine.secrets.secret_values import SecretValues
from toband.engine.system_events import SystemEvents
from toband.ports import HealthStatus
from toband.restored_state import RestoredState, note_resumed, restored_state
from toband.state_dir import StateDir

RESTORED_CONDITION = "restored"


class EngineParts:
    def __init__(
        self,
        config: Config,
        state: StateDir,
        adapters: Adapters,
        health: Health,
        admission: Admission,
        parser: DefinitionParser,
        clock: SystemClock,
        *,
        doors: Sequence[Door],
        admin: TokenText | None,
        tools: str,
        started_at: datetime,
    ) -> None:
        self.health = health
        self.clock = clock
        self._config = config
        self._adapters = adapters
        self._admission = admission
        self._ids = Ids(
            new_id=lambda: str(uuid_utils.uuid7()),
            new_token=lambda: uuid.uuid4().hex,
            boot_id=adapters.launcher.boot_id,
            random=random.random,
        )
        self._announcing = SystemEvents(clock, self._ids)
        self._blackouts = ActiveBlackouts(config.blackout, config.timezone)
        self._blackouts.tell(health)
        self._evaluation = ExpressionEvaluator(adapters.evaluation_sandbox)
        self._definitions_read = asyncio.Event()
        restored = restored_state(state)
        self._draining = _drain_mode(state, restored, health, clock)
        rules = rules_of(config, os.environ)
        self._make_secrets()
        self._make_runs(rules, server=_address_for_steps(doors), tools=tools, restored=restored is not None)
        self._make_access(admin)
        self._make_retention()
        self._make_schedules(state)
        self._make_events(started_at)
        self._make_definitions(parser, rules)
        self.doctor = Doctor(
            store=adapters.store,
            premises=adapters.premises(config),
            disk=adapters.disk,
            descriptors=adapters.descriptors,
            clock=clock,
            reserve=config.disk_reserve,
            audit=self.audit_log,
        )

    def _make_secrets(self) -> None:
        store, clock, providers = self._adapters.store, self.clock, self._adapters.secret_providers
        self.keys = KeyRing(store=store, file=self._adapters.secrets_key, clock=clock, conditions=self.health)
        self.secrets = SecretValues(store=store, keys=self.keys, providers=providers, clock=clock)
        self.secret_admin = SecretAdmin(store=store, keys=self.keys, providers=providers, clock=clock)

    def _make_runs(self, rules: StepRules, *, server: str, tools: str, restored: bool) -> None:
        adapters, store, clock = self._adapters, self._adapters.store, self.clock
        self.notifier = RunNotifier()
        self._daemon_meter = adapters.daemon_meter
        self.sampler = ResourceSampler(meter=adapters.meter, store=store, clock=clock)
        self.runs = RunParts(
            self._config,
            adapters,
            self.health,
            self._admission,
            self._evaluation,
            self._announcing,
            clock,
            self._ids,
            self.notifier,
            self.secrets,
            server=server,
            tools=tools,
            draining=self._draining,
            restored=restored,
            rules=rules,
        )
        self.approvals = Approvals(self.runs.active)
        self.log_streams = LogStreams(
            store=store,
            logs=adapters.logs,
            active=self.runs.active,
            launches=self.runs.launches,
            notifier=self.notifier,
        )
        self.log_lines = LineQueries(store, adapters.log_lines, self.runs.launches.waits)
        self.run_artifacts = RunArtifacts(store, adapters.artifacts, self.runs.context_of)

    def _make_access(self, admin: TokenText | None) -> None:
        config, store, clock = self._config, self._adapters.store, self.clock
        self.audit_log = AuditLog(store, clock, age=config.keep_audit, most=config.keep_audit_entries)
        self.permissions = Permissions(store, self.runs.rights_of)
        self.access = AccessParts(config, store, clock, self.runs.active.run, conditions=self.health, admin=admin)

    def _make_retention(self) -> None:
        config, store, clock = self._config, self._adapters.store, self.clock
        self.retention = RetentionCollector(
            store=store,
            archive=self._adapters.archive,
            clock=clock,
            rules=retention_rules(config),
            conditions=self.health,
            remove_audit=self.audit_log.remove_old,
        )
        self.row_retention = RowRetention(
            store=store, clock=clock, limits=row_limits(config), forget_tokens=self.access.tokens.forget
        )
        self.control = RunControl(self.runs.active, store, clock, remove=self.retention.remove)

    def _make_schedules(self, state: StateDir) -> None:
        config, adapters, store, clock = self._config, self._adapters, self._adapters.store, self.clock
        admission, health = self._admission, self.health
        self.scheduling = RunScheduler(
            store=store,
            active=self.runs.active,
            queue=self.runs.queue,
            intake=self.runs.intake,
            clock=clock,
            alarm=adapters.alarm,
            admission=admission,
            conditions=health,
            blackouts=self._blackouts,
            draining=self._draining,
            announcing=self._announcing,
            boot=state.boot(adapters.launcher.boot_id, clock.now()),
            definitions_read=self._definitions_read,
        )
        self.calendars = CalendarRefresh(
            store=store,
            files=adapters.calendar_files,
            default=default_calendar(config.calendar),
            clock=clock,
            conditions=health,
            changed=self.scheduling.changed,
        )
        self.zones = ZoneRefresh(
            store=store, notes=state.zones, zone=config.timezone, clock=clock, changed=self.scheduling.changed
        )
        self.subjects = SubjectSchedules(
            store=store,
            clock=clock,
            ids=self._ids,
            admission=admission,
            zone=config.timezone,
            calendar=lambda: self.calendars.current,
            changed=self.scheduling.changed,
        )
        self.outlook = ScheduleQueries(
            store=store, clock=clock, blackouts=self._blackouts, draining=self._draining, locks=self.runs.lock_table
        )
        self.backfill = Backfill(store=store, intake=self.runs.intake, clock=clock, admission=admission)

    def _make_events(self, started_at: datetime) -> None:
        store = self._adapters.store
        self.events = EventRouter(
            store=store,
            active=self.runs.active,
            queue=self.runs.queue,
            intake=self.runs.intake,
            origins=self.runs.origins,
            clock=self.clock,
            ids=self._ids,
            announcing=self._announcing,
            admission=self._admission,
            draining=self._draining,
            evaluation=self._evaluation,
            waits=self.runs.waits,
            started={"version": __version__, "pid": os.getpid(), "started_at": started_at.isoformat()},
        )
        self.hook_admin = HookAdmin(store=store, secrets=self.secrets, clock=self.clock)
        self.hook_deliveries = HookDeliveries(
            store=store,
            admin=self.hook_admin,
            events=self.events,
            clock=self.clock,
            free=lambda: self.access.failed_logins,
        )
        self.file_watches = PathEvents(
            store=store, paths=self._adapters.watched_paths, announce=self.events.announce, conditions=self.health
        )

    def _make_definitions(self, parser: DefinitionParser, rules: StepRules) -> None:
        config, adapters, store, clock = self._config, self._adapters, self._adapters.store, self.clock
        self._applier = applier = Applier(
            store=store,
            clock=clock,
            parser=parser,
            admission=self._admission,
            zone=config.timezone,
            shell=config.shell,
            calendar=default_calendar(config.calendar),
            read_file=adapters.calendar_files.read,
            refusal=partial(adapters.files.refusal, ""),
            secrets=self.secrets,
            rules=rules,
        )
        self.workflows = Workflows(applier, changed=self._definitions_changed, origins=self.runs.origins)
        self.definition_files = FileSync(
            source=adapters.definition_files,
            memory=adapters.definition_memory,
            reader=FileReader(parser),
            loader=FileLoader(applier),
            store=store,
            clock=clock,
            conditions=self.health,
            changed=self._definitions_changed,
            read=self._definitions_read,
            delete_removed=config.definitions_removed == "delete",
            watch=bool(config.definitions),
        )

    def starters(self) -> list[Coroutine[Any, Any, None]]:
        """Work that starts runs. Cancelled first at a stop: later due times and events are for the next daemon."""
        return [self._schedule(), self.events.run()]

    async def _schedule(self) -> None:
        """Decides no due time by the calendar or the time zone of an earlier start."""
        await self.calendars.ready.wait()
        await self.zones.ready.wait()
        await self.scheduling.run()

    def companions(self) -> list[Coroutine[Any, Any, None]]:
        """Work that continues until the end of a stop."""
        return [
            self.runs.recovery.recover(),
            self._daemon_meter.run(),
            self.runs.lock_leftovers.run(),
            self.runs.deadlocks.run(),
            self.audit_log.run(),
            self.retention.run(),
            self.row_retention.run(),
            self.sampler.run(),
            self.definition_files.run(),
            self.file_watches.run(),
            self.calendars.run(),
            self.zones.run(),
            self.keys.watch(),
            *self.access.companions(),
        ]

    def use_step_rules(self, config: Config) -> None:
        """For steps that start and definitions that are applied from now on."""
        rules = rules_of(config, os.environ)
        self.runs.launch_builder.rules = rules
        self.runs.launch_builder.log_limit = config.attempt_log_limit
        self._applier.use(rules)

    def use_blackouts(self, windows: Sequence[str]) -> None:
        self._blackouts.use(windows)
        self._blackouts.tell(self.health)
        self.scheduling.blackouts_changed()

    def end_streams(self) -> None:
        self.scheduling.close()
        self.events.close()
        self.notifier.close()

    def _definitions_changed(self) -> None:
        self.scheduling.changed()
        self.events.changed()
        self.file_watches.changed()


def _address_for_steps(doors: Sequence[Door]) -> str:
    """The address in the environment of steps: a socket that requires a credential, as theirs is, if there is one."""
    own = [door.address for door in doors if door.address.startswith("unix://") and door.role is None]
    return own[0] if own else doors[0].address


def row_limits(config: Config) -> RowLimits:
    return RowLimits(
        requests=config.keep_requests,
        ledger=config.keep_ledger,
        ledger_entries=config.keep_ledger_entries,
        events=config.keep_events,
        total_events=config.keep_total_events,
        tokens=config.keep_tokens,
        versions=config.keep_versions,
    )


def _drain_mode(state: StateDir, restored: RestoredState | None, health: Health, clock: SystemClock) -> DrainMode:
    """A daemon that was restored from a backup holds until it is resumed."""
    if restored is None or not restored.held:
        return DrainMode()
    draining = DrainMode(holds=True, note_end=lambda: note_resumed(state, restored, clock.now()))
    health.trouble(
        RESTORED_CONDITION,
        HealthStatus.DEGRADED,
        f"restored from {restored.described}: schedules and events start nothing, and no run begins or continues; "
        "cancel the runs that continued there after the backup (`toban ps`), then run `toban system resume`",
    )
    draining.after(lambda: health.well(RESTORED_CONDITION))
    return draining


def retention_rules(config: Config) -> RetentionRules:
    return RetentionRules(
        age=config.keep_age,
        runs=config.keep_runs,
        bytes=config.keep_bytes,
        total_runs=config.keep_total_runs,
        total_bytes=config.keep_total_bytes,
        compress_after=config.compress_after,
        total_logs=config.total_log_limit,
    )
