"""Step selection: which steps a partial run or a retry executes, and which results of earlier runs it keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from toban.definition import Workflow, condition_references, references
from toban.definition.model.workflow import FULL_SCOPE
from toband.domain.plan import Plan
from toband.domain.run_model import Run, SkipReason, StepRun, StepState
from toband.engine.errors import (
    NoPriorResultError,
    NothingToRetryError,
    NothingToRunError,
    RunNotFoundError,
    StepNotSkippableError,
    UnknownScopeError,
    UnknownStepError,
)
from toband.ports import Clock, RunStore

_SEPARATOR = "; "


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which steps to run: those of a scope, only these, or these and all steps after them.

    Empty: those of the scope `full` if the definition has one, else all steps. The `finally` steps run in any case.

    Results of the other steps are taken from `from_run`; if it is empty, from the latest run in which each succeeded.
    """

    scope: str = ""
    only: tuple[str, ...] = ()
    from_steps: tuple[str, ...] = ()
    from_run: str = ""

    @property
    def shown(self) -> str:
        """As the run's `scope` shows it."""
        parts = [self.scope] if self.scope else []
        if self.only:
            parts.append(f"only {', '.join(self.only)}")
        if self.from_steps:
            parts.append(f"from {', '.join(self.from_steps)}")
        return _SEPARATOR.join(parts) or FULL_SCOPE


NO_SELECTION = Selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySelection:
    """Which steps a retry repeats: `from_steps` and all steps after them, `everything`, or by default what failed.

    One of `from_steps` may be an instance, such as `build[3]`: of its step, only that and the failed ones are repeated.
    Steps in `skip` count as succeeded; `by` and `note` say who decided that, and why.
    """

    from_steps: tuple[str, ...] = ()
    everything: bool = False
    skip: tuple[str, ...] = ()
    by: str = ""
    note: str = ""


WHAT_FAILED = RetrySelection()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedSteps:
    """The steps that a run executes, None for all, and those that it keeps from earlier runs."""

    chosen: Collection[str] | None
    kept: Mapping[str, StepRun]


