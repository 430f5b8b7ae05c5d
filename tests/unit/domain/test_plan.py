"""The shape of a workflow, and the runs that are made of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from toband.domain.plan import Plan
from toband.domain.run_events import RunStarted
from toband.domain.run_model import Run, RunState, SkipReason, StepRun, StepState, Trigger
from toband.domain.transition import transition

from .simulator import EPOCH, Simulator
from .workflow_builder import workflow

STEPS: dict[str, dict[str, Any]] = {
    "a": {},
    "b": {"depends_on": ["a"], "completion_check": {}, "max_iterations": 2},
    "c": {"depends_on": ["a"], "for_each": "[1]"},
    "d": {"depends_on": ["b", "c"]},
    "e": {},
}


def new_run(plan: Plan, **changes: Any) -> Run:
    return plan.new_run(run_id="r", version=3, params={}, trigger=Trigger.RETRY, caller="uid:1", at=EPOCH, **changes)


def test_what_comes_after() -> None:
    plan = Plan(workflow(STEPS))
    assert plan.after(["b"]) == {"b", "d"}
    assert plan.after(["a"]) == {"a", "b", "c", "d"}
    assert plan.after(["e"]) == {"e"}
    assert plan.after([]) == set()


def test_titles_and_labels_of_steps() -> None:
    defined = workflow(STEPS)
    named = replace(defined, steps={**defined.steps, "c": replace(defined.steps["c"], name="集計")})
    plan = Plan(named)
    assert [plan.title(name) for name in ("a", "b.check", "c", "c[3]")] == ["", "", "集計", "集計"]
    assert [plan.label(name) for name in ("a", "c", "c[3]")] == ["a", "集計 (c)", "集計 (c[3])"]


def test_names_of_attempts_and_instances() -> None:
    plan = Plan(workflow(STEPS))
    assert plan.step("c[12]") is plan.steps["c"]
    assert plan.definition("b") is plan.steps["b"]
    assert plan.definition("b.check") is plan.steps["b"].completion_check
    assert plan.definition("c[0]") is plan.steps["c"]


def test_kept_results_are_there_from_the_beginning() -> None:
    plan = Plan(workflow(STEPS))
    kept = {
        name: StepRun(
            id=name,
            index=index,
            state=StepState.SUCCEEDED,
            source="old",
            finished_at=EPOCH,
            **more,
        )
        for name, index, more in (
            ("a", 0, {"result": {"n": 1}}),
            ("c", 2, {"instances": 1}),
            ("c[0]", 2, {"parent": "c", "instance": 0}),
        )
    }
    run = new_run(plan, kept=kept, chosen=["b", "d"], retry_of="old")
    assert (run.retry_of, run.ended_steps, run.total_steps) == ("old", 3, 5)
    assert run.steps["a"] is kept["a"]
    assert run.steps["c[0]"] is kept["c[0]"]
    assert (run.steps["e"].state, run.steps["e"].skip_reason) == (StepState.SKIPPED, SkipReason.SCOPE)

    simulator = Simulator(plan.workflow)
    simulator.run = run
    assert simulator.play().state is RunState.SUCCEEDED
    assert [each.step for each in simulator.launched] == ["b", "b.check", "d"]
    assert simulator.run.steps["a"] is kept["a"]


def test_a_run_of_which_all_is_kept_is_over_when_it_starts() -> None:
    plan = Plan(workflow({"a": {}}))
    kept = {"a": StepRun(id="a", index=0, state=StepState.SUCCEEDED, finished_at=EPOCH)}
    run = new_run(plan, kept=kept)
    assert run.state is RunState.PENDING
    after, effects = transition(plan, run, RunStarted(), at=EPOCH, ids=Simulator(plan.workflow).ids)
    assert after.state is RunState.SUCCEEDED
    assert [type(effect).__name__ for effect in effects] == ["ForgetRun"]


def test_a_chain_with_everything_before_it_in_place_starts_in_its_middle() -> None:
    plan = Plan(workflow({"a": {}, "b": {"depends_on": ["a"]}, "c": {"depends_on": ["b"]}}))
    simulator = Simulator(plan.workflow)
    simulator.run = new_run(plan, chosen=["c"])
    assert simulator.play().state is RunState.SUCCEEDED
    assert [each.step for each in simulator.launched] == ["c"]
