"""The parts of the engine that run workflows, each given the parts that it needs."""

from __future__ import annotations

from toband.app.adapters import Adapters, SystemClock
from toband.config import Config
from toband.domain.author_limits import StepRights, rights_of
from toband.domain.identity import StepIdentity
from toband.domain.run_events import Event
from toband.domain.run_model import Run
from toband.domain.transition import Ids
from toband.engine.caller import OriginLookup
from toband.engine.drain import DrainMode
from toband.engine.execution.artifact_collection import Collection
from toband.engine.execution.artifact_flow import ArtifactFlow
from toband.engine.execution.dispatcher import Dispatcher
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.engine.execution.launch_spec import LaunchBuilder
from toband.engine.execution.lock_leftovers import LockLeftovers
from toband.engine.execution.lock_table import LockTable
from toband.engine.execution.run_locks import RunLocks
from toband.engine.execution.run_metadata import RunMetadata
from toband.engine.execution.sealed_params import SealedParams
from toband.engine.execution.secret_material import StepSecrets
from toband.engine.execution.step_maskers import StepMaskers
from toband.engine.execution.step_rules import NO_RULES, StepRules
from toband.engine.execution.template_scope import TemplateScope
from toband.engine.health.admission import Admission
from toband.engine.health.health_conditions import Health
from toband.engine.run_notifier import RunNotifier
from toband.engine.runs.background_tasks import BackgroundTasks
from toband.engine.runs.child_runs import ChildRuns
from toband.engine.runs.dead_letters import DeadLetters
from toband.engine.runs.deadlock_watch import DeadlockWatch
from toband.engine.runs.effects import Effects
from toband.engine.runs.intake import RunIntake
from toband.engine.runs.plan_cache import PlanCache
from toband.engine.runs.recovery import Recovery
from toband.engine.runs.registry import ActiveRuns
from toband.engine.runs.run_factory import RunFactory
from toband.engine.runs.run_preview import RunPreviews
from toband.engine.runs.run_queue import RunQueue
from toband.engine.runs.step_waits import StepWaits
from toband.engine.runs.unread_runs import UnreadRuns
from toband.engine.system_events import SystemEvents
from toband.ports import SecretSource


