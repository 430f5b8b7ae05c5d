"""`for_each`: a step becomes instances, one per item; the step ends when all of them have ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban.definition import ErrorClass
from toband.domain import run_texts
from toband.domain.retry_policy import ends_badly
from toband.domain.run_index import Queue
from toband.domain.run_model import Phase, StepRun, StepState
from toband.domain.run_mutation import RunMutation

_STOPPED = frozenset({StepState.CANCELLED, StepState.SKIPPED})


def instance_id(step: str, number: int) -> str:
    """Such as `build[3]`."""
    return f"{step}[{number}]"


def expand(draft: RunMutation, step: StepRun, items: Sequence[Any]) -> None:
    """Adds an instance for each item. The step runs until the last of them has ended."""
    draft.set(
        step.id,
        evaluated=True,
        state=StepState.RUNNING,
        phase=Phase.GROUP,
        instances=len(items),
        started_at=draft.at,
    )
    for number, item in enumerate(items):
        name = instance_id(step.id, number)
        draft.steps[name] = StepRun(id=name, index=step.index, parent=step.id, instance=number, item=item)


def resume(draft: RunMutation, step: StepRun) -> None:
    """Starts a step of a retry that keeps some of its instances; the others wait to be released."""
    draft.set(step.id, evaluated=True, state=StepState.RUNNING, phase=Phase.GROUP, released=0, started_at=draft.at)


def release(
    draft: RunMutation, group: StepRun, queue: Queue, launch_step: Callable[[RunMutation, StepRun], None]
) -> None:
    """Launches as many further instances as have slots. Instances that are kept from another run have ended."""
    released = group.released
    while released < group.instances and draft.index.has_slot(queue):
        member = draft.steps[instance_id(group.id, released)]
        if not member.state.terminal:
            launch_step(draft, member)
        released += 1
    draft.set(group.id, released=released)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """How a step ends whose instances have all ended."""

    state: StepState
    reason: str
    error_class: ErrorClass | None
    attempts: int
    finished_at: datetime


def result_of(draft: RunMutation, group: StepRun) -> GroupResult:
    """FAILED if an instance failed, else CANCELLED if one was stopped, else INCOMPLETE if one is, else SUCCEEDED."""
    members = [draft.steps[instance_id(group.id, number)] for number in range(group.instances)]
    failed = [member for member in members if member.state is StepState.FAILED]
    states = {member.state for member in members}
    reason, error_class = "", None
    if failed:
        state = StepState.FAILED
        bad = next((m for m in failed if ends_badly(draft.plan.step(group.id), m)), failed[0])
        fatal = any(member.error_class is ErrorClass.FATAL for member in failed)
        error_class = ErrorClass.FATAL if fatal else bad.error_class
        reason = run_texts.instances_failed(bad, len(failed), group.instances)
    elif states & _STOPPED:
        state = StepState.CANCELLED
        reason = next((m.reason for m in members if m.state is StepState.CANCELLED), "")
        if not reason and draft.run.current_ending is not None:
            reason = run_texts.stopped(draft.run)
    else:
        state = StepState.INCOMPLETE if StepState.INCOMPLETE in states else StepState.SUCCEEDED
    ends = [member.finished_at for member in members if member.finished_at is not None]
    return GroupResult(
        state=state,
        reason=reason,
        error_class=error_class,
        attempts=sum(member.attempts for member in members),
        finished_at=max(ends, default=draft.then),
    )
