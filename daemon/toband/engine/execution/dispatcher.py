"""Dispatches saved launches to processes: assigns slots in order, and retries when the system cannot start a process.

At most `limit` attempts run at once. Waiting attempts are ordered by the priority of their run, then by age. One that
needs locks waits for all of them first, then for a slot, and takes both at once. An attempt
that waits here has certainly not begun: it can be withdrawn and leaves no trace except in the database.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

import structlog

from toban.definition import CostlyError, Rendered, RenderError, format_duration
from toban.limits import MAX_ERROR_CHARS
from toband import failpoints
from toband.backoff import Backoff
from toband.domain import run_texts
from toband.domain.attempt_model import CHECK, Attempt
from toband.domain.fair_queue import FairQueue
from toband.domain.lock_rules import LockUser
from toband.domain.retry_policy import OWN_OUTPUTS
from toband.domain.run_events import AttemptEnded, AttemptLost, AttemptVoided, Event, not_started
from toband.domain.secret_params import shown_params
from toband.engine.bounded_work import bounded
from toband.engine.execution.artifact_flow import ArtifactFlow
from toband.engine.execution.launch_spec import LaunchBuilder, TimeLeft
from toband.engine.execution.run_actor import RunActor
from toband.engine.execution.run_locks import RunLocks
from toband.engine.execution.run_metadata import RunMetadata
from toband.engine.execution.secret_material import StepSecrets, has_secrets
from toband.engine.execution.step_maskers import StepMaskers
from toband.ports import (
    ArtifactError,
    Clock,
    Conditions,
    HealthStatus,
    Launcher,
    SealError,
    SecretError,
    SecretMaterial,
    SecretUnavailableError,
    StoppedError,
    StoreError,
    StoreTakenOverError,
    Values,
)

CONDITION = "launch"
VALUES_IN_DATABASE = 64 * 1024
"""Bytes of a step's result and outputs, as JSON, beyond which they are stored in a file."""
FRESH = timedelta(milliseconds=100)
"""An attempt saved longer ago starts only after a look at the owner: this daemon may have been stopped and replaced.

This makes the window small, it does not close it: a daemon that has already started may take over within this time."""
# The system lacks a resource, or its disk fails: both are transient, and not the step's fault.
PASSING = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
    )
)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Waiting:
    actor: RunActor
    attempt: Attempt


