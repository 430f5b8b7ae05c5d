"""Which steps run, and which results of earlier runs are reused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from toban.definition import parse
from toband.domain.plan import Plan
from toband.domain.run_model import Run, RunState, SkipReason, StepRun, StepState, Trigger
from toband.engine.errors import NothingToRunError, StepNotSkippableError, UnknownScopeError, UnknownStepError
from toband.engine.runs.run_preview import in_order
from toband.engine.runs.step_selection import (
    WHAT_FAILED,
    RetrySelection,
    Selection,
    borrow,
    borrowed_steps,
    chosen_steps,
    definition_scope,
    keep,
    kept_instances,
    repeated_steps,
    skipped_steps,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DIAMOND = """
name: w
description: x
scopes: {left: [a, b], last: [d]}
steps:
  d: {run: "echo {{ steps.b.stdout }}", depends_on: [b, c]}
  a: {run: x, outputs: [{name: made, path: made}]}
  b: {run: x, depends_on: [a]}
  c: {run: x, depends_on: [a], inputs: [{from: a, artifact: made}], when: steps.a.exit_code == 0}
"""


def plan_of(text: str) -> Plan:
    parsed = parse(text)
    assert parsed.ok, parsed.problems
    workflow = parsed.documents[0].workflow
    assert workflow is not None
    return Plan(workflow)


def ended(plan: Plan, states: dict[str, str], **facts: object) -> Run:
    """A run whose steps have ended so: `FAILED`, `SKIPPED(aborted)`; SUCCEEDED if nothing is said."""
    run = plan.new_run(run_id="old", version=1, params={}, trigger=Trigger.API, caller="", at=NOW)
    steps: dict[str, StepRun] = {}
    for name, step in run.steps.items():
        state, _, reason = states.get(name, "SUCCEEDED").partition("(")
        done = StepState(state)
        attempts = 0 if done is StepState.SKIPPED else 1
        why = SkipReason(reason.strip(")")) if reason else None
        steps[name] = replace(step, state=done, skip_reason=why, attempts=attempts)
    return replace(run, state=RunState.FAILED, steps=steps)


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), None),
        (Selection(scope="full"), None),
        (Selection(scope="left"), {"a", "b"}),
        (Selection(only=("b", "c")), {"b", "c"}),
        (Selection(from_steps=("b",)), {"b", "d"}),
        (Selection(scope="left", from_steps=("b",)), {"b"}),
    ],
)
def test_steps_are_chosen(selection: Selection, chosen: set[str] | None) -> None:
    assert chosen_steps(plan_of(DIAMOND), selection) == chosen


@pytest.mark.parametrize(
    ("selection", "error"),
    [
        (Selection(scope="right"), UnknownScopeError),
        (Selection(only=("z",)), UnknownStepError),
        (Selection(from_steps=("z",)), UnknownStepError),
        (Selection(scope="last", only=("a",)), NothingToRunError),
    ],
)
def test_what_cannot_be_chosen(selection: Selection, error: type[Exception]) -> None:
    with pytest.raises(error):
        chosen_steps(plan_of(DIAMOND), selection)


@pytest.mark.parametrize(
    ("selection", "chosen", "scope"),
    [
        (Selection(), {"a", "c"}, "full"),
        (Selection(scope="full"), {"a", "c"}, "full"),
        (Selection(scope="full", only=("c", "d")), {"c"}, "full"),
        (Selection(only=("d",)), {"d"}, ""),
        (Selection(from_steps=("c",)), {"c", "d"}, ""),
        (Selection(scope="left"), {"a", "b"}, "left"),
    ],
)
def test_a_defined_scope_full_is_used_without_a_selection(selection: Selection, chosen: set[str], scope: str) -> None:
    plan = plan_of(DIAMOND.replace("scopes: {", "scopes: {full: [a, c], "))
    assert chosen_steps(plan, selection) == chosen
    run = plan.new_run(
        run_id="r", version=1, params={}, trigger=Trigger.API, caller="", at=NOW, scope=selection.shown, chosen=chosen
    )
    assert definition_scope(plan.workflow, run) == scope
    assert definition_scope(plan_of(DIAMOND).workflow, replace(run, scope="full")) == ""


def test_a_run_says_what_was_asked_for() -> None:
    assert Selection().shown == "full"
    assert Selection(scope="left").shown == "left"
    assert Selection(only=("a", "b"), from_steps=("c",)).shown == "only a, b; from c"


def test_only_what_is_used_of_others_is_borrowed() -> None:
    plan = plan_of(DIAMOND)
    assert borrowed_steps(plan, {"d"}) == {"b"}
    assert borrowed_steps(plan, {"c", "d"}) == {"a", "b"}
    assert borrowed_steps(plan, {"a", "b"}) == set()


def test_a_borrowed_step_is_out_of_scope_and_knows_its_source() -> None:
    plan = plan_of(DIAMOND)
    taken = borrow(plan, ended(plan, {}), "b", NOW)["b"]
    assert (taken.state, taken.skip_reason, taken.source) == (StepState.SKIPPED, SkipReason.SCOPE, "old")


@pytest.mark.parametrize(
    ("states", "asked", "everything", "again"),
    [
        ({"b": "FAILED", "d": "SKIPPED(aborted)"}, (), False, {"b", "d"}),
        ({"c": "SKIPPED(when)"}, (), False, set()),
        ({"a": "SKIPPED(cancelled)", "b": "SKIPPED(cancelled)"}, (), False, {"a", "b", "c", "d"}),
        ({"d": "INCOMPLETE"}, (), False, set()),
        ({}, ("c",), False, {"c", "d"}),
        ({"b": "FAILED", "c": "FAILED"}, ("c",), False, {"c", "d", "b"}),
        ({}, (), True, {"a", "b", "c", "d"}),
        ({"a": "SKIPPED(scope)", "c": "SKIPPED(scope)", "b": "CANCELLED"}, (), False, {"b", "d"}),
        ({"a": "SKIPPED(scope)"}, (), True, {"b", "c", "d"}),
    ],
)
def test_what_a_retry_repeats(
    states: dict[str, str], asked: tuple[str, ...], everything: bool, again: set[str]
) -> None:
    plan = plan_of(DIAMOND)
    wish = RetrySelection(from_steps=asked, everything=everything)
    assert repeated_steps(plan, plan, ended(plan, states), wish) == again


def test_a_step_that_changed_is_repeated_with_all_after_it() -> None:
    before = plan_of(DIAMOND)
    now = plan_of(DIAMOND.replace("b: {run: x", "b: {run: y"))
    assert repeated_steps(now, before, ended(before, {}), WHAT_FAILED) == {"b", "d"}


def test_a_step_that_is_new_is_executed() -> None:
    before = plan_of(DIAMOND)
    now = plan_of(DIAMOND + "  e: {run: x, depends_on: [c]}\n")
    assert repeated_steps(now, before, ended(before, {}), WHAT_FAILED) == {"e"}


def test_what_is_kept_has_its_place_in_the_new_definition() -> None:
    before = plan_of(DIAMOND)
    now = plan_of(DIAMOND.replace("steps:\n", "steps:\n  z: {run: x}\n"))
    run = ended(before, {"b": "FAILED", "c": "SKIPPED(when)"})
    kept = keep(now, run, {"b", "d", "z"})
    assert {name: (step.index, step.state, step.skip_reason) for name, step in kept.items()} == {
        "a": (2, StepState.SUCCEEDED, None),
        "c": (4, StepState.SKIPPED, SkipReason.WHEN),
    }
    assert (kept["a"].source, kept["c"].source) == ("old", "")


def test_the_instances_of_a_kept_step_are_kept_with_it() -> None:
    plan = plan_of("name: w\ndescription: x\nsteps: {a: {run: x, for_each: '[1, 2]'}, b: {run: x}}")
    run = ended(plan, {"b": "FAILED"})
    members = {
        f"a[{n}]": StepRun(id=f"a[{n}]", index=0, parent="a", instance=n, state=StepState.SUCCEEDED, attempts=1)
        for n in range(2)
    }
    group = replace(run.steps["a"], instances=2, ended=2, released=2)
    run = replace(run, steps={**run.steps, "a": group, **members})
    kept = keep(plan, run, {"b"})
    assert list(kept) == ["a", "a[0]", "a[1]"]
    assert {step.source for step in kept.values()} == {"old"}


def test_steps_in_an_order_in_which_they_could_run() -> None:
    assert in_order(plan_of(DIAMOND)) == ["a", "b", "c", "d"]


EACH = """
name: w
description: x
params: {files: {type: list, default: [1, 2, 3]}}
steps:
  a: {run: x}
  b: {run: "echo {{ item }}", for_each: "params.files", depends_on: [a]}
  c: {run: x, depends_on: [b]}
