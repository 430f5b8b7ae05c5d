"""Which expressions are evaluated at once, and which only where they can be ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban.definition import (
    CostlyError,
    EventView,
    RenderError,
    Scope,
    Workflow,
    evaluate_when,
    judge_conditions,
    render,
)
from toban.definition.expressions.expression_cost import cheap_up_to, is_cheap

Read = Callable[[str], Workflow]

KIB = 1024


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("params.day == 'all'", 100),
        ("steps.a.stdout + ' ' + params.x", 128 * KIB),
        ("event.payload.name.startsWith('x') && size(event.payload.tags) > 3", 64 * KIB),
        ("event.payload.name.matches('^nightly-[0-9]+$')", 2 * KIB),
        (r"event.payload.name.matches('^nightly-\\d+\\.txt$')", 2 * KIB),
        (r"event.payload.name.matches(r'^nightly-\d+\.txt$')", 2 * KIB),
        ("event.payload.tags.exists(tag, tag == 'x')", 2 * KIB),
        ("params.xs.map(x, x * 2)", 500),
        ("params.all == 1", 1024 * KIB),
    ],
)
def test_usual_expressions_are_cheap(text: str, size: int) -> None:
    assert is_cheap(text, size)
    assert cheap_up_to(text) >= size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("['x']" + ".map(v, v + v + v + v)" * 15, 0),
        ("params.s + " * 30 + "params.s", 1024 * KIB),
        ("params.xs.map(x, x)", 20 * KIB),
        ("params.xs. // nothing\n map // to see\n (x, x)", 20 * KIB),
        ("params.xs.map(x, params.xs.exists(y, y == x))", 4 * KIB),
        ("params.s.matches('(a?){300}')", 0),
        ("params.s.matches(params.t)", 0),
        (r"params.s.matches('\\pL+')", 0),
        (r"params.s.matches(r'\pL+')", 0),
        (r"params.s.matches('(a?)\x7b300}')", 0),
        (r"params.s.matches('\\\160L+')", 0),
        ("params.s.matches('" + "a?" * 100 + "')", 0),
        ("params.s.matches('x')", 1024 * KIB),
        ("1" + " " * 3000, 0),
    ],
)
def test_what_may_take_long_is_costly(text: str, size: int) -> None:
    assert not is_cheap(text, size)
    assert cheap_up_to(text) < size


PARTS = st.sampled_from(
    [
        *("['x']", "params.xs", "params.s", ".map(v, v + v)", ".filter(v, true)", "[0]", " + "),
        *(".map(v, params.xs)", ".exists(v, v == 'x')", ".matches('a+b')", "size(", ")", " == 'x'"),
    ]
)


@given(st.lists(PARTS, max_size=8).map("".join), st.integers(0, 400))
def test_cheap_expressions_take_no_time(text: str, length: int) -> None:
    """Most of these are no expressions at all, which costs nothing either."""
    event = {"payload": {"xs": ["ab"] * (length // 4), "s": "ab" * length}}
    condition = text.replace("params", "event.payload")
    began = time.process_time()
    with contextlib.suppress(CostlyError, RenderError):
        EventView(event, cheap_only=True).matches(condition)
    assert time.process_time() - began < 0.5


def scope(**params: Any) -> Scope:
    return Scope(params=params, run={"id": "r"}, env={}, steps={})


def test_costly_expressions_are_left_alone_where_that_is_asked_for(workflow: Read) -> None:
    found = workflow(
        "name: a\ndescription: d\nparams: {xs: {type: list, default: []}}\n"
        "steps: {a: {run: 'echo {{ params.xs.map(x, x + x) }}', when: 'params.xs.all(x, x > 0)'}}\n"
    )
    step = found.steps["a"]
    few, many = scope(xs=[1, 2]), scope(xs=[1] * 2000)
    assert evaluate_when(found, step, few, cheap_only=True)
    assert render(found, step, few, cheap_only=True) == render(found, step, few)
    with pytest.raises(CostlyError):
        evaluate_when(found, step, many, cheap_only=True)
    with pytest.raises(CostlyError):
        render(found, step, many, cheap_only=True)
    assert evaluate_when(found, step, many)


def test_templates_of_a_step_come_to_a_bounded_size(workflow: Read) -> None:
    """A value of 1 MiB, a hundred thousand times, was 100 GB."""
    many = "{{ params.s }}" * 50_000
    found = workflow(
        "name: a\ndescription: d\nparams: {s: {}}\n"
        f"steps: {{a: {{job_type: exec, target: echo, args: ['{many}']}}}}\n"
    )
    with pytest.raises(RenderError, match=r"may produce at most 8 MiB in all"):
        render(found, found.steps["a"], scope(s="x" * 1_000_000))


def test_an_expression_that_finds_no_memory_is_an_error_of_its_step(
    workflow: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("toban.definition.expressions.cel.CompiledExpression.run", fail)
    found = workflow("name: a\ndescription: d\nsteps: {a: {run: x, when: 1 + 1 == 2}}\n")
    with pytest.raises(RenderError, match=r"when of step a: .* it needs too much memory"):
        evaluate_when(found, found.steps["a"], scope())


def test_conditions_are_judged_together() -> None:
    conditions = ["event.payload.n == 1", "event.payload.n == 2", "event.payload.x == 1", "1"]
    found = judge_conditions({"payload": {"n": 1}}, conditions)
    assert found[:2] == [True, False]
    assert "there is no field" in str(found[2])
    assert "expected true or false" in str(found[3])
