"""When a step becomes ready: all steps before it have ended well; or it is skipped, because one of them blocks it."""

from __future__ import annotations

from collections.abc import Sequence

from toband.domain import for_each
from toband.domain.retry_policy import ends_badly
from toband.domain.run_events import EvaluateStep
from toband.domain.run_model import SkipReason, StepRun, StepState
from toband.domain.run_mutation import RunMutation

_SATISFIED = frozenset({StepState.SUCCEEDED, StepState.INCOMPLETE})


def settle(draft: RunMutation, waiting: Sequence[str]) -> None:
    """Makes waiting steps ready, or skips them with everything that depends on them."""
    left = list(waiting)
    passed: set[str] = set()
    while left:
        step = draft.steps[left.pop()]
        if step.state is not StepState.PENDING:
            if step.skip_reason is SkipReason.SCOPE and step.id not in passed:
                passed.add(step.id)
                left += draft.plan.dependents[step.id]
            continue
        needed = _needed(draft, step.id)
        if any(_blocks(draft, draft.steps[name]) for name in needed):
            draft.skip(step.id, SkipReason.UPSTREAM)
            left += draft.plan.dependents[step.id]
        elif all(_satisfies(draft, draft.steps[name]) for name in needed):
            _make_ready(draft, step.id)


def _needed(draft: RunMutation, name: str) -> set[str]:
    """The steps that it waits for. One out of scope stands for those before it, so that the others keep their order."""
    found: set[str] = set()
    passed: set[str] = set()
    left = list(draft.plan.steps[name].depends_on)
    while left:
        needed = left.pop()
        if draft.steps[needed].skip_reason is not SkipReason.SCOPE:
            found.add(needed)
        elif needed not in passed:
            passed.add(needed)
            left += draft.plan.steps[needed].depends_on
    return found


def _satisfies(draft: RunMutation, step: StepRun) -> bool:
    match step.state:
        case StepState.SKIPPED:
            return step.skip_reason is not None and step.skip_reason.satisfies
        case StepState.FAILED:
            return not ends_badly(draft.plan.steps[step.id], step)
        case _:
            return step.state in _SATISFIED


def _blocks(draft: RunMutation, step: StepRun) -> bool:
    return step.state.terminal and not _satisfies(draft, step)


def _make_ready(draft: RunMutation, name: str) -> None:
    if draft.steps[name].instances:
        for_each.resume(draft, draft.steps[name])
        return
    step = draft.plan.steps[name]
    unsettled = bool(step.when) or step.for_each is not None
    draft.set(name, state=StepState.READY, evaluated=not unsettled)
    if unsettled:
        draft.effects.append(EvaluateStep(step=name))
