"""Invariants of every transition, checked after each event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from toban.definition import ErrorClass, FailurePolicy
from toband.domain.plan import Plan
from toband.domain.run_events import (
    AttemptVoided,
    CollectOutputs,
    Effect,
    EvaluateStep,
    Event,
    ForgetRun,
    KeepDeadLetter,
    LaunchAttempt,
    StartIterationTimer,
    StartRetryTimer,
    StopAttempt,
    StopCollection,
)
from toband.domain.run_index import RunIndex, moving
from toband.domain.run_model import Phase, Run, RunState, SkipReason, StepRun, StepState
from toband.domain.state_table import PHASES, RUN_MOVES, STEP_MOVES, Move
from toband.domain.step_map import StepMap

S = TypeVar("S", RunState, StepState)


def check_rules(plan: Plan, before: Run, after: Run, event: Event, effects: Sequence[Effect], at: datetime) -> None:
    if after is before:
        assert not effects, "an effect without its event"
        return
    assert not before.state.terminal, "a terminal run changed"
    assert after.sequence == before.sequence + 1
    _check_moves(before, after, event)
    _check_steps(plan, before, after)
    _check_places(plan, after)
    _check_counters(after)
    _check_index(plan, after)
    _check_run(before, after)
    _check_finally(plan, before, after)
    for effect in effects:
        _check_effect(plan, before, after, event, effect, at)
    assert sum(isinstance(effect, ForgetRun) for effect in effects) == after.state.terminal


def _check_moves(before: Run, after: Run, event: Event) -> None:
    """Every state follows from the one before it by moves that the table has for the event."""
    assert _leads(RUN_MOVES, before.state, after.state, event), f"run: {before.state} to {after.state} by {event}"
    for name in after.touched or ():
        was, now = before.steps.get(name), after.steps[name].state
        state = StepState.PENDING if was is None else was.state
        assert _leads(STEP_MOVES, state, now, event), f"{name}: {state} to {now} by {event}"


def _leads(moves: Mapping[tuple[S, S], Move], before: S, after: S, event: Event) -> bool:
    """One event may move a step several times, such as from PENDING over READY to RUNNING."""
    found, left = {before}, [before]
    while left:
        state = left.pop()
        for (one, other), move in moves.items():
            if one is state and other not in found and type(event) in move.events:
                found.add(other)
                left.append(other)
    return after in found


def is_live(step: StepRun) -> bool:
    return step.attempt is not None and not step.attempt.state.terminal


def satisfies(plan: Plan, step: StepRun) -> bool:
    """Whether a step lets those go on that wait for it."""
    match step.state:
        case StepState.SUCCEEDED | StepState.INCOMPLETE:
            return True
        case StepState.FAILED:
            hard = step.error_class in (None, ErrorClass.FATAL)
            return plan.step(step.id).final_policy is FailurePolicy.CONTINUE and not hard
        case StepState.SKIPPED:
            return step.skip_reason in (SkipReason.WHEN, SkipReason.SCOPE, SkipReason.EMPTY, SkipReason.REQUESTED)
        case _:
            return False


def _check_steps(plan: Plan, before: Run, after: Run) -> None:
    assert list(after.steps)[: len(before.steps)] == list(before.steps), "a step went missing"
    for name, step in after.steps.items():
        was = before.steps.get(name)
        if was is not None and was.state.terminal:
            assert step is was, f"{name} is over and changed"
        if step is not was:
            assert after.touched is not None
            assert name in after.touched, f"{name} changed and is not told"
        if was is None:
            assert step.parent in after.steps, f"{name} came from nowhere"
        assert (step.finished_at is not None) == step.state.terminal
        live = is_live(step)
        works = (step.state, step.phase) in (
            (StepState.RUNNING, Phase.RUN),
            (StepState.CHECKING, Phase.CHECK),
        )
        assert live == works, f"{name}: a live attempt, and only while it works"
        if not step.state.terminal:
            assert step.phase in PHASES[step.state], f"{name} is {step.state} in {step.phase}"
        if step.not_before is not None and not step.state.terminal:
            assert step.state is StepState.READY, f"{name} backs off and is {step.state}"
        definition = plan.step(name)
        assert step.retries <= definition.max_retries
        assert step.iteration <= definition.max_iterations
        if after.current_ending is not None:
            spared = name in plan.finally_steps and after.finally_part is None
            stays = live or spared or step.phase in (Phase.COLLECT, Phase.GROUP)
            assert step.state.terminal or stays, f"{name} is left over in a run that ends"
        if step.instances and step.phase is Phase.GROUP:
            members = [after.steps[f"{name}[{n}]"] for n in range(step.instances)]
            over = all(member.state.terminal for member in members)
            assert over == step.state.terminal, f"{name} is over when its instances are"
            assert step.attempt is None
    assert moving(after.steps) == frozenset(n for n, step in after.steps.items() if step.state.moving)


def _check_index(plan: Plan, after: Run) -> None:
    """The maintained index equals one that is computed from scratch."""
    steps = after.steps
    assert isinstance(steps, StepMap)
    kept, anew = steps.index, RunIndex(plan, StepMap.of(dict(steps)))
    assert kept.moving == anew.moving
    assert kept.tokens == anew.tokens
    assert kept._held == anew._held
    assert +kept._busy == +anew._busy
    assert sorted(kept.turns(steps)) == sorted(anew.turns(steps))
    assert kept.latest(steps) == anew.latest(steps) == after.current_step


def _check_places(plan: Plan, after: Run) -> None:
    held = [
        step
        for step in after.steps.values()
        if is_live(step) or (step.phase is Phase.COLLECT and not step.state.terminal)
    ]
    if plan.workflow.concurrency is not None:
        assert len(held) <= plan.workflow.concurrency
    for parent, count in Counter(step.parent for step in held if step.parent).items():
        most = plan.steps[parent].max_parallel
        assert most is None or count <= most


def _check_counters(after: Run) -> None:
    steps = [step for step in after.steps.values() if not step.parent]
    states = Counter(step.state for step in steps)
    assert after.total_steps == len(steps)
    assert after.step_states == states
    assert after.failed_steps == states[StepState.FAILED]
    assert after.incomplete_steps == states[StepState.INCOMPLETE]
    assert after.ended_steps == sum(step.state.terminal for step in steps)


def _check_run(before: Run, after: Run) -> None:
    assert after.state.terminal == (after.ended_steps == after.total_steps)
    assert (after.finished_at is not None) == after.state.terminal
    decided = after.state.terminal or (after.finally_part is not None and before.finally_part is None)
    if before.ending is not None and not decided:
        assert after.ending == before.ending, "the first cause stands"
    if after.state is RunState.FAILED:
        assert after.error, "a run that failed says why"


def _check_finally(plan: Plan, before: Run, after: Run) -> None:
    """Its steps come after all others, and change nothing about the result of the run."""
    part, was = after.finally_part, before.finally_part
    others = [step for step in after.steps.values() if plan.step(step.id).is_finally is False]
    if part is None:
        for name in plan.finally_steps:
            assert never_began(after) or after.steps[name].state is StepState.PENDING, (
                f"{name} came before the others were over"
            )
        assert never_began(after) or not (after.state.terminal and plan.finally_steps), "finally steps never ran"
        return
    assert all(step.state.terminal for step in others), "a step goes on while finally steps run"
    assert after.paused_at is None
    if was is not None:
        kept = (part.state, part.began_at, after.ending, after.error)
        assert kept == (was.state, was.began_at, before.ending, before.error), "the result changed afterwards"
        assert was.ending in (None, part.ending)
    if after.state.terminal:
        assert after.state is part.state


def never_began(run: Run) -> bool:
    return run.state is RunState.CANCELLED and run.started_at is None


def _check_effect(plan: Plan, before: Run, after: Run, event: Event, effect: Effect, at: datetime) -> None:
    match effect:
        case LaunchAttempt(attempt=attempt):
            step = after.steps[attempt.owner]
            assert step.attempt is attempt
            assert after.current_ending is None, "something started while the run was ending"
            if isinstance(event, AttemptVoided):
                return
            assert after.paused_at is None, "something started while the run was paused"
            was = before.steps.get(step.id)
            assert step.not_before is None
            if was is not None and was.not_before is not None:
                assert was.not_before <= at, "a back-off was cut short"
            for needed in plan.step(step.id).depends_on:
                assert satisfies(plan, after.steps[needed]), f"{step.id} did not wait for {needed}"
        case StopAttempt(attempt=attempt):
            assert is_live(after.steps[attempt.owner])
        case EvaluateStep(step=name):
            assert after.steps[name].state is StepState.READY
            assert not after.steps[name].evaluated
        case StartRetryTimer(step=name, due=due) | StartIterationTimer(step=name, due=due):
            assert after.steps[name].state is StepState.READY
            assert after.steps[name].not_before == due
        case CollectOutputs(attempt=attempt):
            assert after.steps[attempt.owner].phase is Phase.COLLECT
        case StopCollection(attempt=attempt):
            assert after.steps[attempt.owner].phase is Phase.COLLECT
            assert after.current_ending is not None, "outputs are thrown away while the run goes on"
        case KeepDeadLetter(letter=letter):
            assert plan.step(letter.step).on_failure is FailurePolicy.RETRY
            assert after.steps[letter.step].state is StepState.FAILED
            # A step ends once, and so it has one letter at most.
            known = before.steps.get(letter.step)
            assert known is None or not known.state.terminal
        case _:
            pass
