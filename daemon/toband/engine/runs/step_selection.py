"""Which steps of a workflow a run is to execute, and what of earlier runs it keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from toban.definition import condition_references, references
from toband.domain.plan import Plan
from toband.domain.run_model import Run, StepRun, StepState
from toband.engine.errors import NothingToRunError, UnknownScopeError, UnknownStepError

FULL = "full"
_SKIPPED_IN_PEACE = ("when", "scope", "empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which steps to run: those of a scope, only these, these and all after them. Empty: no restriction.

    `from_run` is where the results of the others come from; empty: the latest run in which each succeeded.
    """

    scope: str = ""
    only: tuple[str, ...] = ()
    from_steps: tuple[str, ...] = ()
    from_run: str = ""

    @property
    def shown(self) -> str:
        """As a run's `scope` says it."""
        parts = [self.scope] if self.scope else []
        if self.only:
            parts.append(f"only {', '.join(self.only)}")
        if self.from_steps:
            parts.append(f"from {', '.join(self.from_steps)}")
        return "; ".join(parts) or FULL


def chosen_steps(plan: Plan, selection: Selection) -> set[str] | None:
    """None: all. Raises UnknownScopeError, UnknownStepError, NothingToRunError."""
    name, scopes = selection.scope, plan.workflow.scopes
    chosen = set(plan.ordered)
    if name in scopes:
        chosen &= set(scopes[name])
    elif name and name != FULL:
        raise UnknownScopeError(plan.workflow.name, name, scopes)
    if selection.only:
        chosen &= set(_known(plan, selection.only))
    if selection.from_steps:
        chosen &= plan.after(_known(plan, selection.from_steps))
    if not chosen:
        raise NothingToRunError(plan.workflow.name, selection.shown)
    return None if len(chosen) == len(plan.ordered) else chosen


def _known(plan: Plan, steps: Collection[str]) -> Collection[str]:
    for step in steps:
        if step not in plan.steps:
            raise UnknownStepError(plan.workflow.name, step)
    return steps


def borrowed_steps(plan: Plan, chosen: Collection[str]) -> set[str]:
    """Steps that are not to run, and whose results those that are need."""
    needed: set[str] = set()
    for name in chosen:
        step = plan.steps[name]
        needed |= references(step).keys() | condition_references(step).keys()
        if step.completion_check is not None:
            needed |= references(step.completion_check).keys()
        needed |= {given.step for given in step.inputs}
    return needed - set(chosen)


def borrow(plan: Plan, source: Run, name: str, at: datetime) -> dict[str, StepRun]:
    """A step of an earlier run, with its instances, as one that is out of scope and has results."""
    step = source.steps[name]
    taken = _taken(plan, source, step)
    taken[name] = replace(taken[name], state=StepState.SKIPPED, reason="scope", started_at=None, finished_at=at)
    return taken


def repeated_steps(plan: Plan, before: Plan, run: Run, from_steps: Collection[str], everything: bool) -> set[str]:
    """The steps of an ended run that a retry executes: what is to be repeated, and all that comes after it.

    `before` is the plan that the run had; a step that has changed since is repeated. Raises UnknownStepError.
    """
    if everything:
        again = set(plan.ordered)
    else:
        again = {name for name in plan.ordered if not _stands(plan, before, run, name)}
        changed = {name for name in again if name not in run.steps}
        if from_steps:
            wanted = plan.after(_known(plan, from_steps))
            # What those need and does not stand is repeated too; the rest is left as it is.
            again = wanted | {name for name in again if plan.after([name]) & wanted} | changed
    out = {name for name, step in run.steps.items() if step.reason == "scope"}
    return plan.after(again) - out


def _stands(plan: Plan, before: Plan, run: Run, name: str) -> bool:
    step = run.steps.get(name)
    if step is None or before.steps.get(name) != plan.steps[name]:
        return step is not None and step.reason == "scope"
    match step.state:
        case StepState.SUCCEEDED | StepState.INCOMPLETE:
            return True
        case StepState.SKIPPED:
            return step.reason in _SKIPPED_IN_PEACE
        case _:
            return False


def keep(plan: Plan, run: Run, repeated: Collection[str]) -> dict[str, StepRun]:
    """The steps of an ended run that a retry does not execute, with their instances."""
    kept: dict[str, StepRun] = {}
    for name in plan.ordered:
        step = run.steps.get(name)
        if name not in repeated and step is not None:
            kept |= _taken(plan, run, step)
    return kept


def _taken(plan: Plan, run: Run, step: StepRun) -> dict[str, StepRun]:
    return {found.id: _moved(plan, run, found) for found in _with_instances(run, step)}


def _with_instances(run: Run, step: StepRun) -> Iterator[StepRun]:
    yield step
    for number in range(step.instances):
        yield run.steps[f"{step.id}[{number}]"]


def _moved(plan: Plan, run: Run, step: StepRun) -> StepRun:
    index = plan.index[step.parent or step.id]
    reason = "kept" if step.state is StepState.SUCCEEDED else step.reason
    has_result = step.attempt is not None or step.attempts or step.instances or step.source
    return replace(step, index=index, reason=reason, source=(step.source or run.id) if has_result else "")
