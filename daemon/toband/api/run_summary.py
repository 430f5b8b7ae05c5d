"""The summary of a run: its steps by state, and each step of its definition in short."""

from __future__ import annotations

from collections.abc import Sequence

from toban.limits import cut
from toban.v1 import run_pb2 as pb
from toband.api import run_messages
from toband.domain.run_model import Run, StepRun, StepState
from toband.ports import Store

STEPS = 100
"""Steps that a summary has at most."""
ERROR_CHARS = 500
_UNREMARKABLE = frozenset({StepState.SUCCEEDED, StepState.SKIPPED, StepState.PENDING})


async def add_steps(made: pb.Run, run: Run, store: Store) -> None:
    """Adds the steps of the definition to the summary in a message about the run. `run` has a page of its steps."""
    steps = [step for step in run.steps.values() if not step.parent]
    if len(steps) < run.total_steps:
        steps = list(await store.defined_steps(run))
    shown = choose(steps)
    made.summary.steps.extend(_step(step) for step in shown)
    made.summary.left_out = len(steps) - len(shown)


def choose(steps: Sequence[StepRun]) -> Sequence[StepRun]:
    """As many as a summary has, in their order; those that failed, were cancelled or are not done come first."""
    if len(steps) <= STEPS:
        return steps
    first = sorted(steps, key=lambda step: (step.state in _UNREMARKABLE, step.position))
    return sorted(first[:STEPS], key=lambda step: step.position)


def _step(step: StepRun) -> pb.StepSummary:
    made = pb.StepSummary(
        id=step.id,
        state=run_messages.step_state(step.state),
        attempts=step.attempts,
        error=cut(step.reason, ERROR_CHARS),
        skip_reason=run_messages.skip_reason(step.skip_reason),
        instances=step.instances,
        instances_ended=step.ended,
    )
    if step.started_at is not None and step.finished_at is not None:
        made.duration.FromTimedelta(step.finished_at - step.started_at)
    return made
