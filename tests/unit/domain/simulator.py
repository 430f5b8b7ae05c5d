"""Runs the pure core in virtual time: attempts follow a script, and every invariant is checked after every event."""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, assert_never

from toban.definition import ErrorClass, Workflow
from toband.domain.attempt_model import Attempt, Orphans, TreeCause, TreeEnding
from toband.domain.plan import Plan
from toband.domain.run_events import (
    AttemptEnded,
    AttemptLost,
    AttemptStarted,
    AttemptVoided,
    BeginWait,
    BegunWait,
    ChildEnded,
    CollectionFailed,
    CollectOutputs,
    Effect,
    EvaluateStep,
    EvaluationFailed,
    Event,
    FinallyTimeoutPassed,
    ForgetRun,
    IterationDue,
    KeepDeadLetter,
    KeepWaiting,
    LaunchAttempt,
    LaunchDue,
    LaunchReady,
    OutputsCollected,
    RetryDue,
    RunStarted,
    RunTimeoutPassed,
    StartFinallyTimer,
    StartIterationTimer,
    StartRetryTimer,
    StartRunTimer,
    StartStepTimer,
    StepEvaluated,
    StepTimeoutPassed,
    StopAttempt,
    StopCollection,
    WaitFailed,
    WaitOver,
    WaitsBegun,
    not_started,
)
from toband.domain.run_model import Artifact, Awaited, DeadLetter, Run, RunState, Trigger
from toband.domain.transition import Ids, effects_of, transition

from .case_reader import COLLECTING, EVALUATING, REACTION, SLOW, SLOWLY, Lasts, one_second
from .rules import check_rules

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_CHILD = {
    "child_cancelled": RunState.CANCELLED,
    "child_failed": RunState.FAILED,
    "child_timed_out": RunState.TIMED_OUT,
}

_ENDS_OF_RUNS = (TreeCause.CANCEL, TreeCause.RUN_TIMEOUT, TreeCause.FINALLY_TIMEOUT)


@dataclass
class _Process:
    """A live attempt, as its supervisor sees it. The first signal says what it will have ended of."""

    attempt: Attempt
    outcome: int | str
    began: float
    signalled: TreeCause | None = None

    @property
    def quick(self) -> bool:
        """About to end by itself when the run's end reaches it."""
        return self.outcome not in SLOWLY


