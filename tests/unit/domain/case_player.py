"""Plays a case of the table by the daemon's rules."""

from __future__ import annotations

from functools import partial

from toban.definition import JobType
from toband.domain.run_events import (
    CancelRequested,
    DecisionMade,
    Event,
    PauseRequested,
    ResumeRequested,
)
from toband.domain.run_model import StepState

from .case_reader import Case, Ends, Lasts, one_second
from .simulator import Simulator
from .workflow_builder import workflow


def simulate(case: Case, lasts: Lasts = one_second) -> Simulator:
    """Plays a case of the table."""
    definition = workflow(
        case["steps"],
        concurrency=case.get("concurrency"),
        timeout=case.get("timeout"),
        last=case.get("finally"),
        finally_timeout=case.get("finally_timeout", "5m"),
    )
    simulator = Simulator(definition, case.get("outcomes", {}), chosen=case.get("scope"), lasts=lasts)
    simulator.restart_every = case.get("restart_every", 0)
    for when, what in case.get("events", {}).items():
        for each in what if isinstance(what, list) else [what]:
            if each.startswith("come "):
                simulator.at(when, partial(simulator.come, each.removeprefix("come ")))
                continue
            event = event_of(each)
            if isinstance(when, str):
                simulator.after_end_of(when.removeprefix("after_end_of_"), event)
            else:
                simulator.at(when, event)
    simulator.play()
    return simulator


def event_of(text: str) -> Event:
    word, _, step = text.partition(" ")
    match word:
        case "cancel":
            return CancelRequested(ends_finally=True)
        case "replace":
            return CancelRequested()
        case "pause":
            return PauseRequested()
        case "resume":
            return ResumeRequested()
        case "approve" | "reject":
            return DecisionMade(step=step, approved=word == "approve", by="uid:1000")
        case _:
            raise AssertionError(f"unknown event {text!r}")


def ends_of(simulator: Simulator) -> Ends:
    """What came of the run, in the words of the table."""
    run = simulator.run
    states, attempts, iterations = {}, {}, {}
    for name, step in run.steps.items():
        skipped = step.state is StepState.SKIPPED
        states[name] = f"SKIPPED({step.skip_reason})" if skipped else step.state.value
        if step.instances:
            continue
        if step.attempts and simulator.plan.step(name).job_type not in (JobType.APPROVAL, JobType.WAIT):
            attempts[name] = step.attempts
        if step.checks:
            attempts[f"{name}.check"] = step.checks
        if step.attempts and simulator.plan.step(name).completion_check is not None:
            iterations[name] = step.iteration
    return Ends(
        run=run.state.value,
        steps=states,
        attempts=attempts,
        iterations=iterations,
        failed=run.failed_steps,
        incomplete=run.incomplete_steps,
        dead_letters=sorted(letter.step for letter in simulator.letters),
    )
