"""Child runs of `workflow` steps: starts and stops them, and reports their ends to the parent run.

A child run has the id of the attempt that it is, so it is created once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from toban.definition import ParamError, RenderError
from toband import failpoints
from toband.backoff import LONGEST_PAUSE
from toband.domain.attempt_model import Attempt
from toband.domain.run_events import CancelRequested, ChildEnded, not_started
from toband.domain.run_model import Run
from toband.engine.errors import EngineError, WorkflowRecursionError
from toband.engine.execution.child_locks import ChildLocks, LockOrderError
from toband.engine.execution.launch_spec import LaunchBuilder, call_params
from toband.engine.execution.run_actor import RunActor
from toband.engine.execution.run_locks import RunLocks
from toband.engine.execution.secret_material import StepSecrets
from toband.engine.runs.intake import RunIntake
from toband.engine.runs.registry import ActiveRuns
from toband.ports import Clock, SealError, Store, StoreError

log = structlog.get_logger()


class ChildRuns:
    def __init__(
        self,
        *,
        active: ActiveRuns,
        intake: RunIntake,
        launch_builder: LaunchBuilder,
        secrets: StepSecrets,
        store: Store,
        locks: RunLocks,
        clock: Clock,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._active = active
        self._intake = intake
        self._launch_builder = launch_builder
        self._secrets = secrets
        self._store = store
        self._locks = locks
        self._clock = clock
        self._start = start
        self._unwanted: set[str] = set()

    def launch(self, actor: RunActor, attempt: Attempt) -> None:
        self._start(self._launch(actor, attempt))

    async def _launch(self, actor: RunActor, attempt: Attempt) -> None:
        target = actor.plan.step(attempt.owner).target
        try:
            self._check_descent(actor, target)
            await self._check_locks(actor, attempt)
            params = call_params(
                await self._launch_builder.rendered(actor.plan, actor.run, attempt, base_dir=actor.base_dir)
            )
            params, secret = await self._secrets.child_params(actor.plan, actor.run, attempt.step, params)
            failpoints.hit("child.make")
            child = await self._intake.start_child(
                target, params, secret=secret, run_id=attempt.id, parent=actor.run, step=attempt.owner
            )
        except (EngineError, LockOrderError, ParamError, RenderError, SealError) as error:
            reason = f"cannot start workflow {target}: {error}"
            actor.post(not_started(attempt, reason, self._clock.now()))
            return
        except (OSError, StoreError) as error:
            # It may be stored all the same: that is looked up later, after a restart at the latest.
            log.error("cannot start a child run", action="child_failed", run=attempt.id, error=str(error))
            await self._look_later(actor, attempt)
            return
        failpoints.hit("child.made")
        if child.state.terminal:
            self._report(actor, attempt, child)
        elif attempt.id in self._unwanted:
            self._cancel(attempt.id)
        self._unwanted.discard(attempt.id)

    def _check_descent(self, actor: RunActor, target: str) -> None:
        """Raises WorkflowRecursionError if the child would be among its own ancestors."""
        names = [actor.run.workflow]
        above = actor.run
        while above.parent_run and (parent := self._active.actor(above.parent_run)):
            above = parent.run
            names.append(above.workflow)
        if target in names:
            path = names[: names.index(target) + 1]
            raise WorkflowRecursionError([*reversed(path), target])

    async def _check_locks(self, actor: RunActor, attempt: Attempt) -> None:
        """Raises LockOrderError if the child could wait for ever: definitions may have changed since they were checked.

        Raises StoreError.
        """
        held = self._locks.held_for(actor)
        if held:
            workflow, step = actor.plan.workflow, actor.plan.step(attempt.owner)
            locks = ChildLocks(self._store, {}, self._active.definitions_of)
            if problem := await locks.problem_below(workflow, step, held.keys()):
                raise LockOrderError(problem)

    async def _look_later(self, actor: RunActor, attempt: Attempt) -> None:
        """Tries again until the database answers."""
        await asyncio.sleep(LONGEST_PAUSE)
        current = actor.run.steps[attempt.owner].attempt
        if current is not None and current.id == attempt.id and not current.state.terminal:
            self.launch(actor, current)

    def stop(self, attempt: Attempt) -> None:
        """Cancels the child, or cancels it as soon as it is created. Repeating it is harmless."""
        if self._active.actor(attempt.id) is None:
            self._unwanted.add(attempt.id)
        self._cancel(attempt.id)

    def _cancel(self, run_id: str) -> None:
        child = self._active.actor(run_id)
        if child is not None:
            child.post(CancelRequested(reason="its parent run stopped it"))

    async def recover(self, actor: RunActor, attempt: Attempt) -> None:
        """After a restart: creates the child if that was not done, or reports its end. Raises StoreError."""
        child = await self._store.get_run_page(attempt.id, limit=0)
        if child is None:
            self.launch(actor, attempt)
        elif child.state.terminal:
            self._report(actor, attempt, child)
            return
        if actor.run.current_ending is not None or attempt.error:
            self.stop(attempt)

    def ended(self, child: Run) -> None:
        """Reports the end of a child to its parent, if that still waits for it."""
        parent = self._active.actor(child.parent_run)
        step = parent.run.steps.get(child.parent_step) if parent is not None else None
        attempt = step.attempt if step is not None else None
        if parent is not None and attempt is not None and attempt.id == child.id:
            failpoints.hit("child.ended")
            self._report(parent, attempt, child)

    def _report(self, actor: RunActor, attempt: Attempt, child: Run) -> None:
        self._unwanted.discard(attempt.id)
        actor.post(
            ChildEnded(
                step=attempt.step,
                token=attempt.token,
                state=child.state,
                error=child.error,
                number=child.number,
                started_at=child.started_at,
                finished_at=child.finished_at or self._clock.now(),
            )
        )