class StepSelector:
    """Selects steps with the results that earlier runs have in the store."""

    def __init__(self, store: RunStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def select(self, plan: Plan, selection: Selection) -> SelectedSteps:
        """The steps of a new run.

        Raises UnknownScopeError, UnknownStepError, NothingToRunError, NoPriorResultError, RunNotFoundError.
        """
        chosen = chosen_steps(plan, selection)
        kept = await self._borrowed(plan, chosen, selection.from_run) if chosen is not None else {}
        return SelectedSteps(chosen=chosen, kept=kept)

    async def select_for_retry(
        self, plan: Plan, before: Plan, run: Run, selection: RetrySelection, *, same_params: bool
    ) -> SelectedSteps:
        """The steps of a retry of `run`, which had the plan `before`.

        Raises UnknownStepError, StepNotSkippableError, NothingToRetryError.
        """
        run = await self._without_gone(run)
        skipped = skipped_steps(plan, run, selection, self._clock.now())
        repeated = repeated_steps(plan, before, run, selection)
        if not repeated and not skipped:
            raise NothingToRetryError(run.id)
        repeated |= plan.finally_steps
        kept = keep(plan, run, repeated) | skipped
        kept |= kept_instances(plan, before, run, repeated, selection, same_params=same_params)
        return SelectedSteps(chosen=repeated, kept=kept)

    async def _borrowed(self, plan: Plan, chosen: Collection[str], from_run: str) -> dict[str, StepRun]:
        """The results of other steps that the chosen ones need, from earlier runs."""
        needed = borrowed_steps(plan, chosen)
        if not needed:
            return {}
        found: Mapping[str, str] = dict.fromkeys(needed, from_run)
        if not from_run:
            found = await self._store.latest_success(plan.workflow.name, needed)
        at = self._clock.now()
        sources: dict[str, Run] = {}
        kept: dict[str, StepRun] = {}
        for name in sorted(needed, key=plan.index.__getitem__):
            run_id = found.get(name, "")
            if run_id and run_id not in sources:
                source = await self._store.get_run(run_id)
                if source is None or source.workflow != plan.workflow.name:
                    raise RunNotFoundError(run_id)
                sources[run_id] = await self._without_gone(source)
            step = sources[run_id].steps.get(name) if run_id else None
            if step is None or not _has_result(step):
                raise NoPriorResultError(name, sources.get(from_run))
            kept |= borrow(plan, sources[run_id], name, at)
        return kept

    async def _without_gone(self, run: Run) -> Run:
        """The run without results that it kept from runs that are deleted by now."""
        sources = {step.source for step in run.steps.values() if step.source}
        gone = sources - (await self._store.known_runs(sources)).keys()
        if not gone:
            return run
        steps = {
            name: replace(step, state=StepState.CANCELLED, reason="its result is gone", source="")
            if step.source in gone
            else step
            for name, step in run.steps.items()
        }
        return replace(run, steps=steps)


def _has_result(step: StepRun) -> bool:
    kept = step.skip_reason is SkipReason.SCOPE and bool(step.source)
    return step.state is StepState.SUCCEEDED or kept


def definition_scope(workflow: Workflow, run: Run) -> str:
    """The scope of the definition that the run's steps were selected by; empty if none was."""
    name = run.scope.partition(_SEPARATOR)[0]
    return name if name in workflow.scopes else ""


def chosen_steps(plan: Plan, selection: Selection) -> set[str] | None:
    """None: all. Raises UnknownScopeError, UnknownStepError, NothingToRunError."""
    name, scopes = selection.scope or (FULL_SCOPE if selection == NO_SELECTION else ""), plan.workflow.scopes
    chosen = set(plan.ordered)
    if name in scopes:
        chosen &= set(scopes[name])
    elif name and name != FULL_SCOPE:
        raise UnknownScopeError(plan.workflow.name, name, scopes)
    if selection.only:
        chosen &= set(_known(plan, selection.only))
    if selection.from_steps:
        chosen &= plan.after(_known(plan, selection.from_steps))
    if not chosen:
        raise NothingToRunError(plan.workflow.name, selection.shown)
    chosen |= plan.finally_steps
    return None if len(chosen) == len(plan.ordered) else chosen


def _known(plan: Plan, steps: Collection[str], also: Collection[str] = ()) -> Collection[str]:
    for step in steps:
        if step not in plan.steps and step not in also:
            raise UnknownStepError(plan.workflow.name, step)
    return steps


def borrowed_steps(plan: Plan, chosen: Collection[str]) -> set[str]:
    """Steps that do not run, but whose results the chosen steps need. `finally` steps see what ran, and no more."""
    needed: set[str] = set()
    for name in set(chosen) - plan.finally_steps:
        step = plan.steps[name]
        needed |= references(step).keys() | condition_references(step).keys()
        if step.completion_check is not None:
            needed |= references(step.completion_check).keys()
        needed |= {given.step for given in step.inputs}
    return needed - set(chosen)


def borrow(plan: Plan, source: Run, name: str, at: datetime) -> dict[str, StepRun]:
    """A step of an earlier run and its instances: out of scope in the new run, with their results."""
    step = source.steps[name]
    taken = _taken(plan, source, step)
    taken[name] = replace(
        taken[name], state=StepState.SKIPPED, skip_reason=SkipReason.SCOPE, started_at=None, finished_at=at
    )
    return taken


def repeated_steps(plan: Plan, before: Plan, run: Run, selection: RetrySelection) -> set[str]:
    """The steps of an ended run that a retry executes: the repeated ones, and all steps after them.

    `before` is the plan that the run had: a step that has changed since is repeated. Raises UnknownStepError.
    """
    if selection.everything:
        again = set(plan.ordered)
    else:
        again = {name for name in plan.ordered if not _is_valid(plan, before, run, name)}
        changed = {name for name in again if name not in run.steps}
        if selection.from_steps:
            wanted = plan.after(_from_steps(plan, run, selection))
            # Steps that these need are repeated too if their results are not valid; the others stay as they are.
            again = wanted | {name for name in again if plan.after([name]) & wanted} | changed
    out = {name for name, step in run.steps.items() if step.skip_reason is SkipReason.SCOPE}
    return plan.after(again - set(selection.skip)) - out - set(selection.skip)


def _from_steps(plan: Plan, run: Run, selection: RetrySelection) -> set[str]:
    """The steps of `from_steps`, also of its instances. Raises UnknownStepError."""
    instances = {name for name in selection.from_steps if name in run.steps and run.steps[name].parent}
    return {
        run.steps[name].parent if name in instances else name for name in _known(plan, selection.from_steps, instances)
    }


def skipped_steps(plan: Plan, run: Run, selection: RetrySelection, at: datetime) -> dict[str, StepRun]:
    """The steps that a retry treats as succeeded, with their instances and the results that they left.

    Raises UnknownStepError, StepNotSkippableError.
    """
    skipped: dict[str, StepRun] = {}
    for name in _known(plan, selection.skip):
        step, is_finally = run.steps.get(name), name in plan.finally_steps
        if step is None or step.state not in _SKIPPABLE or is_finally:
            state = "new" if step is None else step.state.value
            raise StepNotSkippableError(run.id, name, state, is_finally=is_finally)
        for found in _taken(plan, run, step).values():
            if found.state is StepState.SUCCEEDED or found.state is StepState.INCOMPLETE:
                skipped[found.id] = found
                continue
            skipped[found.id] = replace(
                found,
                state=StepState.SKIPPED,
                skip_reason=SkipReason.REQUESTED,
                skipped_by=selection.by,
                skip_note=selection.note,
                retry_stopped=False,
                source=found.source or run.id,
                started_at=None,
                finished_at=at,
            )
    return skipped


_SKIPPABLE = frozenset({StepState.FAILED, StepState.CANCELLED})


def kept_instances(
    plan: Plan, before: Plan, run: Run, repeated: Collection[str], selection: RetrySelection, *, same_params: bool
) -> dict[str, StepRun]:
    """The repeated `for_each` steps that keep some of their instances: those and their instances, kept or new.

    A step keeps its instances if it would expand into the same ones: it has not changed, no step that it depends on is
    repeated, and neither its items nor its condition use parameters that may have changed.
    """
    if selection.everything:
        return {}
    whole = plan.after([name for name in selection.from_steps if name in plan.steps])
    found: dict[str, StepRun] = {}
    for name in set(repeated) - plan.finally_steps:
        step, defined = run.steps.get(name), plan.steps[name]
        if step is None or not step.instances or name in whole or before.steps.get(name) != defined:
            continue
        if any(needed in repeated for needed in defined.depends_on):
            continue
        if not same_params and _uses_params(defined.for_each, defined.when):
            continue
        instances = _instances(plan, run, step, selection.from_steps)
        ended = sum(instance.state.terminal for instance in instances.values())
        if 0 < ended < step.instances:
            found[name] = StepRun(id=name, index=plan.index[name], instances=step.instances, ended=ended)
            found |= instances
    return found


def _instances(plan: Plan, run: Run, step: StepRun, from_steps: Collection[str]) -> dict[str, StepRun]:
    """All instances of a repeated step: with their results if they are kept, else as new."""
    made: dict[str, StepRun] = {}
    for found in list(_with_instances(run, step))[1:]:
        valid = found.state is StepState.SUCCEEDED or found.state is StepState.INCOMPLETE
        if valid and found.id not in from_steps:
            made[found.id] = _moved(plan, run, found)
        else:
            made[found.id] = StepRun(
                id=found.id, index=plan.index[step.id], parent=step.id, instance=found.instance, item=found.item
            )
    return made


def _uses_params(*expressions: object) -> bool:
    return any("params" in str(expression) for expression in expressions)


def _is_valid(plan: Plan, before: Plan, run: Run, name: str) -> bool:
    step = run.steps.get(name)
    if step is None or before.steps.get(name) != plan.steps[name]:
        return step is not None and step.skip_reason is SkipReason.SCOPE
    match step.state:
        case StepState.SUCCEEDED | StepState.INCOMPLETE:
            return True
        case StepState.SKIPPED:
            return step.skip_reason is not None and step.skip_reason.satisfies
        case _:
            return False


def keep(plan: Plan, run: Run, repeated: Collection[str]) -> dict[str, StepRun]:
    """The steps of an ended run that a retry keeps, with their instances."""
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
    has_result = step.attempt is not None or step.attempts or step.instances or step.source
    return replace(step, index=index, source=(step.source or run.id) if has_result else "")
