"""The timers that a run and its steps need, derived from their state: the same at the start and after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from toban.definition import Step
from toband.domain.plan import Plan
from toband.domain.run_events import Effect, StartFinallyTimer, StartRunTimer, StartStepTimer
from toband.domain.run_model import Phase, Run, StepRun, StepState

LOOP = 0
"""Stands for the attempt number: the timer is for a whole loop."""


def run_timer(plan: Plan, run: Run) -> Sequence[Effect]:
    """The timer of the part that the run is in: the run's timeout does not apply to its `finally` steps."""
    if run.finally_part is not None:
        limit = timedelta(seconds=plan.workflow.finally_timeout)
        return (StartFinallyTimer(due=run.finally_part.began_at + limit),)
    if run.timeout is None or run.started_at is None:
        return ()
    return (StartRunTimer(due=run.started_at + timedelta(seconds=run.timeout)),)


def step_timer(definition: Step, step: StepRun) -> Sequence[Effect]:
    """The timer of a step whose timeout no supervisor enforces: an approval, a wait, a child run, or a loop."""
    if definition.timeout is None or step.started_at is None or step.phase is Phase.GROUP:
        return ()
    limit = timedelta(seconds=definition.timeout)
    if definition.completion_check is not None:
        return (StartStepTimer(step=step.id, attempts=LOOP, due=step.started_at + limit),)
    if step.state is not StepState.RUNNING:
        return ()
    if step.phase in (Phase.APPROVAL, Phase.WAIT):
        due = step.started_at + limit
    elif step.attempt is not None and step.attempt.child and not step.attempt.state.terminal:
        due = step.attempt.created_at + limit
    else:
        return ()
    return (StartStepTimer(step=step.id, attempts=step.attempts, due=due),)
