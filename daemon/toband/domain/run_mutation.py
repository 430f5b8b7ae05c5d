"""A run being changed: what every event has in common, whatever it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import heappop, heappush

from toban.definition import FailurePolicy, JobType, Step, command_line
from toban.limits import cut
from toband.domain import run_texts
from toband.domain.plan import Plan
from toband.domain.retry_policy import ends_badly
from toband.domain.run_events import (
    Effect,
    EvaluateStep,
    ForgetRun,
    LaunchAttempt,
    StartRetryTimer,
    StopAttempt,
    StopCollection,
)
from toband.domain.run_index import Queue, RunIndex
from toband.domain.run_model import (
    CHECK,
    Attempt,
    AttemptState,
    Ending,
    EndingCause,
    ErrorClass,
    Phase,
    Run,
    RunState,
    SkipReason,
    StepRun,
    StepState,
)
from toband.domain.run_timers import step_timer
from toband.domain.step_map import StepEdit, StepMap

_FINAL = {
    EndingCause.ABORTED: RunState.FAILED,
    EndingCause.CANCELLED: RunState.CANCELLED,
    EndingCause.TIMED_OUT: RunState.TIMED_OUT,
}
_SATISFIED = frozenset({StepState.SUCCEEDED, StepState.INCOMPLETE})


def _half() -> float:
    return 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """Where new names and chance come from: passed in, so that a transition stays a function."""

    new_id: Callable[[], str]
    new_token: Callable[[], str]
    boot_id: str = ""
    random: Callable[[], float] = _half


class Draft:
    """One transition being worked out: the run as it will be, and the effects so far."""

    def __init__(self, plan: Plan, run: Run, at: datetime, ids: Ids) -> None:
        self._plan = plan
        self._before = run
        self._run = run
        self._at = at
        # When it happened; a daemon that was down hears of it later.
        self._then = at
        self._ids = ids
        self._base = StepMap.of(run.steps)
        self._steps = StepEdit(self._base)
        self._index = RunIndex.take(plan, self._base)
        self._effects: list[Effect] = []
        self._changed = False

    def result(self) -> tuple[Run, Sequence[Effect]]:
        if not self._changed:
            self._base.index = self._index
            return self._before, ()
        self._close()
        steps = self._steps.done()
        steps.index = self._index
        done = replace(
            self._run,
            steps=steps,
            sequence=self._before.sequence + 1,
            current_step=self._index.latest(steps),
            touched=frozenset(self._steps.changes),
        )
        return done, tuple(self._effects)

    # -- what waits

    def _settle(self, waiting: Sequence[str]) -> None:
        """Looks at steps that wait for others: they become ready, or are skipped with all that wait for them."""
        left = list(waiting)
        while left:
            step = self._steps[left.pop()]
            if step.state is not StepState.PENDING:
                continue
            needed = self._plan.steps[step.id].depends_on
            if any(self._blocks(self._steps[name]) for name in needed):
                self._skip(step.id, SkipReason.UPSTREAM)
                left += self._plan.dependents[step.id]
            elif all(self._satisfies(self._steps[name]) for name in needed):
                self._make_ready(step.id)

    def _satisfies(self, step: StepRun) -> bool:
        match step.state:
            case StepState.SKIPPED:
                return step.skip_reason is not None and step.skip_reason.satisfies
            case StepState.FAILED:
                return not ends_badly(self._plan.steps[step.id], step)
            case _:
                return step.state in _SATISFIED

    def _blocks(self, step: StepRun) -> bool:
        return step.state.terminal and not self._satisfies(step)

    def _make_ready(self, name: str) -> None:
        step = self._plan.steps[name]
        unsettled = bool(step.when) or step.for_each is not None
        self._set(name, state=StepState.READY, evaluated=not unsettled)
        if unsettled:
            self._effects.append(EvaluateStep(step=name))

    def _advance(self, name: str) -> None:
        """A step is over: those that wait for it are looked at, and its place is free."""
        if self._run.ending is None:
            # From the last to the first, because that is the order in which they are taken.
            self._settle(self._plan.dependents[name][::-1])
            self._launch()

    # -- starting

    def _launch(self) -> None:
        """Starts ready steps in the order of the definition, as far as `concurrency` and `max_parallel` allow."""
        if self._run.paused_at is not None or self._run.ending is not None:
            return
        turns = self._index.turns(self._steps)
        while turns:
            _, name, queue = heappop(turns)
            if not self._index.has_slot(queue):
                continue
            step = self._steps[name]
            if step.phase is Phase.GROUP:
                self._release(step, queue)
            else:
                self._launch_step(step)
            if (after := self._index.first(queue, self._steps)) is not None:
                heappush(turns, after)

    def _release(self, group: StepRun, queue: Queue) -> None:
        """Launches as many instances as have slots."""
        released = group.released
        while released < group.instances and self._index.has_slot(queue):
            self._launch_step(self._steps[f"{group.id}[{released}]"])
            released += 1
        self._set(group.id, released=released)

    def _launch_step(self, step: StepRun) -> None:
        definition = self._plan.step(step.id)
        started_at = step.started_at or self._at
        if _is_approval(definition):
            self._set(
                step.id,
                state=StepState.RUNNING,
                phase=Phase.APPROVAL,
                reason="",
                retrying=False,
                attempts=step.attempts + 1,
                evaluated=True,
                started_at=self._at,
            )
            self._effects += step_timer(definition, self._steps[step.id])
            return
        check = step.phase is Phase.CHECK
        name = f"{step.id}{CHECK}" if check else step.id
        iteration = step.iteration + 1 if step.phase is Phase.NEXT else step.iteration or 1
        attempt = Attempt(
            id=self._ids.new_id(),
            run_id=self._run.id,
            step=name,
            number=(step.checks if check else step.attempts) + 1,
            ordinal=self._run.launches,
            token=self._ids.new_token(),
            state=AttemptState.STARTING,
            created_at=self._at,
            child=definition.job_type is JobType.WORKFLOW,
            job=definition.job,
            iteration=iteration,
            command=command_line(self._plan.definition(name)),
            boot_id=self._ids.boot_id,
        )
        self._set_run(launches=self._run.launches + 1)
        self._set(
            step.id,
            state=StepState.CHECKING if check else StepState.RUNNING,
            phase=Phase.CHECK if check else Phase.RUN,
            reason="",
            retrying=False,
            evaluated=True,
            iteration=iteration,
            attempt=attempt,
            started_at=started_at,
            **{"checks" if check else "attempts": attempt.number},
        )
        if attempt.child or step.started_at is None:
            # A loop's timer is of all of its attempts, so it is set with the first, and before that starts.
            self._effects += step_timer(definition, self._steps[step.id])
        self._effects.append(LaunchAttempt(attempt=attempt))

    def _again(self, name: str, due: datetime, reason: str) -> None:
        """The step is tried again then; until then it has no place."""
        self._set(name, state=StepState.READY, retrying=True, not_before=due, overdue=None, reason=reason)
        self._effects.append(StartRetryTimer(step=name, retries=self._steps[name].retries, due=due))

    # -- ending

    def _over(self, name: str) -> None:
        """A step or an instance is over: whoever waits for it goes on."""
        parent = self._steps[name].parent
        if not parent:
            self._advance(name)
        elif not self._close_group(parent):
            self._launch()

    def _close_group(self, name: str) -> bool:
        """Ends a step when the last of its instances has ended; whether it has."""
        group = self._steps[name]
        if group.state.terminal or group.ended < group.instances:
            return group.state.terminal
        members = [self._steps[f"{name}[{number}]"] for number in range(group.instances)]
        failed = [member for member in members if member.state is StepState.FAILED]
        states = {member.state for member in members}
        reason, error_class = "", None
        if failed:
            state = StepState.FAILED
            bad = next((m for m in failed if ends_badly(self._plan.step(name), m)), failed[0])
            fatal = any(member.error_class is ErrorClass.FATAL for member in failed)
            error_class = ErrorClass.FATAL if fatal else bad.error_class
            reason = run_texts.instances_failed(bad, len(failed), group.instances)
        elif states & {StepState.CANCELLED, StepState.SKIPPED}:
            state = StepState.CANCELLED
            reason = next((m.reason for m in members if m.state is StepState.CANCELLED), "")
            if not reason and self._run.ending is not None:
                reason = run_texts.stopped(self._run.ending.cause)
        elif StepState.INCOMPLETE in states:
            state = StepState.INCOMPLETE
        else:
            state = StepState.SUCCEEDED
        ends = [member.finished_at for member in members if member.finished_at is not None]
        self._set(name, attempts=sum(m.attempts for m in members), error_class=error_class)
        self._conclude(name, state, reason, at=max(ends, default=self._then))
        self._advance(name)
        return True

    def _end(self, cause: EndingCause, error: str) -> None:
        """Fixes the final state, unless an earlier cause did; stops what runs and skips what waits."""
        if self._run.ending is not None:
            return
        self._set_run(ending=Ending(cause=cause, at=self._then), error=error)
        for step in self._steps.values():
            if not step.state.terminal:
                self._end_step(step, cause)
        for name in list(self._index.moving):
            if self._steps[name].phase is Phase.GROUP:
                self._close_group(name)

    def _end_step(self, step: StepRun, cause: EndingCause) -> None:
        live = step.attempt is not None and not step.attempt.state.terminal
        if live:
            assert step.attempt is not None
            self._effects.append(StopAttempt(attempt=step.attempt))
        elif step.phase is Phase.APPROVAL and step.state is StepState.RUNNING:
            self._cancel(step.id)
        elif step.phase is Phase.COLLECT:
            assert step.attempt is not None
            self._effects.append(StopCollection(attempt=step.attempt))
        elif step.phase is Phase.GROUP:
            return  # its instances are stopped
        elif step.retrying:
            self._stop_retry(step.id, step.reason)
        elif step.attempts:
            self._cancel(step.id)
        else:
            self._skip(step.id, cause.skip_reason)

    def _skip(self, name: str, reason: SkipReason) -> None:
        self._set(name, skip_reason=reason)
        self._conclude(name, StepState.SKIPPED, at=self._then)

    def _cancel(self, name: str) -> None:
        """Ends a step because the run is ending."""
        assert self._run.ending is not None
        self._conclude(name, StepState.CANCELLED, run_texts.stopped(self._run.ending.cause), at=self._then)

    def _stop_retry(self, name: str, reason: str) -> None:
        """Fails a step whose retry the end of the run prevents, whether it waits for the backoff or for a slot."""
        self._set(name, retry_stopped=True)
        self._conclude(name, StepState.FAILED, reason, at=self._then)

    def _conclude(self, name: str, state: StepState, reason: str = "", *, at: datetime) -> None:
        """A terminal state, counted."""
        self._set(name, state=state, reason=reason, retrying=False, not_before=None, overdue=None, finished_at=at)
        parent = self._steps[name].parent
        if parent:
            self._set(parent, ended=self._steps[parent].ended + 1)
            return
        self._set_run(
            ended_steps=self._run.ended_steps + 1,
            failed_steps=self._run.failed_steps + (state is StepState.FAILED),
            incomplete_steps=self._run.incomplete_steps + (state is StepState.INCOMPLETE),
        )

    def _close(self) -> None:
        """Ends the run when its last step has ended."""
        if self._run.ended_steps < self._run.total_steps or self._run.state.terminal:
            return
        if self._run.state is RunState.PENDING and self._run.ending is None:
            return  # everything was over before it began
        ending = self._run.ending
        late = (EndingCause.CANCELLED, EndingCause.TIMED_OUT)
        if ending is not None and ending.cause in late and not self._stopped_any(ending.cause):
            # It came too late to stop anything: the results stand.
            ending = None
            self._set_run(ending=None, error="")
        bad = [s for s in self._steps.values() if not s.parent and self._is_bad(s)]
        state = RunState.SUCCEEDED
        if ending is not None:
            state = _FINAL[ending.cause]
        elif bad:
            state = RunState.FAILED
            first = min(bad, key=lambda s: s.finished_at or self._at)
            self._set_run(error=run_texts.step_failed(first.id, first.reason))
            if self._plan.steps[first.id].final_policy is FailurePolicy.ABORT:
                at = first.finished_at or self._at
                self._set_run(ending=Ending(cause=EndingCause.ABORTED, at=at))
        # The run was over when its last step was, whenever that became known.
        ends = [step.finished_at for step in self._steps.values() if step.finished_at is not None]
        finished_at = max(ends, default=self._at)
        if self._run.started_at is not None:
            finished_at = max(finished_at, self._run.started_at)
        self._set_run(state=state, finished_at=finished_at)
        self._effects.append(ForgetRun())

    def _is_bad(self, step: StepRun) -> bool:
        return ends_badly(self._plan.steps[step.id], step)

    def _stopped_any(self, cause: EndingCause) -> bool:
        skipped = cause.skip_reason
        return any(
            step.state is StepState.CANCELLED or step.skip_reason is skipped or step.retry_stopped
            for step in self._steps.values()
        )

    # -- bookkeeping

    def _set(self, name: str, **changes: object) -> None:
        if "reason" in changes:
            changes["reason"] = cut(str(changes["reason"]))
        before = self._steps[name]
        step = replace(before, **changes)  # type: ignore[arg-type]
        self._steps[name] = step
        self._index.replace(before, step)
        self._changed = True

    def _set_attempt(self, attempt: Attempt, **changes: object) -> None:
        if "error" in changes:
            changes["error"] = cut(str(changes["error"]))
        self._set(attempt.owner, attempt=replace(attempt, **changes))  # type: ignore[arg-type]

    def _set_run(self, **changes: object) -> None:
        if "error" in changes:
            changes["error"] = cut(str(changes["error"]))
        self._run = replace(self._run, **changes)  # type: ignore[arg-type]
        self._changed = True


def _is_approval(definition: Step) -> bool:
    return definition.job_type is JobType.APPROVAL
