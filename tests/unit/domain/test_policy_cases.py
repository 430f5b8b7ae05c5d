"""The policy table, case by case: by the daemon's rules, and by their naive reading."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from .case_player import ends_of, simulate
from .case_reader import Ends
from .naive import Interpreter

CASES: list[dict[str, Any]] = YAML(typ="safe").load(
    Path(__file__).with_name("policy_cases.yaml").read_text(encoding="utf-8")
)
each_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def test_every_case_has_a_name_of_its_own() -> None:
    names = Counter(case["name"] for case in CASES)
    assert [name for name, count in names.items() if count > 1] == []


@each_case
def test_case(case: dict[str, Any]) -> None:
    simulator = simulate(case)
    assert_as_expected(ends_of(simulator), case["expect"])
    assert simulator.forgotten == 1
    assert not simulator.live


@each_case
def test_case_read_naively(case: dict[str, Any]) -> None:
    assert_as_expected(Interpreter(case).play(), case["expect"])


def assert_as_expected(ends: Ends, expected: dict[str, Any]) -> None:
    expect = dict(expected)
    assert ends.run == expect.pop("run")
    for step, count in expect.pop("attempts", {}).items():
        # A step with instances has the attempts of all of them.
        names = [step] if step in ends.attempts else [n for n in ends.attempts if n.startswith(f"{step}[")]
        assert (step, sum(ends.attempts[name] for name in names)) == (step, count)
    for step, count in expect.pop("iterations", {}).items():
        assert (step, ends.iterations[step]) == (step, count)
    assert ends.failed == expect.pop("failed_steps", ends.failed)
    assert ends.incomplete == expect.pop("incomplete_steps", ends.incomplete)
    assert len(ends.dead_letters) == expect.pop("dead_letters", len(ends.dead_letters))
    assert {step: ends.steps[step] for step in expect} == expect
