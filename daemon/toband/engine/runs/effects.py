"""Effects: carries out what a saved transition asks for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, assert_never

import structlog

from toband import failpoints
from toband.backoff import Backoff
from toband.domain.run_events import (
    BeginWait,
    CollectOutputs,
    Effect,
    EvaluateStep,
    EvaluationFailed,
    FinallyTimeoutPassed,
    ForgetRun,
    IterationDue,
    KeepDeadLetter,
    KeepWaiting,
    LaunchAttempt,
    LaunchDue,
    LaunchReady,
    RetryDue,
    RunTimeoutPassed,
    StartFinallyTimer,
    StartIterationTimer,
    StartRetryTimer,
    StartRunTimer,
    StartStepTimer,
    StepEvaluated,
    StepTimeoutPassed,
    StopAttempt,
    StopCollection,
    name_of_type,
)
from toband.engine.execution import step_conditions
from toband.engine.execution.artifact_collection import Collection
from toband.engine.execution.dispatcher import PASSING, Dispatcher
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.engine.execution.launch_spec import LaunchBuilder
from toband.engine.execution.run_actor import RunActor
from toband.engine.execution.run_locks import RunLocks
from toband.engine.execution.run_metadata import RunMetadata
from toband.engine.execution.template_scope import TemplateScope
from toband.engine.health.internal_errors import unexpected
from toband.engine.run_notifier import RunNotifier
from toband.engine.runs.child_runs import ChildRuns
from toband.engine.runs.registry import ActiveRuns
from toband.engine.runs.run_queue import RunQueue
from toband.engine.runs.step_waits import StepWaits
from toband.ports import ArtifactError, StoppedError

log = structlog.get_logger()


class Effects:
    """Belongs to the event loop. After a restart every effect may be repeated."""

    def __init__(
        self,
        *,
        active: ActiveRuns,
        queue: RunQueue,
        locks: RunLocks,
        notifier: RunNotifier,
        launches: Dispatcher,
        launch_builder: LaunchBuilder,
        metadata: RunMetadata,
        children: ChildRuns,
        collection: Collection,
        waits: StepWaits,
        seen: TemplateScope,
        evaluation: ExpressionEvaluator,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._active = active
        self._queue = queue
        self._locks = locks
        self._notifier = notifier
        self._launches = launches
        self._launch_builder = launch_builder
        self._metadata = metadata
        self._children = children
        self._collection = collection
        self._waits = waits
        self._seen = seen
        self._evaluation = evaluation
        self._start = start

    async def saved(self, actor: RunActor, effects: tuple[Effect, ...]) -> None:
        """Called after each saved transition: wakes watchers, writes the run's metadata, carries out the effects."""
        run = actor.run
        self._notifier.notify(run.id, ended=run.state.terminal)
        self._locks.settle(run)
        if not actor.prepared and any(step.source for step in run.steps.values()):
            # The run gets its own copy of results that it keeps before anything else happens.
            # The start of its first process reports the same error.
            with contextlib.suppress(OSError, ArtifactError, StoppedError):
                await self._launches.prepare(actor)
        self.write_metadata(actor)
        await self.carry_out(actor, effects)

    async def carry_out(self, actor: RunActor, effects: tuple[Effect, ...]) -> None:
        """Carries them out in order. An effect that fails is tried again and delays no other."""
        for effect in effects:
            try:
                await self._carry_out(actor, effect)
            except Exception as error:
                self._start(self._repeat(actor, effect, error))

    async def _repeat(self, actor: RunActor, effect: Effect, error: Exception) -> None:
        backoff = Backoff()
        while not actor.run.state.terminal or isinstance(effect, ForgetRun):
            unexpected(f"cannot {name_of_type(type(effect))} of run {actor.run.id}, trying again", error)
            await asyncio.sleep(backoff.pause())
            try:
                await self._carry_out(actor, effect)
            except Exception as again:
                error = again
            else:
                return

    async def _carry_out(self, actor: RunActor, effect: Effect) -> None:
        match effect:
            case LaunchAttempt():
                if effect.attempt.child:
                    self._children.launch(actor, effect.attempt)
                else:
                    await self._launches.launch(actor, effect.attempt)
            case StopAttempt():
                if effect.attempt.child:
                    self._children.stop(effect.attempt)
                else:
                    self._launches.stop(actor, effect.attempt)
            case StartRunTimer():
                actor.arm(effect.due, RunTimeoutPassed())
            case StartFinallyTimer():
                actor.arm(effect.due, FinallyTimeoutPassed())
            case StartRetryTimer():
                failpoints.hit("retry.timer")
                due = RetryDue(step=effect.step, retries=effect.retries)
                actor.arm_step(effect.step, effect.due, due)
            case StartIterationTimer():
                actor.arm_step(effect.step, effect.due, IterationDue(step=effect.step, iteration=effect.iteration))
            case StartStepTimer():
                passed = StepTimeoutPassed(step=effect.step, attempts=effect.attempts)
                actor.arm_step(effect.step, effect.due, passed)
            case EvaluateStep():
                self._start(self._answer(actor, effect.step))
            case BeginWait():
                self._waits.begin(actor, effect.step)
            case KeepWaiting():
                failpoints.hit("wait.begun")
                self._waits.keep(actor, effect.step)
            case CollectOutputs():
                self._collection.begin(actor, effect.attempt, final=effect.final)
            case StopCollection():
                self._collection.stop(actor, effect.attempt)
            case KeepDeadLetter():
                pass  # it was saved with the transition
            case LaunchReady():
                failpoints.hit("launch.ready")
                actor.post(LaunchDue())
            case ForgetRun():
                self._forget(actor)
            case _:
                assert_never(effect)

    def write_metadata(self, actor: RunActor, *, recovering: bool = False) -> None:
        """Of the steps that just ended; when `recovering`, of all ended steps, since a crash may have prevented it."""
        run = actor.run
        if not run.launches:
            return
        try:
            # If the run has no directory that it may write to, its first step reports that.
            with contextlib.suppress(ArtifactError):
                context = self._launch_builder.checked_context(actor.plan, run.id, actor.base_dir)
                if recovering:
                    self._metadata.of_ended(context, actor.plan, run)
                    return
                self._metadata.of_steps(context, actor.plan, run)
                if run.state.terminal:
                    self._metadata.of_run(context, run)
        except Exception as error:
            unexpected(f"cannot write the metadata of run {run.id}", error)

    def _forget(self, actor: RunActor) -> None:
        self._active.remove(actor)
        self._waits.forget(actor.run.id)
        self._queue.leave(actor.run)
        if actor.run.parent_run:
            self._children.ended(actor.run)

    async def _answer(self, actor: RunActor, step: str) -> None:
        """An unexpected error fails the step: its run must not wait for ever."""
        try:
            await self._evaluate(actor, step)
        except Exception as error:
            unexpected(f"cannot evaluate step {step} of run {actor.run.id}", error)
            reason = f"unexpected error: {type(error).__name__}: {error}"
            actor.post(EvaluationFailed(step=step, error=reason))

    async def _evaluate(self, actor: RunActor, step: str) -> None:
        """A passing error of the system is not the step's fault: the evaluation is tried again."""
        backoff = Backoff()
        while True:
            failpoints.hit("step.evaluate")
            try:
                event: StepEvaluated | EvaluationFailed = await step_conditions.settle(
                    actor.plan, actor.run, step, actor.base_dir, self._seen, self._evaluation
                )
            except OSError as error:
                if error.errno in PASSING:
                    log.error(
                        "cannot evaluate a condition, trying again",
                        action="evaluate_failed",
                        run=actor.run.id,
                        step=step,
                        error=str(error),
                    )
                    await asyncio.sleep(backoff.pause())
                    continue
                event = EvaluationFailed(step=step, error=f"cannot read the results of steps: {error}")
            actor.post(event)
            return