class RunParts:
    def __init__(
        self,
        config: Config,
        adapters: Adapters,
        health: Health,
        admission: Admission,
        evaluation: ExpressionEvaluator,
        announcing: SystemEvents,
        clock: SystemClock,
        ids: Ids,
        notifier: RunNotifier,
        secrets: SecretSource,
        *,
        server: str,
        tools: str,
        draining: DrainMode,
        restored: bool,
        rules: StepRules = NO_RULES,
    ) -> None:
        self._config = config
        self._adapters = adapters
        self._clock = clock
        self._ids = ids
        self._conditions = health
        self._evaluation = evaluation
        self._store = adapters.store
        self._tasks = BackgroundTasks()
        self._make_queue(notifier, announcing)
        self._make_intake(secrets, admission)
        self._make_launches(server=server, tools=tools, rules=rules)
        self._make_effects(notifier, announcing, restored=restored)
        for part in (self.queue, self.launches):
            if draining.holds:
                part.hold()
            draining.after(part.release)

    def _make_queue(self, notifier: RunNotifier, announcing: SystemEvents) -> None:
        config, store, launcher = self._config, self._store, self._adapters.launcher
        clock, ids, start = self._clock, self._ids, self._tasks.start
        self.plans = PlanCache(store)
        self.active = ActiveRuns(store=store, clock=clock, ids=ids, announcing=announcing, start=start)
        self.active.on_add = notifier.notify
        self.lock_table = LockTable(config.locks)
        self._locks = RunLocks(self.lock_table, boot_id=ids.boot_id, find=self.active.actor)
        self.lock_leftovers = LockLeftovers(
            table=self.lock_table, store=store, launcher=launcher, conditions=self._conditions, boot_id=ids.boot_id
        )
        self._unread = UnreadRuns(store=store, launcher=launcher, table=self.lock_table, clock=clock, start=start)
        self.queue = RunQueue(event_slots=config.event_concurrency, locks=self._locks)
        self.deadlocks = DeadlockWatch(active=self.active, queue=self.queue, table=self.lock_table)
        self.origins = OriginLookup(store, self.active.run)

    def _make_intake(self, secrets: SecretSource, admission: Admission) -> None:
        store, clock = self._store, self._clock
        sealed = SealedParams(secrets)
        self._step_secrets = StepSecrets(source=secrets, sealed=sealed)
        self.maskers = StepMaskers(self._step_secrets, self.active.actor)
        self.factory = RunFactory(
            store=store,
            plans=self.plans,
            clock=clock,
            ids=self._ids,
            sealed=sealed,
            default_timeout=self._config.default_run_timeout,
        )
        self.previews = RunPreviews(self.factory, self._evaluation)
        self.intake = RunIntake(
            active=self.active,
            factory=self.factory,
            store=store,
            queue=self.queue,
            origins=self.origins,
            maskers=self.maskers,
            admission=admission,
            start=self._tasks.start,
        )
        self.dead_letters = DeadLetters(store=store, clock=clock, factory=self.factory, intake=self.intake)

    def _make_launches(self, *, server: str, tools: str, rules: StepRules) -> None:
        config, adapters = self._config, self._adapters
        self._seen = TemplateScope(adapters.logs, adapters.values, adapters.files.work)
        self.launch_builder = LaunchBuilder(
            files=adapters.files,
            seen=self._seen,
            evaluation=self._evaluation,
            server=server,
            tools=tools,
            log_limit=config.attempt_log_limit,
            rules=rules,
        )
        self._artifact_flow = ArtifactFlow(self.launch_builder, adapters.artifacts)
        self._metadata = RunMetadata(adapters.artifacts)
        self.launches = Dispatcher(
            launcher=adapters.launcher,
            launch_builder=self.launch_builder,
            artifact_flow=self._artifact_flow,
            metadata=self._metadata,
            values=adapters.values,
            secrets=self._step_secrets,
            maskers=self.maskers,
            clock=self._clock,
            conditions=self._conditions,
            locks=self._locks,
            check_owner=self._store.check_owner,
            limit=config.max_attempts_running,
            artifact_time=config.artifact_time,
            find=self.active.actor,
            start=self._tasks.start,
        )

    def _make_effects(self, notifier: RunNotifier, announcing: SystemEvents, *, restored: bool) -> None:
        adapters, store, clock, start = self._adapters, self._store, self._clock, self._tasks.start
        children = ChildRuns(
            active=self.active,
            intake=self.intake,
            launch_builder=self.launch_builder,
            secrets=self._step_secrets,
            store=store,
            locks=self._locks,
            clock=clock,
            start=start,
        )
        self.waits = StepWaits(
            events=store,
            files=adapters.awaited_files,
            work=adapters.files.work,
            seen=self._seen,
            evaluation=self._evaluation,
            announcing=announcing,
            clock=clock,
            zone=self._config.timezone,
            find=self.active.actor,
            start=start,
        )
        self._collection = Collection(
            artifact_flow=self._artifact_flow,
            maskers=self.maskers,
            conditions=self._conditions,
            boot_id=self._ids.boot_id,
            most=self._config.artifact_time,
            start=start,
        )
        effects = Effects(
            active=self.active,
            queue=self.queue,
            locks=self._locks,
            notifier=notifier,
            launches=self.launches,
            launch_builder=self.launch_builder,
            metadata=self._metadata,
            children=children,
            collection=self._collection,
            waits=self.waits,
            seen=self._seen,
            evaluation=self._evaluation,
            start=start,
        )
        # Effects start child runs, and child runs have effects: the one link that is made afterwards.
        self.active.connect(effects.saved, self._locks)
        self.recovery = Recovery(
            active=self.active,
            queue=self.queue,
            store=store,
            launcher=adapters.launcher,
            launches=self.launches,
            locks=self._locks,
            leftovers=self.lock_leftovers,
            unread=self._unread,
            children=children,
            effects=effects,
            waits=self.waits,
            plans=self.plans,
            clock=clock,
            start=start,
            restored=restored,
        )

    def use_limits(self, config: Config) -> None:
        """Replaces how much may run at once, and for how long, for everything that begins from now on."""
        self.factory.default_timeout = config.default_run_timeout
        self._collection.most = config.artifact_time
        self.launches.use(limit=config.max_attempts_running, artifact_time=config.artifact_time)
        self.queue.use(event_slots=config.event_concurrency)

    def report(self, run_id: str, event: Event) -> None:
        """Takes the launcher's events."""
        self._unread.report(run_id, event)
        self.launches.report(run_id, event)

    async def rights_of(self, step: StepIdentity) -> StepRights:
        """What the definition of a step's run allows its steps."""
        actor = self.active.actor(step.run_id)
        if actor is not None:
            return rights_of(actor.plan.workflow)
        run = await self._store.get_run_page(step.run_id, limit=0)
        plan = None if run is None else await self.plans.plan_of(run)
        return StepRights() if plan is None else rights_of(plan.workflow)

    async def context_of(self, run: Run) -> str:
        """The directory of a run's artifacts."""
        found = await self.plans.of_run(run)
        if found is None:
            return self.launch_builder.files.context(run.id)
        plan, base_dir = found
        return self.launch_builder.context(plan, run.id, base_dir)

    async def close(self) -> None:
        """Stops timers and tasks. Processes go on, and the next daemon recovers what is not saved."""
        self.active.disarm()
        self.waits.close()
        await self._tasks.close()
