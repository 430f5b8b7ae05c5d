"""A run that is being changed by one event: its next values, and the effects so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from toban.limits import cut
from toband.domain import run_texts
from toband.domain.attempt_model import Attempt
from toband.domain.plan import Plan
from toband.domain.run_events import Effect
from toband.domain.run_index import RunIndex
from toband.domain.run_model import Run, SkipReason, StepRun, StepState
from toband.domain.state_table import check_step_move
from toband.domain.step_map import StepEdit, StepMap
from toband.domain.value_copy import Copier

_copy_run, _copy_step, _copy_attempt = Copier(Run), Copier(StepRun), Copier(Attempt)


def _half() -> float:
    return 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """Sources of ids, tokens and randomness: passed in, so that a transition is a pure function."""

    new_id: Callable[[], str]
    new_token: Callable[[], str]
    boot_id: str = ""
    random: Callable[[], float] = _half


class RunMutation:
    """The state that every rule of a transition reads and changes.

    `at` is when the event is handled, `then` when it happened: a daemon that was down hears of it later.
    """

    __slots__ = ("_base", "_before", "_changed", "at", "effects", "ids", "index", "plan", "run", "steps", "then")

    def __init__(self, plan: Plan, run: Run, at: datetime, ids: Ids) -> None:
        self.plan = plan
        self.run = run
        self.at = at
        self.then = at
        self.ids = ids
        self._before = run
        self._base = StepMap.of(run.steps)
        self.steps = StepEdit(self._base)
        self.index = RunIndex.take(plan, self._base)
        self.effects: list[Effect] = []
        self._changed = False

    def result(self) -> tuple[Run, Sequence[Effect]]:
        if not self._changed:
            self._base.index = self.index
            return self._before, ()
        steps = self.steps.done()
        steps.index = self.index
        last = {
            "steps": steps,
            "sequence": self._before.sequence + 1,
            "current_step": self.index.latest(steps),
            "touched": frozenset(self.steps.changes),
        }
        return _copy_run(self.run, last), tuple(self.effects)

    def set(self, name: str, **changes: object) -> None:
        if "reason" in changes:
            changes["reason"] = cut(str(changes["reason"]))
        before = self.steps[name]
        step = _copy_step(before, changes)
        if step.state is not before.state:
            check_step_move(before.state, step.state)
            if not step.parent:
                self._count(before.state, step.state)
        self.steps[name] = step
        self.index.replace(before, step)
        self._changed = True

    def set_attempt(self, attempt: Attempt, **changes: object) -> None:
        if "error" in changes:
            changes["error"] = cut(str(changes["error"]))
        self.set(attempt.owner, attempt=_copy_attempt(attempt, changes))

    def set_run(self, **changes: object) -> None:
        if "error" in changes:
            changes["error"] = cut(str(changes["error"]))
        self.run = _copy_run(self.run, changes)
        self._changed = True

    # -- terminal states of a step

    def skip(self, name: str, reason: SkipReason) -> None:
        self.set(name, skip_reason=reason)
        self.conclude(name, StepState.SKIPPED, at=self.then)

    def cancel(self, name: str) -> None:
        """Ends a step because the run, or its `finally` part, is ending."""
        self.conclude(name, StepState.CANCELLED, run_texts.stopped(self.run), at=self.then)

    def stop_retry(self, name: str, reason: str) -> None:
        """Fails a step whose retry the end of the run prevents, whether it waits for the backoff or for a slot."""
        self.set(name, retry_stopped=True)
        self.conclude(name, StepState.FAILED, reason, at=self.then)

    def conclude(self, name: str, state: StepState, reason: str = "", *, at: datetime) -> None:
        """Gives a step its terminal state."""
        self.set(
            name,
            state=state,
            reason=reason,
            retrying=False,
            not_before=None,
            awaited=None,
            overdue=None,
            finished_at=at,
        )
        parent = self.steps[name].parent
        if parent:
            self.set(parent, ended=self.steps[parent].ended + 1)

    def _count(self, before: StepState, after: StepState) -> None:
        """Counts a step of the definition in its next state."""
        states = Counter(self.run.step_states)
        states[before] -= 1
        states[after] += 1
        self.set_run(
            step_states=dict(+states),
            ended_steps=self.run.ended_steps + after.terminal,
            failed_steps=self.run.failed_steps + (after is StepState.FAILED),
            incomplete_steps=self.run.incomplete_steps + (after is StepState.INCOMPLETE),
        )
