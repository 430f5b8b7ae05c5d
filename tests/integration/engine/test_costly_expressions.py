"""Expressions that would take for ever, or all memory: an error of their own step, and no delay for others."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.daemon import Daemon, run_state, step_states
from helpers.wait import wait_until
from toban.v1 import event_pb2, run_pb2

DOUBLED = "['x']" + ".map(v, v + v + v + v)" * 15 + "[0]"
"""A text of 1 GiB."""
ONES = ", ".join(["1"] * 1_900)
LITERAL = f"[{ONES}].map(v, params.s + params.s + params.s).map(v, v + v + v + v + v + v)"
"""A long list that is written out, and so no value whose elements anybody counted."""
MATCHED = f"[{ONES}].map(v, params.s.matches('((a?){{300}}(b?){{300}}){{3}}c'))"
PARAMS = "params: {s: {default: " + "ab" * 16_000 + "}}"


@pytest.mark.parametrize("expression", [DOUBLED, LITERAL, MATCHED], ids=["doubled", "literal", "matched"])
@pytest.mark.parametrize("field", ["when", "for_each", "run"])
def test_a_costly_expression_is_an_error_of_its_step(
    daemon: Daemon, expression: str, field: str, request: pytest.FixtureRequest
) -> None:
    name = f"costly-{request.node.callspec.id.replace('-', '')}"
    text = {
        "when": f"string(size([{expression}])) == 'x'",
        "for_each": f"[string(size([{expression}]))]",
        "run": "echo {{ size([" + expression + "]) }}",
    }[field]
    step = {"run": "echo x", field: text}
    daemon.apply(
        f"name: {name}\ndescription: x\n{PARAMS}\nsteps: {{a: {json.dumps(step)}, other: {{run: echo fine}}}}\n"
    )
    run = daemon.run(name)
    assert step_states(run) == {"a": "FAILED", "other": "SUCCEEDED"}
    assert any(
        reason in run.error_message for reason in ("it took longer than 2 s", "more than 512 MiB", "too much memory")
    ), run


def test_a_run_with_costly_expressions_can_be_cancelled(daemon: Daemon) -> None:
    steps = {f"s{number}": {"run": "echo {{ " + MATCHED + " }}", "on_failure": "continue"} for number in range(40)}
    daemon.apply(f"name: long\ndescription: x\n{PARAMS}\nsteps: {json.dumps(steps)}\n")
    run_id = daemon.start_run("long")
    began = time.monotonic()
    daemon.cancel(run_id)
    assert run_state(daemon.wait_run(run_id)) == "CANCELLED"
    assert time.monotonic() - began < 60


def test_nobody_waits_for_costly_expressions(daemon: Daemon) -> None:
    """The evaluation was in the event loop: nothing was answered meanwhile."""
    daemon.apply("name: patient\ndescription: x\nsteps: {a: {run: echo x}}\n")
    steps = {f"s{number}": {"run": "x", "when": f"size({DOUBLED}) > {number}"} for number in range(6)}
    daemon.apply(f"name: greedy\ndescription: x\nsteps: {json.dumps(steps)}\n")
    began = time.monotonic()
    daemon.run("patient")
    quiet, slowest = time.monotonic() - began, 0.0
    with ThreadPoolExecutor(1) as pool:
        greedy = pool.submit(daemon.run, "greedy")
        while not greedy.done():
            began = time.monotonic()
            assert run_state(daemon.run("patient")) == "SUCCEEDED"
            slowest = max(slowest, time.monotonic() - began)
    assert "FAILED" in step_states(greedy.result()).values()
    assert slowest < max(10, 10 * quiet)


def test_a_costly_expression_that_is_fine_has_its_value(daemon: Daemon) -> None:
    daemon.apply(
        "name: fine\ndescription: x\nparams: {xs: {type: list, default: [3, 1, 2]}}\nsteps:\n"
        "  a: {run: 'echo {{ params.xs.filter(x, x > 1).map(x, params.xs.map(y, x * y)) }}'}\n"
        "  b: {run: 'echo {{ item }}', for_each: 'params.xs.filter(x, params.xs.exists(y, y > x))'}\n"
    )
    run = daemon.run("fine")
    assert daemon.log_of(run.id, "a")[run_pb2.LOG_STREAM_STDOUT] == b"[[9,3,6],[6,2,4]]\n"
    assert set(step_states(run)) == {"a", "b", "b[0]", "b[1]"}


def test_a_costly_condition_delays_no_other_workflow(daemon: Daemon) -> None:
    event = "EV_COSTLY"
    daemon.apply(
        f"name: listens-costly\ndescription: x\n"
        f"on: {{event: {event}, condition: {json.dumps(f'size({DOUBLED}) > 1')}}}\n"
        "steps: {a: {run: x}}\n"
    )
    daemon.apply(
        f"name: listens\ndescription: x\non: {{event: {event}, condition: 'event.payload.xs.exists(x, x == 7)'}}\n"
        "steps: {a: {run: echo x}}\n"
    )
    for _ in range(5):
        emit = event_pb2.EmitEventRequest(type=event, payload_json='{"xs": [1, 7]}')
        daemon.events.EmitEvent(emit, timeout=60)
    request = run_pb2.ListRunsRequest(workflow="listens")

    def ran() -> bool:
        runs = daemon.runs.ListRuns(request, timeout=20).runs
        return [run_state(run) for run in runs] == ["SUCCEEDED"] * 5

    wait_until(ran, "each event started its run", deadline=120)
    assert not daemon.runs.ListRuns(run_pb2.ListRunsRequest(workflow="listens-costly"), timeout=20).runs
