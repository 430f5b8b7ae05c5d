"""Parameters of a run, and the errors for invalid ones."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

from helpers.daemon import Daemon, run_state
from helpers.refusal import refused
from toban.v1 import run_pb2

DEFINITION = """
name: typed
description: x
overlap: allow
params:
  text: {type: string, default: none}
  count: {type: integer, default: 3}
  ratio: {type: number, default: 0.5}
  flag: {type: boolean, default: false}
  items: {type: list, default: [a, 1]}
  options: {type: mapping, default: {depth: 2}}
  color: {type: string, default: red, choices: [red, green]}
  name: {type: string, required: true}
steps:
  - {name: show, run: cat "$TOBAN_PARAMS"}
"""
DEFAULTS: dict[str, Any] = {
    "text": "none",
    "count": 3,
    "ratio": 0.5,
    "flag": False,
    "items": ["a", 1],
    "options": {"depth": 2},
    "color": "red",
}


@pytest.fixture(scope="module", autouse=True)
def typed(daemon: Daemon) -> None:
    daemon.apply(DEFINITION)


def shown(daemon: Daemon, run: run_pb2.Run) -> Any:
    assert run_state(run) == "SUCCEEDED"
    return json.loads(daemon.log_of(run.id)[run_pb2.LOG_STREAM_STDOUT])


def test_defaults_fill_what_was_not_given(daemon: Daemon) -> None:
    run = daemon.run("typed", name="x")
    assert shown(daemon, run) == {**DEFAULTS, "name": "x"}
    assert dict(run.params)["count"] == 3


def test_values_keep_their_types(daemon: Daemon) -> None:
    given: dict[str, Any] = {
        "text": "日本 'quoted' \"twice\" $HOME `id`\nnext",
        "count": -7,
        "ratio": 2,
        "flag": True,
        "items": [1, 2.5, None, {"deep": [True]}],
        "options": {},
        "color": "green",
        "name": "",
    }
    found = shown(daemon, daemon.run("typed", **given))
    assert found == given
    assert isinstance(found["count"], int)
    assert isinstance(found["items"][0], int)


def test_texts_are_read_as_the_type_they_stand_for(daemon: Daemon) -> None:
    given = {"count": "12", "ratio": "1e3", "flag": "TRUE", "items": "[1]", "options": '{"a": 1}'}
    expected = {"count": 12, "ratio": 1000.0, "flag": True, "items": [1], "options": {"a": 1}}
    found = shown(daemon, daemon.run("typed", name="x", **given))
    assert found == {**DEFAULTS, **expected, "name": "x"}


def test_every_wrong_parameter_is_told_and_no_run_is_made(daemon: Daemon) -> None:
    def count() -> int:
        request = run_pb2.ListRunsRequest(workflow="typed", page_size=1000)
        return len(daemon.runs.ListRuns(request, timeout=20).runs)

    before = count()
    wrong = {
        "text": 5,
        "count": 1.5,
        "ratio": "much",
        "flag": "perhaps",
        "items": "none",
        "options": [1],
        "color": "blue",
        "colour": "red",
    }
    refusal = refused(lambda: daemon.start_run("typed", **wrong))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_PARAMS",
    )
    violations = dict(refusal.violations)
    assert set(violations) == {f"params.{name}" for name in [*wrong, "name"]}
    assert "missing" in violations["params.name"]
    assert "unknown" in violations["params.colour"]
    assert "red" in violations["params.color"]
    assert all(name in refusal.text for name in ("count", "colour"))
    assert count() == before


@pytest.mark.parametrize("value", [1e30, "99999999999999999999", 0.1, True, None, [], "1_0", " 1"])
def test_an_integer_is_nothing_else(daemon: Daemon, value: Any) -> None:
    refusal = refused(lambda: daemon.start_run("typed", name="x", count=value))
    assert [field for field, _ in refusal.violations] == ["params.count"]


def test_a_workflow_without_parameters_takes_none(daemon: Daemon) -> None:
    daemon.apply("name: bare\ndescription: x\nsteps: [{name: only, run: 'true'}]\n")
    refusal = refused(lambda: daemon.start_run("bare", day="friday"))
    assert [field for field, _ in refusal.violations] == ["params.day"]
    assert "takes no parameters" in refusal.violations[0][1]


def test_a_run_keeps_the_version_and_parameters_it_was_started_with(daemon: Daemon) -> None:
    run = daemon.run("typed", name="kept")
    again = daemon.get_run(run.id)
    assert (again.version, dict(again.params)["name"]) == (run.version, "kept")
