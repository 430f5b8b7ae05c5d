"""The state machine of steps and runs as a table: which state may follow which, by which events.

`docs/architecture.md` has a diagram of it, written by `scripts/gen-state-diagram`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toband.domain.run_events import (
    AttemptEnded,
    AttemptLost,
    AttemptVoided,
    CancelRequested,
    ChildEnded,
    CollectionFailed,
    CollectionStopped,
    DecisionMade,
    EvaluationFailed,
    FinallyTimeoutPassed,
    IterationDue,
    LaunchDue,
    OutputsCollected,
    ResumeRequested,
    RetryDue,
    RunStarted,
    RunTimeoutPassed,
    StepEvaluated,
    StepTimeoutPassed,
    WaitFailed,
    WaitOver,
)
from toband.domain.run_model import Phase, RunState, StepState

Events = frozenset[type]

FAILURES: Events = frozenset(
    {
        AttemptEnded,
        AttemptLost,
        ChildEnded,
        OutputsCollected,
        CollectionFailed,
        DecisionMade,
        EvaluationFailed,
        StepTimeoutPassed,
        WaitFailed,
    }
)
"""Events by which a step may fail, which may end the run."""
STEP_ENDS = FAILURES | {AttemptVoided, CollectionStopped, StepEvaluated, WaitOver}
"""Events by which a step may end."""
RUN_ENDS = FAILURES | {CancelRequested, RunTimeoutPassed, FinallyTimeoutPassed}
"""Events by which a run, or its `finally` part, may begin to end early."""
FINALLY_BEGINS = STEP_ENDS | {RunStarted, ResumeRequested, CancelRequested, RunTimeoutPassed}
"""Events by which the `finally` part may begin."""
LAUNCHES = FINALLY_BEGINS | {RetryDue, IterationDue, LaunchDue}
"""Events after which a slot may be free for a ready step."""
CLOSES = STEP_ENDS | {CancelRequested, FinallyTimeoutPassed}
"""Events by which the last step of a run may end."""
SUCCESSES: Events = frozenset({AttemptEnded, ChildEnded, OutputsCollected, DecisionMade, WaitOver})


@dataclass(frozen=True, slots=True)
class Move:
    """`when` is for people."""

    events: Events
    when: str


STEP_MOVES: Mapping[tuple[StepState, StepState], Move] = {
    (StepState.PENDING, StepState.READY): Move(FINALLY_BEGINS, "dependencies satisfied, or finally begins"),
    (StepState.PENDING, StepState.RUNNING): Move(LAUNCHES, "instance launched"),
    (StepState.PENDING, StepState.SKIPPED): Move(
        STEP_ENDS | RUN_ENDS | {RunStarted}, "dependency did not succeed, or run ends"
    ),
    (StepState.READY, StepState.RUNNING): Move(
        LAUNCHES, "attempt launched, approval asked, wait begun, or for_each expanded"
    ),
    (StepState.READY, StepState.CHECKING): Move(LAUNCHES, "completion check launched"),
    (StepState.READY, StepState.SKIPPED): Move(RUN_ENDS | {StepEvaluated}, "condition false, no items, or run ends"),
    (StepState.READY, StepState.FAILED): Move(RUN_ENDS, "evaluation failed, loop timed out, or run ends before retry"),
    (StepState.READY, StepState.CANCELLED): Move(RUN_ENDS, "run ends between iterations"),
    (StepState.RUNNING, StepState.READY): Move(
        FAILURES - {DecisionMade, EvaluationFailed, WaitFailed}, "retry, or completion check next"
    ),
    (StepState.RUNNING, StepState.SUCCEEDED): Move(SUCCESSES, "succeeded"),
    (StepState.RUNNING, StepState.FAILED): Move(STEP_ENDS | RUN_ENDS, "failed without retry"),
    (StepState.RUNNING, StepState.INCOMPLETE): Move(SUCCESSES, "an instance is incomplete"),
    (StepState.RUNNING, StepState.CANCELLED): Move(STEP_ENDS | RUN_ENDS, "run ends"),
    (StepState.RUNNING, StepState.SKIPPED): Move(frozenset({AttemptVoided}), "run ends before the process started"),
    (StepState.CHECKING, StepState.READY): Move(
        frozenset({AttemptEnded, AttemptLost}), "not complete yet, or check retried"
    ),
    (StepState.CHECKING, StepState.SUCCEEDED): Move(frozenset({AttemptEnded}), "complete"),
    (StepState.CHECKING, StepState.INCOMPLETE): Move(frozenset({AttemptEnded}), "iterations exhausted, continue"),
    (StepState.CHECKING, StepState.FAILED): Move(
        frozenset({AttemptEnded, AttemptLost, AttemptVoided}), "check failed, or iterations exhausted"
    ),
    (StepState.CHECKING, StepState.CANCELLED): Move(frozenset({AttemptEnded, AttemptVoided}), "run ends"),
}

RUN_MOVES: Mapping[tuple[RunState, RunState], Move] = {
    (RunState.PENDING, RunState.RUNNING): Move(frozenset({RunStarted}), "left the queue"),
    (RunState.PENDING, RunState.CANCELLED): Move(frozenset({CancelRequested}), "cancelled in the queue"),
    (RunState.RUNNING, RunState.SUCCEEDED): Move(CLOSES | {RunStarted}, "all steps ended well"),
    (RunState.RUNNING, RunState.FAILED): Move(CLOSES | {RunStarted}, "a step failed"),
    (RunState.RUNNING, RunState.CANCELLED): Move(CLOSES, "cancelled, and all processes ended"),
    (RunState.RUNNING, RunState.TIMED_OUT): Move(CLOSES | {RunTimeoutPassed}, "timed out, and all processes ended"),
}

PHASES: Mapping[StepState, frozenset[Phase]] = {
    StepState.PENDING: frozenset({Phase.RUN}),
    StepState.READY: frozenset({Phase.RUN, Phase.CHECK, Phase.NEXT, Phase.APPROVAL, Phase.WAIT}),
    StepState.RUNNING: frozenset({Phase.RUN, Phase.COLLECT, Phase.APPROVAL, Phase.WAIT, Phase.GROUP}),
    StepState.CHECKING: frozenset({Phase.CHECK}),
}
"""Of a step that has not ended. A terminal step keeps its last phase."""


def check_step_move(before: StepState, after: StepState) -> None:
    """Raises AssertionError for a move that the table does not have."""
    assert (before, after) in STEP_MOVES, f"a step cannot go from {before} to {after}"