@dataclass
class Simulator:
    """`outcomes` say what each launch of a step does: an exit code, or a word; `policy_cases.yaml` has the words.

    `lasts` says how many seconds a launch takes, by the name of the step and the number of the launch.
    """

    workflow: Workflow
    outcomes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    chosen: Sequence[str] | None = None
    lasts: Lasts = one_second
    random: Callable[[], float] = lambda: 0.5
    restart_every: int = 0
    """After so many changes the daemon is restarted, again and again; 0: never."""

    def __post_init__(self) -> None:
        self.plan = Plan(self.workflow)
        self.now = 0.0
        counter = itertools.count()
        self.ids = Ids(
            new_id=lambda: f"id{next(counter)}",
            new_token=lambda: f"token{next(counter)}",
            random=self.random,
        )
        self.run = self.plan.new_run(
            run_id="r",
            version=1,
            params={},
            trigger=Trigger.API,
            caller="",
            at=EPOCH,
            chosen=self.chosen,
        )
        self.live: dict[str, _Process] = {}
        self.launched: list[Attempt] = []
        self.letters: list[DeadLetter] = []
        self.effects: list[Effect] = []
        self.forgotten = 0
        self._changes = 0
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, Event | Callable[[], None]]] = []
        self._forgettable: dict[int, Event] = {}
        self._work: dict[tuple[str, str], float] = {}
        self._left = {step: list(script) for step, script in self.outcomes.items()}
        self._launches: dict[str, int] = {}
        self._said: dict[str, int | str] = {}
        self._prints: dict[str, int] = {}
        self._seen: set[str] = set()
        self._after: dict[str, Event] = {}

    def at(self, when: float, what: Event | Callable[[], None]) -> None:
        self._put(when, next(self._order), what)

    def ask(self, when: float, event: Event) -> None:
        """What the daemon asked for itself, and forgets when it is restarted."""
        order = next(self._order)
        self._forgettable[order] = event
        self._put(max(when, self.now), order, event)

    def _put(self, when: float, order: int, what: Event | Callable[[], None]) -> None:
        # In whole microseconds, as the times of the daemon are: what comes next stays next.
        heapq.heappush(self._agenda, (round(when, 6), order, what))

    def restart(self) -> None:
        """The daemon comes back with what is stored, and asks for what it needs; processes and children live on."""
        self._agenda = [entry for entry in self._agenda if entry[1] not in self._forgettable]
        heapq.heapify(self._agenda)
        self.run = replace(self.run, steps=dict(self.run.steps), touched=None)
        for effect in effects_of(self.plan, self.run):
            self._carry_out(effect)

    def after_end_of(self, step: str, event: Event) -> None:
        self._after[step] = event

    def play(self) -> Run:
        """Until nothing more can happen."""
        self.at(0, RunStarted())
        return self.go_on()

    def go_on(self, until: float | None = None) -> Run:
        """Until then, or until nothing more can happen."""
        for _ in range(10_000):
            if not self._agenda or (until is not None and self._agenda[0][0] > until):
                self.now = self.now if until is None else until
                return self.run
            self.now, _, what = heapq.heappop(self._agenda)
            if callable(what):
                what()
            else:
                self.deliver(what)
        raise AssertionError("the run never comes to rest")

    def deliver(self, event: Event) -> None:
        before = self.run
        if isinstance(event, AttemptEnded | AttemptLost | AttemptVoided | ChildEnded):
            self.live.pop(event.token, None)
        self.run, effects = transition(self.plan, before, event, at=EPOCH + timedelta(seconds=self.now), ids=self.ids)
        check_rules(self.plan, before, self.run, event, effects, EPOCH + timedelta(seconds=self.now))
        self.effects += effects
        for effect in effects:
            self._carry_out(effect)
        self._changes += self.run is not before
        if self.run is not before and self.restart_every and not self._changes % self.restart_every:
            self.restart()
        for step in [name for name in self._after if self.run.steps[name].state.terminal]:
            self.deliver(self._after.pop(step))

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case LaunchAttempt():
                self._begin(effect.attempt)
            case StopAttempt():
                self._signal(effect.attempt.token, TreeCause.CANCEL)
            case StartRunTimer():
                self.ask(self._seconds(effect.due), RunTimeoutPassed())
            case StartFinallyTimer():
                self.ask(self._seconds(effect.due), FinallyTimeoutPassed())
            case StartRetryTimer():
                self.ask(self._seconds(effect.due), RetryDue(step=effect.step, retries=effect.retries))
            case StartIterationTimer():
                self.ask(self._seconds(effect.due), IterationDue(step=effect.step, iteration=effect.iteration))
            case StartStepTimer():
                self.ask(
                    self._seconds(effect.due),
                    StepTimeoutPassed(step=effect.step, attempts=effect.attempts),
                )
            case EvaluateStep():
                takes = EVALUATING * self.lasts(f"{effect.step}.when", 1)
                # Work that is begun again takes no longer for it, so that the times stay comparable.
                due = self._work.setdefault(("evaluate", effect.step), self.now + takes)
                self.ask(due, self._evaluated(effect.step))
            case BeginWait():
                self._begin_wait(effect.step)
            case KeepWaiting():
                step = self.run.steps[effect.step]
                assert step.awaited is not None
                if step.awaited.until is not None:
                    self.ask(self._seconds(step.awaited.until), WaitOver(step=step.id, attempts=step.attempts))
            case CollectOutputs():
                due = self._work.setdefault(("collect", effect.attempt.token), self.now + COLLECTING)
                self.ask(due, self._collected(effect))
            case StopCollection():
                pass  # it is over before it could be broken off
            case KeepDeadLetter():
                self.letters.append(effect.letter)
            case LaunchReady():
                self.ask(self.now, LaunchDue())
            case ForgetRun():
                self.forgotten += 1
            case _:
                assert_never(effect)

    def _begin_wait(self, name: str) -> None:
        step, wait = self.run.steps[name], self.plan.step(name).wait
        assert wait is not None
        takes = EVALUATING * self.lasts(f"{name}.wait", 1)
        due = self._work.setdefault((f"wait {step.attempts}", name), self.now + takes)
        if isinstance(wait.duration, str):
            self.ask(due, WaitFailed(step=name, attempts=step.attempts, error="it has no value"))
            return
        awaited = Awaited(events=wait.events, file=wait.file)
        self.ask(due, WaitsBegun(waits=(BegunWait(step=name, attempts=step.attempts, awaited=awaited),)))

    def come(self, name: str) -> None:
        """What a step waits for comes, whether or not it waits for it now."""
        step, wait = self.run.steps.get(name), self.plan.step(name).wait
        assert wait is not None
        if step is not None and step.awaited is not None:
            event = {"type": wait.events[0]} if wait.events else None
            self.deliver(WaitOver(step=name, attempts=step.attempts, event=event))

    def _evaluated(self, name: str) -> Event:
        step = self.plan.steps[name]
        try:
            when = json.loads(step.when or "true")
            items = json.loads(step.for_each) if when and step.for_each is not None else None
        except ValueError:
            return EvaluationFailed(step=name, error="it has no value")
        return StepEvaluated(step=name, when=when, items=None if items is None else tuple(items))

    def _collected(self, effect: CollectOutputs) -> Event:
        name, token = effect.attempt.owner, effect.attempt.token
        outcome = self._said[token]
        promised = self.plan.step(name).outputs
        if outcome == "missing" and effect.final and promised:
            return CollectionFailed(step=name, token=token, error='output "o" is missing')
        if token not in self._seen:
            self._seen.add(token)
            self._prints[name] = self._prints.get(name, 0) + (outcome != "same")
        outputs = () if outcome == "missing" else promised
        return OutputsCollected(
            step=name,
            token=token,
            artifacts=tuple(Artifact(name=o.name, path=f"{name}/{o.name}") for o in outputs),
            fingerprint=str(self._prints[name]) if self.plan.step(name).stop_when_unchanged else "",
        )

    def _begin(self, attempt: Attempt) -> None:
        script = self._left.get(attempt.step, [])
        outcome = script.pop(0) if script else 0
        number = self._launches[attempt.step] = self._launches.get(attempt.step, 0) + 1
        process = _Process(attempt=attempt, outcome=outcome, began=self.now)
        self.live[attempt.token] = process
        self.launched.append(attempt)
        self._said[attempt.token] = outcome
        lasts = self.lasts(attempt.step, number)
        if outcome == "slow":
            lasts *= SLOW
        if outcome not in ("nostart", "void"):
            self.at(self.now + 0.5, self._started(attempt))
            self._keep_deadlines(attempt)
        if outcome not in ("hang", "hang_ignoring_term"):
            self.at(self.now + lasts, partial(self._end, attempt.token))

    def _end(self, token: str) -> None:
        """A process comes to its own end, unless something else ended it before."""
        process = self.live.get(token)
        if process is None or process.signalled is not None:
            return
        attempt, outcome = process.attempt, process.outcome
        if attempt.child:
            self.deliver(self._child(process, _CHILD.get(str(outcome), RunState.SUCCEEDED)))
            return
        match outcome:
            case "lost" | "lost_unproved":
                orphans = Orphans.ENDED if outcome == "lost" else Orphans.UNKNOWN
                self.deliver(AttemptLost(step=attempt.step, token=token, error="gone", orphans=orphans))
            case "limit":
                self.deliver(self._ended(process, TreeCause.LIMIT, signal=9))
            case "nostart":
                self.deliver(not_started(attempt, "cannot start it", self._time()))
            case "void":
                self.deliver(AttemptVoided(step=attempt.step, token=token))
            case "outside":
                self.deliver(self._ended(process, TreeCause.CANCEL, signal=15))
            case "killed":
                self.deliver(self._ended(process, TreeCause.EXITED, signal=9))
            case "slow" | "missing" | "same":
                self.deliver(self._ended(process, TreeCause.EXITED, exit_code=0))
            case str() if outcome in ErrorClass.__members__:
                said = {"toban.error_class": outcome}
                self.deliver(self._ended(process, TreeCause.EXITED, exit_code=1, outputs=said))
            case int():
                self.deliver(self._ended(process, TreeCause.EXITED, exit_code=outcome))
            case _:
                raise ValueError(f"unknown outcome {outcome!r}")

    def _keep_deadlines(self, attempt: Attempt) -> None:
        """As the shim does: whichever comes first, and it says which. A child has none; timers are kept for it."""
        if attempt.child:
            return
        step, run = self.plan.step(attempt.owner), self.run
        signal = partial(self._signal, attempt.token)
        if step.completion_check is not None and step.timeout is not None:
            began = run.steps[attempt.owner].started_at
            assert began is not None
            whole = self._seconds(began) + step.timeout
            self.at(max(self.now, whole), partial(signal, TreeCause.LOOP_TIMEOUT))
        own = self.plan.definition(attempt.step).timeout
        if own is not None and (attempt.check or step.completion_check is None):
            self.at(self.now + own, partial(signal, TreeCause.TIMEOUT))
        if (idle := self.plan.definition(attempt.step).idle_timeout) is not None:
            self.at(self.now + idle, partial(signal, TreeCause.IDLE_TIMEOUT))
        if run.finally_part is not None:
            whole = self._seconds(run.finally_part.began_at) + self.workflow.finally_timeout
            self.at(max(self.now, whole), partial(signal, TreeCause.FINALLY_TIMEOUT))
        elif run.timeout is not None:
            self.at(max(self.now, run.timeout), partial(signal, TreeCause.RUN_TIMEOUT))

    def _signal(self, token: str, cause: TreeCause) -> None:
        """TERM to a tree: the first one counts."""
        process = self.live.get(token)
        if process is None or process.signalled is not None:
            return
        if process.quick and cause in _ENDS_OF_RUNS:
            return
        process.signalled = cause
        stubborn = process.outcome == "hang_ignoring_term"
        after = self.plan.step(process.attempt.owner).kill_grace if stubborn else REACTION
        self.at(self.now + after, partial(self._die, process, 9 if stubborn else 15))

    def _die(self, process: _Process, signum: int) -> None:
        assert process.signalled is not None
        if process.attempt.child:
            self.deliver(self._child(process, RunState.CANCELLED))
        else:
            self.deliver(self._ended(process, process.signalled, signal=signum))

    def _started(self, attempt: Attempt) -> AttemptStarted:
        began = EPOCH + timedelta(seconds=self.now + 0.5)
        return AttemptStarted(step=attempt.step, token=attempt.token, pid=1, started_at=began)

    def _ended(self, process: _Process, cause: TreeCause, **changes: Any) -> AttemptEnded:
        return AttemptEnded(
            step=process.attempt.step,
            token=process.attempt.token,
            started_at=EPOCH + timedelta(seconds=process.began),
            finished_at=self._time(),
            ending=TreeEnding(cause=cause, proved_empty=True),
            **changes,
        )

    def _child(self, process: _Process, state: RunState) -> ChildEnded:
        return ChildEnded(
            step=process.attempt.step,
            token=process.attempt.token,
            state=state,
            error="",
            number=1,
            started_at=EPOCH + timedelta(seconds=process.began),
            finished_at=self._time(),
        )

    def _time(self) -> datetime:
        return EPOCH + timedelta(seconds=self.now)

    def _seconds(self, when: datetime) -> float:
        return (when - EPOCH).total_seconds()
