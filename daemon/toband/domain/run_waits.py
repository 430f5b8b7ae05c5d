"""The reasons why runs and steps wait."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from toband.domain import overlap
from toband.domain.plan import Plan
from toband.domain.run_index import moving
from toband.domain.run_model import Awaited, Phase, Run, RunState, StepRun, StepState


class WaitingFor(StrEnum):
    START = "START"
    """A PENDING run is about to start."""
    QUEUE = "QUEUE"
    EVENT_SLOT = "EVENT_SLOT"
    """A slot for runs of events."""
    PROCESSES = "PROCESSES"
    """The run is ending, and its processes have not ended."""
    RESUME = "RESUME"
    SLOT = "SLOT"
    BACKOFF = "BACKOFF"
    APPROVAL = "APPROVAL"
    INTERVAL = "INTERVAL"
    """The time between two iterations of a loop."""
    LOCK = "LOCK"
    TIME = "TIME"
    EVENT = "EVENT"
    FILE = "FILE"


def run_waits_for(run: Run, plan: Plan | None) -> WaitingFor | None:
    """The reason why the whole run makes no progress, regardless of its steps."""
    if run.state is RunState.PENDING:
        queued = overlap.may_queue(plan.workflow if plan is not None else None, run)
        return WaitingFor.QUEUE if queued else WaitingFor.START
    if run.state is not RunState.RUNNING:
        return None
    if run.current_ending is not None:
        return WaitingFor.PROCESSES
    return WaitingFor.RESUME if run.paused_at is not None else None


def step_waits_for(step: StepRun, *, paused: bool) -> WaitingFor | None:
    """The reason why a step waits. Waiting for other steps to end is none: `depends_on` covers that."""
    if step.state is StepState.RUNNING and step.phase is Phase.APPROVAL:
        return WaitingFor.APPROVAL
    if step.awaited is not None:
        return _awaits(step.awaited)
    if step.state is not StepState.READY:
        return None
    if step.not_before is not None:
        return WaitingFor.INTERVAL if step.phase is Phase.NEXT else WaitingFor.BACKOFF
    return WaitingFor.RESUME if paused else WaitingFor.SLOT


def steps_wait_for(run: Run) -> tuple[WaitingFor, Sequence[str]] | None:
    """What the first step waits for, and the ids of all steps that wait, if no step that has started makes progress."""
    begun = sorted((run.steps[name] for name in moving(run.steps)), key=lambda step: step.position)
    waiting: list[str] = []
    first: WaitingFor | None = None
    for step in begun:
        if step.phase is Phase.GROUP:
            continue  # its instances wait
        reason = step_waits_for(step, paused=run.paused_at is not None)
        if reason is None:
            return None
        first = first or reason
        waiting.append(step.id)
    return None if first is None else (first, waiting)


def _awaits(awaited: Awaited) -> WaitingFor:
    if awaited.until is not None:
        return WaitingFor.TIME
    return WaitingFor.EVENT if awaited.events else WaitingFor.FILE
