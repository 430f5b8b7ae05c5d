"""Which ready steps are launched, and in which order.

Every path to an attempt goes through `launch`: the start of a run, the end of a step, a retry, an iteration.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from heapq import heappop, heappush

from toban.definition import JobType, Step, command_line
from toband.domain import for_each
from toband.domain.attempt_model import CHECK, Attempt, AttemptState
from toband.domain.run_events import (
    BeginWait,
    KeepWaiting,
    LaunchAttempt,
    StartRetryTimer,
)
from toband.domain.run_model import Awaited, Phase, StepRun, StepState
from toband.domain.run_mutation import RunMutation
from toband.domain.run_timers import step_timer


def launch(draft: RunMutation) -> None:
    """Launches ready steps in the order of the definition, within `concurrency` and `max_parallel`."""
    if draft.run.paused_at is not None or draft.run.current_ending is not None:
        return
    turns = draft.index.turns(draft.steps)
    while turns:
        _, name, queue = heappop(turns)
        if not draft.index.has_slot(queue):
            continue
        step = draft.steps[name]
        if step.phase is Phase.GROUP:
            for_each.release(draft, step, queue, _launch_step)
        else:
            _launch_step(draft, step)
        if (after := draft.index.first(queue, draft.steps)) is not None:
            heappush(turns, after)


def _launch_step(draft: RunMutation, step: StepRun) -> None:
    definition = draft.plan.step(step.id)
    started_at = step.started_at or draft.at
    if definition.job_type in (JobType.APPROVAL, JobType.WAIT):
        waits = definition.job_type is JobType.WAIT
        awaited = _awaited_duration(definition, draft.at) if waits else None
        draft.set(
            step.id,
            state=StepState.RUNNING,
            phase=Phase.WAIT if waits else Phase.APPROVAL,
            reason="",
            retrying=False,
            attempts=step.attempts + 1,
            evaluated=True,
            started_at=draft.at,
            awaited=awaited,
        )
        draft.effects += step_timer(definition, draft.steps[step.id])
        if waits:
            draft.effects.append(BeginWait(step=step.id) if awaited is None else KeepWaiting(step=step.id))
        return
    check = step.phase is Phase.CHECK
    name = f"{step.id}{CHECK}" if check else step.id
    iteration = step.iteration + 1 if step.phase is Phase.NEXT else step.iteration or 1
    attempt = Attempt(
        id=draft.ids.new_id(),
        run_id=draft.run.id,
        step=name,
        number=(step.checks if check else step.attempts) + 1,
        ordinal=draft.run.launches,
        token=draft.ids.new_token(),
        state=AttemptState.STARTING,
        created_at=draft.at,
        child=definition.job_type is JobType.WORKFLOW,
        workflow=draft.run.workflow,
        job=definition.job,
        iteration=iteration,
        command=command_line(draft.plan.definition(name)),
        boot_id=draft.ids.boot_id,
    )
    draft.set_run(launches=draft.run.launches + 1)
    draft.set(
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
        # The timer of a loop covers all of its attempts: it is set once, before the first attempt starts.
        draft.effects += step_timer(definition, draft.steps[step.id])
    draft.effects.append(LaunchAttempt(attempt=attempt))


def _awaited_duration(definition: Step, since: datetime) -> Awaited | None:
    """What it waits for, if that can be told without values of the run."""
    duration = definition.wait.duration if definition.wait is not None else None
    return Awaited(until=since + timedelta(seconds=duration)) if isinstance(duration, float | int) else None


def retry_later(draft: RunMutation, name: str, due: datetime, reason: str) -> None:
    """Makes a step ready for its retry; it needs no slot until then."""
    draft.set(name, state=StepState.READY, retrying=True, not_before=due, awaited=None, overdue=None, reason=reason)
    draft.effects.append(StartRetryTimer(step=name, retries=draft.steps[name].retries, due=due))