class Dispatcher:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        launcher: Launcher,
        launch_builder: LaunchBuilder,
        artifact_flow: ArtifactFlow,
        metadata: RunMetadata,
        values: Values,
        secrets: StepSecrets,
        maskers: StepMaskers,
        clock: Clock,
        conditions: Conditions,
        locks: RunLocks,
        check_owner: Callable[[], Awaitable[None]],
        limit: int,
        artifact_time: float = 3600.0,
        find: Callable[[str], RunActor | None],
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`find` returns the actor of an active run."""
        self._launcher = launcher
        self._launch_builder = launch_builder
        self._artifact_flow = artifact_flow
        self._metadata = metadata
        self._values = values
        self._secrets = secrets
        self._maskers = maskers
        self._clock = clock
        self._conditions = conditions
        self._check_owner = check_owner
        self._find = find
        self._start = start
        self._artifact_time = artifact_time
        self.limit = limit
        self._holding = False
        self._placed: set[str] = set()
        self._queue: FairQueue[_Waiting] = FairQueue()
        # They have a slot, and the launcher does not know them yet; the event is set when one is withdrawn.
        self._in_hand: dict[str, asyncio.Event] = {}
        self._troubled: set[str] = set()
        self._locks = locks
        self._locked: dict[LockUser, _Waiting] = {}
        """Attempts that wait for locks, and need a slot only then."""
        locks.table.listen(self._locks_freed)

    def use(self, *, limit: int, artifact_time: float) -> None:
        """Replaces the limits. With a lower `limit`, attempts that run continue, and none starts until it is met."""
        self.limit = limit
        self._artifact_time = artifact_time
        self._fill()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def waits(self, token: str) -> bool:
        """Whether the attempt waits for a slot."""
        return token in self._queue

    def hold(self) -> None:
        """Starts no attempt until `release`: all of them wait for a slot."""
        self._holding = True

    def release(self) -> None:
        self._holding = False
        self._fill()

    async def launch(self, actor: RunActor, attempt: Attempt) -> None:
        """Starts it now if a slot and its locks are free, else when they are and no attempt is before it."""
        waiting = _Waiting(actor, attempt)
        conflict = self._locks.conflict(actor, actor.plan.step(attempt.owner).locks)
        if conflict is not None:
            actor.post(not_started(attempt, run_texts.lock_conflict(conflict), self._clock.now()))
            return
        request = self._locks.of_attempt(actor, attempt)
        if request is not None and not self._locks.table.ask(request):
            self._locked[request.user] = waiting
        elif len(self._placed) < self.limit and not self._queue and not self._holding:
            self._give_place(attempt)
            if _has_inputs(actor, attempt) or has_secrets(actor.plan, attempt.step):
                # Getting them may take long, and the run handles no other event while it waits here.
                self._start(self._hand_over(waiting))
            else:
                await self._hand_over(waiting)
        else:
            self._queue.push(attempt, waiting, priority=actor.run.priority)

    def stop(self, actor: RunActor, attempt: Attempt) -> None:
        """Ends an attempt; one that was not handed over is voided at once. Repeating it is harmless."""
        user = _user(attempt)
        locked = self._locked.pop(user, None) is not None
        waited = self._queue.remove(attempt.token) or locked
        self._locks.table.withdraw(user)
        in_hand = self._in_hand.pop(attempt.token, None)
        if waited or in_hand is not None:
            if in_hand is not None:
                in_hand.set()
            self.over(attempt.token)
            actor.post(AttemptVoided(step=attempt.step, token=attempt.token))
        else:
            self._launcher.stop(attempt)

    def attached(self, attempt: Attempt) -> None:
        """It was found running after a restart: it gets a slot, even if others wait."""
        self._placed.add(attempt.token)

    def over(self, token: str) -> None:
        """It has ended, or will never begin: the next attempt gets its slot."""
        self._placed.discard(token)
        self._fill()

    def _fill(self) -> None:
        while not self._holding and len(self._placed) < self.limit and (waiting := self._queue.pop()) is not None:
            user = _user(waiting.attempt)
            if self._locks.table.asks(user) and not self._locks.table.ready(user):
                # While it waited for a slot, a run or an attempt of a higher priority took its locks.
                self._locked[user] = waiting
                continue
            self._give_place(waiting.attempt)
            self._start(self._hand_over_late(waiting))

    def _locks_freed(self, ready: Collection[LockUser]) -> None:
        for user in ready:
            if (waiting := self._locked.pop(user, None)) is not None:
                self._queue.push(waiting.attempt, waiting, priority=waiting.actor.run.priority)
        self._fill()

    def _give_place(self, attempt: Attempt) -> None:
        """Takes a slot and the locks that it asked for, at once."""
        if self._locks.table.asks(user := _user(attempt)):
            self._locks.table.take(user)
        self._placed.add(attempt.token)
        self._in_hand[attempt.token] = asyncio.Event()

    async def _hand_over_late(self, waiting: _Waiting) -> None:
        """Another daemon may have taken over the store during the wait: then nothing is launched here any more."""
        if await self._owns():
            await self._hand_over(waiting)

    async def _owns(self) -> bool:
        try:
            await self._check_owner()
        except StoreTakenOverError:
            return False
        except StoreError:
            pass  # the attempt was committed; the database's current state matters to its writers only
        return True

    async def _hand_over(self, waiting: _Waiting, *, cheap_only: bool = True) -> None:
        """Hands it over without making the caller wait: transient errors are retried in the background.

        Slow expressions are evaluated there too: the run has other steps, and may be cancelled.
        """
        try:
            error = await self._tried(waiting, cheap_only=cheap_only)
        except CostlyError:
            self._start(self._hand_over(waiting, cheap_only=False))
            return
        if error is not None:
            self._troubled.add(waiting.attempt.token)
            self._start(self._again(waiting, error))

    async def _again(self, waiting: _Waiting, error: OSError | None) -> None:
        token = waiting.attempt.token
        backoff = Backoff()
        while error is not None and token in self._in_hand:
            count = len(self._troubled)
            reason = f"cannot start steps: {error.strerror or error}; {count} wait for it to pass"
            self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, reason)
            await asyncio.sleep(backoff.pause())
            if token in self._in_hand:
                error = await self._tried(waiting)
        self._troubled.discard(token)
        if not self._troubled:
            self._conditions.well(CONDITION)

    async def _tried(self, waiting: _Waiting, *, cheap_only: bool = False) -> OSError | None:
        """Hands it to the launcher, or reports why that is impossible; returns a transient error.

        Raises CostlyError with `cheap_only`.
        """
        actor, attempt = waiting.actor, waiting.attempt
        try:
            await self._try(actor, attempt, cheap_only=cheap_only)
        except CostlyError:
            raise
        except StoppedError:
            pass  # it was withdrawn, or the daemon is stopping
        except SecretUnavailableError as error:
            self._failed(actor, attempt, str(error), transient=True)
        except (RenderError, ArtifactError, SecretError, SealError) as error:
            self._failed(actor, attempt, str(error))
        except Exception as error:
            if isinstance(error, OSError) and error.errno in PASSING:
                return error
            # Whatever the error is, the run must not wait for a process that is never started.
            if not isinstance(error, OSError):
                log.error("cannot launch", action="launch_failed", run=attempt.run_id, exc_info=error)
            self._failed(actor, attempt, f"cannot prepare the step: {error}")
        return None

    async def prepare(self, actor: RunActor) -> None:
        """Creates the run's files on disk, with the artifacts that it takes from other runs. Repeating it is harmless.

        One preparation per run at a time: siblings that start together wait for each other. Raises ArtifactError,
        OSError.
        """
        async with actor.preparing:
            if actor.prepared:
                return
            plan, run, base_dir = actor.plan, actor.run, actor.base_dir
            try:
                await self._launcher.prepare(run.id, shown_params(run.params), run.event)
            except FileNotFoundError as error:
                # An earlier preparation did not finish, or a step removed the directory: the next one creates it again.
                raise OSError(errno.EAGAIN, str(error)) from None
            context = self._launch_builder.checked_context(plan, run.id, base_dir)
            await self._artifact_flow.take_over(plan, run, base_dir=base_dir)
            self._metadata.of_run(context, run)
            self._metadata.of_ended(context, plan, run)
            actor.prepared = True
            failpoints.hit("run.prepared")

    async def _try(self, actor: RunActor, attempt: Attempt, *, cheap_only: bool) -> None:
        plan, run, base_dir = actor.plan, actor.run, actor.base_dir
        await self.prepare(actor)
        step = plan.step(attempt.owner)
        rendered = await self._launch_builder.rendered(plan, run, attempt, base_dir=base_dir, cheap_only=cheap_only)
        fresh = timedelta(0) <= self._clock.now() - attempt.created_at <= FRESH
        if not (cheap_only and fresh) and not await self._owns():
            raise StoppedError
        if _has_inputs(actor, attempt):
            await self._lay_out(actor, attempt, rendered)
            failpoints.hit("inputs.laid_out")
        secrets = await self._secrets_of(actor, attempt, rendered)
        if attempt.token not in self._in_hand:
            return  # withdrawn meanwhile
        loop = actor.step_time_left(attempt.owner) if step.completion_check is not None else None
        left = TimeLeft(run=actor.time_left(), loop=loop)
        launch = self._launch_builder.build(plan, run, attempt, rendered, base_dir=base_dir, left=left, secrets=secrets)
        self._launcher.launch(launch)
        self._in_hand.pop(attempt.token, None)

    async def _secrets_of(self, actor: RunActor, attempt: Attempt, rendered: Rendered) -> SecretMaterial | None:
        """Stops when the attempt is withdrawn. Raises StoppedError, RenderError, SecretError, SealError."""
        stop = self._in_hand.get(attempt.token)
        if stop is None or not has_secrets(actor.plan, attempt.step):
            return None
        work = self._secrets.material(actor.plan, actor.run, attempt.step, rendered)
        seconds = actor.plan.step(attempt.owner).timeout or self._artifact_time
        try:
            material = await bounded(work, seconds=seconds, stop=stop)
        except TimeoutError:
            raise RenderError(f"cannot read its secrets within {format_duration(seconds)}") from None
        failpoints.hit("secrets.revealed")
        if not await self._owns():
            raise StoppedError
        if material is not None:
            self._maskers.keep(attempt, material.masked)
        return material

    async def _lay_out(self, actor: RunActor, attempt: Attempt, rendered: Rendered) -> None:
        """Stops at the step's timeout, or when it is withdrawn. Raises StoppedError, ArtifactError, OSError."""
        plan, run, base_dir = actor.plan, actor.run, actor.base_dir
        stop = self._in_hand.get(attempt.token)
        if stop is None:
            return
        workspace = self._launch_builder.workspace(run, rendered, base_dir)
        seconds = plan.step(attempt.owner).timeout or self._artifact_time
        work = self._artifact_flow.lay_out(plan, run, attempt, base_dir=base_dir, workspace=workspace)
        try:
            await bounded(work, seconds=seconds, stop=stop)
        except TimeoutError:
            limit = format_duration(seconds)
            raise ArtifactError(f"cannot lay out its inputs within {limit}") from None
        if not await self._owns():
            raise StoppedError

    def _failed(self, actor: RunActor, attempt: Attempt, reason: str, *, transient: bool = False) -> None:
        if self._in_hand.pop(attempt.token, None) is not None:
            self.over(attempt.token)
            actor.post(not_started(attempt, reason, self._clock.now(), transient=transient))

    # -- results

    def report(self, run_id: str, event: Event) -> None:
        """Passes the launcher's events on to the run; large results are saved to a file first."""
        if isinstance(event, AttemptVoided):
            # It waits for its locks again when it is launched again.
            self._locks.table.release(LockUser(run_id, event.step.removesuffix(CHECK)))
        if isinstance(event, AttemptEnded | AttemptLost | AttemptVoided):
            self.over(event.token)
        actor = self._find(run_id)
        if actor is None:
            return
        if (
            isinstance(event, AttemptEnded | AttemptLost | AttemptVoided)
            and not actor.plan.step(event.step.removesuffix(CHECK)).outputs
        ):
            self._maskers.drop(event.token)
        if isinstance(event, AttemptEnded) and _size(event) > VALUES_IN_DATABASE:
            self._start(self._report_large(actor, event))
        elif isinstance(event, AttemptEnded | AttemptLost):
            actor.post(event, partial(self._launcher.settle, event.token))
        else:
            actor.post(event)

    async def _report_large(self, actor: RunActor, event: AttemptEnded) -> None:
        owner = actor.run.steps[event.step.removesuffix(CHECK)]
        attempt = owner.attempt
        if attempt is None or attempt.token != event.token:
            return
        size, backoff = 0, Backoff()
        while not size:
            try:
                spill = self._values.spill
                size = await asyncio.to_thread(spill, attempt, event.result, event.outputs)
            except OSError as error:
                log.error(
                    "cannot keep what a step left, trying again",
                    action="spill_failed",
                    run=attempt.run_id,
                    step=attempt.step,
                    error=str(error),
                )
                await asyncio.sleep(backoff.pause())
        failpoints.hit("values.spilled")
        # Outputs that the engine itself reads stay in the event.
        own = {name: text[:MAX_ERROR_CHARS] for name, text in event.outputs.items() if name in OWN_OUTPUTS}
        settle = partial(self._launcher.settle, event.token)
        actor.post(replace(event, result=None, outputs=own, spilled=size), settle)


def _user(attempt: Attempt) -> LockUser:
    return LockUser(attempt.run_id, attempt.owner)


def _has_inputs(actor: RunActor, attempt: Attempt) -> bool:
    return bool(actor.plan.step(attempt.owner).inputs) and not attempt.check


def _size(event: AttemptEnded) -> int:
    """The approximate size of its result and outputs as JSON."""
    size = sum(len(name) + len(text) for name, text in event.outputs.items())
    return size if event.result is None else size + len(json.dumps(event.result))
