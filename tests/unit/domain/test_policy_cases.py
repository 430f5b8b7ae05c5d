"""The policy table, case by case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from toband.domain.events import CancelRequested

from .simulator import Simulator, workflow

CASES: list[dict[str, Any]] = YAML(typ="safe").load(
    Path(__file__).with_name("policy_cases.yaml").read_text()
)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    definition = workflow(
        case["steps"], concurrency=case.get("concurrency"), timeout=case.get("timeout")
    )
    simulator = Simulator(definition, case.get("outcomes", {}))
    for when, what in case.get("events", {}).items():
        assert what == "cancel"
        simulator.at(when, CancelRequested())
    run = simulator.play()

    expect = dict(case["expect"])
    assert run.state.value == expect.pop("run")
    for step, count in expect.pop("attempts", {}).items():
        assert run.steps[step].attempts == count
    if "failed_steps" in expect:
        assert run.failed_steps == expect.pop("failed_steps")
    for step, state in expect.items():
        found = run.steps[step]
        reason = f"({found.reason})" if found.state.value == "SKIPPED" else ""
        assert f"{found.state.value}{reason}" == state
    assert simulator.forgotten == 1
    assert not simulator.live
