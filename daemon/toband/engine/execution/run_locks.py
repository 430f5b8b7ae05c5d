"""The locks of runs and steps: what each needs beyond what is held above it, and when it holds them no more.

A run holds its locks from its start to its end, and a step from its first process until it ends or waits for a retry.
What a run holds, its steps and child runs do not take again. The locks of a `workflow` step are taken by its child run,
together with those of the child's workflow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from toban.definition.model.lock_order import LockConflict, lock_conflict
from toband.domain.attempt_model import Attempt
from toband.domain.lock_rules import LockLeftover, LockRequest, LockUser, keeps_locks, left_processes, rank_of
from toband.domain.run_model import Run, RunState, StepRun
from toband.engine.execution.lock_table import LockTable
from toband.engine.execution.run_actor import RunActor


class RunLocks:
    """Belongs to the event loop."""

    def __init__(self, table: LockTable, *, boot_id: str, find: Callable[[str], RunActor | None]) -> None:
        """`find` returns the actor of an active run."""
        self.table = table
        self._boot_id = boot_id
        self._find = find

    def held_for(self, actor: RunActor) -> Mapping[str, LockUser]:
        """The locks that a run works under once it has started, each with the run that holds it: it or one above it."""
        held = dict(self._held_above(actor))
        for lock in self._own(actor):
            held.setdefault(lock, LockUser(actor.run.id))
        return held

    def of_run(self, actor: RunActor) -> LockRequest | None:
        """What a run needs before it may start; None: nothing."""
        above = self._held_above(actor)
        needed = [lock for lock in self._own(actor) if lock not in above]
        return self._request(LockUser(actor.run.id), needed, actor.run, None)

    def of_attempt(self, actor: RunActor, attempt: Attempt) -> LockRequest | None:
        """What an attempt needs before its process may start; None: nothing, or its step holds it already."""
        wanted = actor.plan.step(attempt.owner).locks
        if not wanted:
            return None
        user = LockUser(actor.run.id, attempt.owner)
        held = {*self.held_for(actor), *self.table.held_by(user)}
        return self._request(user, [lock for lock in wanted if lock not in held], actor.run, attempt)

    def conflict(self, actor: RunActor, wanted: Collection[str]) -> LockConflict | None:
        """The first of the locks that may not be waited for below a run, because of what that holds."""
        return lock_conflict(self.held_for(actor), wanted) if wanted else None

    def conflict_of_run(self, actor: RunActor) -> LockConflict | None:
        """The same for the locks of a child run that has not started."""
        return lock_conflict(self._held_above(actor), self._own(actor))

    def restore(self, actors: Iterable[RunActor]) -> None:
        """After a restart: what started runs and their steps hold.

        A step whose attempt may not have begun counts as a holder too, until the attempt is looked up.
        """
        for actor in actors:
            if actor.run.state is not RunState.RUNNING:
                continue
            above, held = self._held_above(actor), self.held_for(actor)
            self.table.hold(LockUser(actor.run.id), [lock for lock in self._own(actor) if lock not in above])
            for step in actor.run.steps.values():
                locks = actor.plan.step(step.id).locks
                if locks and keeps_locks(step) and not _has_child(step):
                    self.table.hold(LockUser(actor.run.id, step.id), [lock for lock in locks if lock not in held])

    def settle(self, run: Run) -> None:
        """Frees the locks of the steps that hold them no more, after a saved transition."""
        for name in run.steps if run.touched is None else run.touched:
            user = LockUser(run.id, name)
            if self.table.held_by(user) and not keeps_locks(run.steps[name]):
                self.table.release(user)

    def leftovers(self, actor: RunActor, after: Run) -> tuple[LockLeftover, ...]:
        """The locks that stay held although attempts have just ended, because their processes may still live.

        `actor` has the run as it was before.
        """
        found: list[LockLeftover] = []
        for name in after.steps if after.touched is None else after.touched:
            attempt = after.steps[name].attempt
            if attempt is None or attempt.run_id != after.id or not left_processes(attempt):
                continue
            before = actor.run.steps[name].attempt if name in actor.run.steps else None
            if before is not None and before.id == attempt.id and before.state.terminal:
                continue
            found += self._leftovers_of(actor, attempt)
        return tuple(found)

    def keep(self, leftovers: tuple[LockLeftover, ...]) -> None:
        """They are saved with the end of their attempts."""
        for leftover in leftovers:
            self.table.keep(leftover)

    def _leftovers_of(self, actor: RunActor, attempt: Attempt) -> Iterable[LockLeftover]:
        users = dict(self.held_for(actor))
        for lock in actor.plan.step(attempt.owner).locks:
            users.setdefault(lock, LockUser(attempt.run_id, attempt.owner))
        ending = attempt.ending
        assert ending is not None
        known = ending.orphans is None and len(ending.survivor_pids) == ending.survivors
        for lock, user in users.items():
            yield LockLeftover(
                lock=lock,
                user=user,
                attempt_id=attempt.id,
                run_id=attempt.run_id,
                workflow=actor.run.workflow,
                number=actor.run.number,
                step=attempt.step,
                since=attempt.finished_at or attempt.created_at,
                boot_id=self._boot_id if attempt.boot_id == self._boot_id else "",
                pids=ending.survivor_pids if known else (),
            )

    def _held_above(self, actor: RunActor) -> Mapping[str, LockUser]:
        parent = self._find(actor.run.parent_run) if actor.run.parent_run else None
        return self.held_for(parent) if parent is not None else {}

    def _own(self, actor: RunActor) -> Collection[str]:
        """The locks of its workflow, and of the step whose child it is."""
        parent = self._find(actor.run.parent_run) if actor.run.parent_run else None
        of_step = parent.plan.step(actor.run.parent_step).locks if parent is not None else ()
        return (*actor.plan.workflow.locks, *of_step) if of_step else actor.plan.workflow.locks

    def _request(self, user: LockUser, locks: Collection[str], run: Run, attempt: Attempt | None) -> LockRequest | None:
        if not locks:
            return None
        return LockRequest(user=user, locks=tuple(sorted(set(locks))), rank=rank_of(run, attempt))


def _has_child(step: StepRun) -> bool:
    return step.attempt is not None and step.attempt.child
