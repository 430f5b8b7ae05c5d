"""Definitions that take long to parse delay no other client."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import grpc

from helpers.daemon import Daemon, run_state
from toban.v1 import workflow_pb2

KEYS = ", ".join(f"k{number}: 1" for number in range(2_000))
BOMB = f"x: &a {{{KEYS}}}\ny:\n" + "  <<: *a\n" * 130_000
"""1.2 MB, which took more than 90 s."""
LARGE = "name: large\nx: [" + "1, " * 400_000 + "1]\n"
"""What is large takes its time, however plain it is."""


def validate(daemon: Daemon, source: str, timeout: float) -> workflow_pb2.ValidateWorkflowResponse:
    definition = workflow_pb2.Definition(source=source)
    request = workflow_pb2.ValidateWorkflowRequest(definition=definition)
    return daemon.workflows.ValidateWorkflow(request, timeout=timeout)


def test_a_merge_bomb_is_refused(daemon: Daemon) -> None:
    answer = validate(daemon, BOMB, 60)
    assert any("found more than 500,000 values" in each.message for each in answer.problems)


def test_abandoned_definitions_delay_no_run(daemon: Daemon) -> None:
    """Eight of them delayed another client's run by 99 s."""
    daemon.apply("name: unmoved\ndescription: x\nsteps: {a: {run: echo x}}\n")
    began = time.monotonic()
    daemon.run("unmoved")
    quiet = time.monotonic() - began

    def abandon(source: str) -> None:
        try:
            validate(daemon, source, 1)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # noqa: PT017

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(abandon, [BOMB, LARGE] * 4))
        began = time.monotonic()
        assert run_state(daemon.run("unmoved")) == "SUCCEEDED"
        assert time.monotonic() - began < max(5, 10 * quiet)
    # Nor do they delay another definition.
    began = time.monotonic()
    daemon.apply(f"name: later\ndescription: x\nsteps: {{a: {{run: x}}}}\n# {'x' * 20_000}\n")
    assert time.monotonic() - began < 30
