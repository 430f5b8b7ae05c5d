"""Runs the pure core in virtual time: attempts do what a script says, and every rule is checked after every event."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from toban.definition import FailurePolicy, OnLost, Overlap, Step, Workflow
from toban.definition import JobType as Kind
from toband.domain.events import (
    AttemptEnded,
    AttemptLost,
    AttemptStarted,
    AttemptVoided,
    CancelRequested,
    Effect,
    Event,
    ForgetRun,
    LaunchAttempt,
    LaunchDue,
    LaunchReady,
    RunStarted,
    RunTimeoutPassed,
    StartRunTimer,
    StopAttempt,
    not_started,
)
from toband.domain.model import Attempt, Run, StepState, TreeCause, TreeEnding, Trigger
from toband.domain.plan import Plan
from toband.domain.transition import Ids, transition

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def workflow(
    steps: Mapping[str, Mapping[str, Any]],
    *,
    concurrency: int | None = None,
    timeout: float | None = None,
) -> Workflow:
    return Workflow(
        name="w", title="", version="1", description="", labels={}, enabled=True, params={}, env={},
        timeout=timeout, concurrency=concurrency, max_active_runs=1, overlap=Overlap.SKIP,
        steps={name: _step(name, given) for name, given in steps.items()},
    )  # fmt: skip


def _step(name: str, given: Mapping[str, Any]) -> Step:
    return Step(
        id=name, name=name, description="", job_type=Kind.SHELL, target="true", args=(), kwargs={},
        env={}, workspace=None, depends_on=tuple(given.get("depends_on", ())),
        timeout=given.get("timeout"), kill_grace=given.get("kill_grace", 10.0),
        success_codes=frozenset(given.get("success_codes", [0])),
        on_failure=FailurePolicy(given.get("on_failure", "abort")),
        on_lost=OnLost(given.get("on_lost", "fail")),
    )  # fmt: skip


@dataclass
class Simulator:
    """`outcomes` say what each launch of a step does: an exit code, or a word; see `_begin`."""

    workflow: Workflow
    outcomes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan = Plan(self.workflow)
        self.now = 0.0
        counter = itertools.count()
        self.ids = Ids(
            new_id=lambda: f"id{next(counter)}", new_token=lambda: f"token{next(counter)}"
        )
        self.run = self.plan.new_run(
            run_id="r", version=1, params={}, trigger=Trigger.API, caller="", at=EPOCH
        )
        self.live: dict[str, tuple[Attempt, str]] = {}
        self.launched: list[Attempt] = []
        self.forgotten = 0
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, Event]] = []
        self._left = {step: list(script) for step, script in self.outcomes.items()}

    def at(self, when: float, event: Event) -> None:
        heapq.heappush(self._agenda, (when, next(self._order), event))

    def play(self) -> Run:
        """Until nothing more can happen."""
        self.at(0, RunStarted())
        for _ in range(10_000):
            if not self._agenda:
                return self.run
            self.now, _, event = heapq.heappop(self._agenda)
            self.deliver(event)
        raise AssertionError("the run never comes to rest")

    def deliver(self, event: Event) -> None:
        before = self.run
        self._forget_ended(event)
        self.run, effects = transition(
            self.plan, before, event, at=EPOCH + timedelta(seconds=self.now), ids=self.ids
        )
        check_rules(self.plan, before, self.run, effects)
        for effect in effects:
            self._carry_out(effect)

    def _forget_ended(self, event: Event) -> None:
        if isinstance(event, AttemptEnded | AttemptLost | AttemptVoided):
            self.live.pop(event.token, None)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case LaunchAttempt():
                self._begin(effect.attempt)
            case StopAttempt():
                self._stop(effect.attempt)
            case StartRunTimer():
                self.at((effect.due - EPOCH).total_seconds(), RunTimeoutPassed())
            case LaunchReady():
                self.at(self.now, LaunchDue())
            case ForgetRun():
                self.forgotten += 1

    def _begin(self, attempt: Attempt) -> None:
        script = self._left.get(attempt.step, [])
        outcome = script.pop(0) if script else 0
        self.live[attempt.token] = (attempt, str(outcome))
        self.launched.append(attempt)
        match outcome:
            case "hang" | "hang_ignoring_term":
                self.at(self.now + 0.5, self._started(attempt))
                self._keep_deadline(attempt)
            case "lost" | "lost_unproved":
                orphans = "ended" if outcome == "lost" else "unknown"
                self.at(self.now + 1, AttemptLost(
                    step=attempt.step, token=attempt.token, error="gone", orphans=orphans))  # fmt: skip
            case "limit":
                self.at(self.now + 1, self._ended(attempt, TreeCause.LIMIT, signal=9))
            case "nostart":
                self.at(self.now + 1, not_started(attempt, "cannot start it", self._time(1)))
            case "void":
                self.at(self.now + 1, AttemptVoided(step=attempt.step, token=attempt.token))
            case "outside":
                self.at(self.now + 1, self._ended(attempt, TreeCause.CANCEL, signal=15))
            case int():
                self.at(self.now + 0.5, self._started(attempt))
                self.at(self.now + 1, self._ended(attempt, TreeCause.EXITED, exit_code=outcome))
            case _:
                raise AssertionError(f"unknown outcome {outcome!r}")

    def _keep_deadline(self, attempt: Attempt) -> None:
        """As the shim does: whichever of the two comes first, and it says which."""
        step, run = self.plan.steps[attempt.step], self.run
        own = step.timeout
        whole = None if run.timeout is None else run.timeout - self.now
        if own is not None and (whole is None or own <= whole):
            self.at(self.now + own, self._ended(attempt, TreeCause.TIMEOUT, signal=15))
        elif whole is not None:
            self.at(self.now + whole, self._ended(attempt, TreeCause.RUN_TIMEOUT, signal=15))

    def _stop(self, attempt: Attempt) -> None:
        found = self.live.get(attempt.token)
        if found is None or found[1] not in ("hang", "hang_ignoring_term"):
            return  # it is about to end by itself
        stubborn = found[1] == "hang_ignoring_term"
        after = self.plan.steps[attempt.step].kill_grace if stubborn else 0.1
        signum = 9 if stubborn else 15
        self.at(self.now + after, self._ended(attempt, TreeCause.CANCEL, signal=signum))

    def _started(self, attempt: Attempt) -> AttemptStarted:
        return AttemptStarted(
            step=attempt.step, token=attempt.token, pid=1, started_at=self._time(0.5)
        )

    def _ended(
        self,
        attempt: Attempt,
        cause: TreeCause,
        exit_code: int | None = None,
        signal: int | None = None,
    ) -> AttemptEnded:
        return AttemptEnded(
            step=attempt.step, token=attempt.token, started_at=self._time(0), finished_at=self._time(1),
            ending=TreeEnding(cause=cause, proved_empty=True), exit_code=exit_code, signal=signal,
        )  # fmt: skip

    def _time(self, ahead: float) -> datetime:
        return EPOCH + timedelta(seconds=self.now + ahead)


def check_rules(plan: Plan, before: Run, after: Run, effects: Sequence[Effect]) -> None:
    """What holds for every transition, whatever the event."""
    if after is before:
        assert not effects, "an effect without its event"
        return
    assert not before.state.terminal, "a terminal run changed"
    assert after.sequence == before.sequence + 1
    for name, step in before.steps.items():
        if step.state.terminal:
            assert after.steps[name] is step, "a terminal step changed"
    running = [step for step in after.steps.values() if step.state is StepState.RUNNING]
    for step in after.steps.values():
        live = step.attempt is not None and not step.attempt.state.terminal
        assert live == (step.state is StepState.RUNNING), "one live attempt, and only while it runs"
    if plan.workflow.concurrency:
        assert len(running) <= plan.workflow.concurrency
    for effect in effects:
        if isinstance(effect, LaunchAttempt):
            launched = after.steps[effect.attempt.step]
            assert launched.attempt is effect.attempt
            assert after.ending is None, "something started while the run was ending"
            for needed in plan.steps[launched.id].depends_on:
                assert after.steps[needed].state in (StepState.SUCCEEDED, StepState.FAILED)
    assert after.failed_steps == sum(s.state is StepState.FAILED for s in after.steps.values())
    assert after.ended_steps == sum(s.state.terminal for s in after.steps.values())
    assert after.state.terminal == (after.ended_steps == len(after.steps))
    assert after.state.terminal == any(isinstance(effect, ForgetRun) for effect in effects)
    assert (after.finished_at is not None) == after.state.terminal


__all__ = ["EPOCH", "CancelRequested", "Simulator", "check_rules", "workflow"]
