"""Where expressions are evaluated, and their limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from doubles.sandbox import InlineSandbox
from toban.definition import RenderError, Scope, Workflow, parse
from toband.engine.execution import expression_evaluator
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.ports import OverLimitError

_Result = TypeVar("_Result")


class FullSandbox(InlineSandbox):
    """What has the word `bad` in it passes the limit."""

    async def call(self, function: Callable[..., _Result], *args: Any, key: str, seconds: float) -> _Result:
        if "bad" in repr(args):
            self.asked.append(function.__name__)
            raise OverLimitError("it took longer than 2 s")
        return await super().call(function, *args, key=key, seconds=seconds)


def workflow(run: str) -> Workflow:
    text = f"name: a\ndescription: d\nparams: {{xs: {{type: list}}}}\nsteps: {{a: {{run: '{run}'}}}}\n"
    found = parse(text).documents[0].workflow
    assert found is not None
    return found


def scope(length: int) -> Scope:
    return Scope(params={"xs": [1] * length}, run={"id": "r"}, env={}, steps={})


async def test_only_costly_expressions_are_evaluated_elsewhere() -> None:
    sandbox = FullSandbox()
    made = workflow("echo {{ size(params.xs.map(x, x + x)) }}")
    for length in (3, 1500):
        rendered = await ExpressionEvaluator(sandbox).render(made, made.steps["a"], scope(length), run_id="r")
        assert rendered.env["TOBAN_V1"] == str(length)
    assert sandbox.asked == ["render"]


async def test_a_step_whose_expressions_pass_a_limit_cannot_be_started() -> None:
    made = workflow("echo {{ size(params.xs.map(bad, bad + bad)) }}")
    with pytest.raises(RenderError, match=r"expressions of step a: it took longer than 2 s"):
        await ExpressionEvaluator(FullSandbox()).render(made, made.steps["a"], scope(1500), run_id="r")


async def test_a_condition_that_passes_a_limit_is_left_out_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sandbox = FullSandbox()
    judging = ExpressionEvaluator(sandbox)
    conditions = ["event.payload.n == 1", "bad", "event.payload.n == 2"]
    event = {"payload": {"n": 1}}
    first = await judging.conditions(event, conditions)
    assert (first["event.payload.n == 1"], first["event.payload.n == 2"]) == (True, False)
    assert first["bad"] == "cannot evaluate the condition: it took longer than 2 s; simplify it"
    # Together, and then each by itself, to find the one.
    assert len(sandbox.asked) == 4
    assert await judging.conditions(event, conditions) == first
    assert len(sandbox.asked) == 5
    monkeypatch.setattr(expression_evaluator, "PAUSE", -1.0)
    judging = ExpressionEvaluator(sandbox)
    for _ in range(2):
        await judging.conditions(event, ["bad"])
    assert len(sandbox.asked) == 7