"""


def expanded(plan: Plan, states: dict[str, str], *instances: str) -> Run:
    """A run whose step `b` has instances that have ended so."""
    run = ended(plan, states)
    members = {
        f"b[{number}]": StepRun(
            id=f"b[{number}]", index=1, parent="b", instance=number, item=number + 1, state=StepState(state), attempts=1
        )
        for number, state in enumerate(instances)
    }
    group = replace(run.steps["b"], instances=len(instances), released=len(instances), ended=len(instances))
    return replace(run, steps={**run.steps, "b": group, **members})


@pytest.mark.parametrize(
    ("states", "instances", "wish", "same_params", "again"),
    [
        ({"b": "FAILED"}, "SFS", WHAT_FAILED, True, [1]),
        ({"b": "CANCELLED"}, "SCC", WHAT_FAILED, True, [1, 2]),
        ({"b": "FAILED"}, "SFS", RetrySelection(from_steps=("b[0]",)), True, [0, 1]),
        # Otherwise all of them, which the definition expands anew.
        ({"b": "FAILED"}, "FFF", WHAT_FAILED, True, None),
        ({"b": "FAILED"}, "SFS", WHAT_FAILED, False, None),
        ({"a": "FAILED", "b": "FAILED"}, "SFS", WHAT_FAILED, True, None),
        ({"b": "FAILED"}, "SFS", RetrySelection(from_steps=("b",)), True, None),
        ({"b": "FAILED"}, "SFS", RetrySelection(everything=True), True, None),
    ],
)
def test_a_retry_keeps_the_instances_that_succeeded(
    states: dict[str, str], instances: str, wish: RetrySelection, same_params: bool, again: list[int] | None
) -> None:
    plan = plan_of(EACH)
    word = {"S": "SUCCEEDED", "F": "FAILED", "C": "CANCELLED"}
    run = expanded(plan, states, *(word[letter] for letter in instances))
    repeated = repeated_steps(plan, plan, run, wish)
    found = kept_instances(plan, plan, run, repeated, wish, same_params=same_params)
    if again is None:
        assert found == {}
        return
    group = found.pop("b")
    assert (group.state, group.instances, group.ended) == (StepState.PENDING, 3, 3 - len(again))
    assert [step.instance for step in found.values() if step.state is StepState.PENDING] == again
    assert {step.item for step in found.values()} == {1, 2, 3}
    assert {step.source for step in found.values() if step.state.terminal} == {"old"}


def test_a_changed_for_each_step_keeps_no_instance() -> None:
    before, now = plan_of(EACH), plan_of(EACH.replace("echo {{", "cat {{"))
    run = expanded(before, {"b": "FAILED"}, "SUCCEEDED", "FAILED")
    assert kept_instances(now, before, run, {"b", "c"}, WHAT_FAILED, same_params=True) == {}


def test_a_skipped_step_counts_as_succeeded() -> None:
    plan = plan_of(EACH)
    run = expanded(plan, {"b": "FAILED", "c": "SKIPPED(aborted)"}, "SUCCEEDED", "FAILED")
    wish = RetrySelection(skip=("b",), by="ann", note="known")
    assert repeated_steps(plan, plan, run, wish) == {"c"}
    skipped = skipped_steps(plan, run, wish, NOW)
    assert {name: step.state.value for name, step in skipped.items()} == {
        "b": "SKIPPED",
        "b[0]": "SUCCEEDED",
        "b[1]": "SKIPPED",
    }
    step = skipped["b"]
    assert (step.skip_reason, step.skipped_by, step.skip_note) == (SkipReason.REQUESTED, "ann", "known")
    assert step.source == "old"
    # A retry of the retry keeps it.
    again = replace(run, steps={**run.steps, **skipped, "c": replace(run.steps["c"], state=StepState.FAILED)})
    assert repeated_steps(plan, plan, again, WHAT_FAILED) == {"c"}


@pytest.mark.parametrize(("step", "error"), [("a", StepNotSkippableError), ("z", UnknownStepError)])
def test_a_step_that_cannot_be_skipped(step: str, error: type[Exception]) -> None:
    plan = plan_of(EACH)
    with pytest.raises(error):
        skipped_steps(plan, ended(plan, {"b": "FAILED"}), RetrySelection(skip=(step,)), NOW)


TIDY = f"{DIAMOND}finally: {{tidy: {{run: 'echo {{{{ steps.d.status }}}}'}}, tell: {{run: x}}}}\n"


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), None),
        (Selection(scope="left"), {"a", "b", "tidy", "tell"}),
        (Selection(from_steps=("a",)), None),
        (Selection(only=("tell",)), {"tidy", "tell"}),
    ],
)
def test_every_selection_has_all_finally_steps(selection: Selection, chosen: set[str] | None) -> None:
    plan = plan_of(TIDY)
    assert chosen_steps(plan, selection) == chosen
    assert borrowed_steps(plan, {"a", "tidy", "tell"}) == set(), "they see only what ran"
    assert in_order(plan) == ["a", "b", "c", "d", "tidy", "tell"]


def test_a_failed_finally_step_is_a_reason_to_retry() -> None:
    plan = plan_of(TIDY)
    assert repeated_steps(plan, plan, ended(plan, {}), WHAT_FAILED) == set()
    run = ended(plan, {"tell": "FAILED"})
    assert repeated_steps(plan, plan, run, WHAT_FAILED) == {"tell"}
    with pytest.raises(StepNotSkippableError, match="every retry runs all finally steps again"):
        skipped_steps(plan, run, RetrySelection(skip=("tell",)), NOW)
