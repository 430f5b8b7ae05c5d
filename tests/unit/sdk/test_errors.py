from __future__ import annotations

import socket
import sys
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from doubles.daemon.fake_daemon import FakeDaemon
from doubles.daemon.fake_errors import info
from toban.sdk import (
    Client,
    Conflict,
    InternalError,
    InvalidArgument,
    InvalidDefinition,
    NotFound,
    Refused,
    ResourceExhausted,
    TobanError,
    Unauthenticated,
    Unreachable,
    Violation,
)
from toban.sdk.message_values import to_struct
from toban.v1 import workflow_pb2

CODES: list[tuple[grpc.StatusCode, type[TobanError]]] = [
    (grpc.StatusCode.NOT_FOUND, NotFound),
    (grpc.StatusCode.OUT_OF_RANGE, NotFound),
    (grpc.StatusCode.ALREADY_EXISTS, Conflict),
    (grpc.StatusCode.FAILED_PRECONDITION, Conflict),
    (grpc.StatusCode.ABORTED, Conflict),
    (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgument),
    (grpc.StatusCode.UNAUTHENTICATED, Unauthenticated),
    (grpc.StatusCode.PERMISSION_DENIED, Refused),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, ResourceExhausted),
    (grpc.StatusCode.INTERNAL, InternalError),
    (grpc.StatusCode.UNKNOWN, InternalError),
    (grpc.StatusCode.DATA_LOSS, InternalError),
]


@pytest.mark.parametrize(("code", "kind"), CODES)
async def test_every_code_has_its_exception(daemon: FakeDaemon, code: grpc.StatusCode, kind: type[TobanError]) -> None:
    details = (info("SOME_REASON", {"run_id": "4711"}),)
    daemon.fail["GetInfo"] = (code, "because of that", details)
    async with Client(daemon.address) as client:
        with pytest.raises(TobanError) as caught:
            await client.get_info()
    assert type(caught.value) is kind
    assert caught.value.message == str(caught.value) == "because of that"
    assert caught.value.reason == "SOME_REASON"
    assert caught.value.metadata == {"run_id": "4711"}


async def test_an_invalid_definition_carries_every_problem(daemon: FakeDaemon) -> None:
    source = "name: x\nsteps:\n  one:\n    run: BROKEN\n  two:\n    run: BROKEN\n"
    async with Client(daemon.address) as client:
        with pytest.raises(InvalidDefinition) as caught:
            await client.create_workflow(source)
    assert caught.value.reason == "INVALID_DEFINITION"
    assert [(problem.line, problem.column) for problem in caught.value.problems] == [(4, 5), (6, 5)]
    assert isinstance(caught.value.problems[0], workflow_pb2.DefinitionProblem)
    message, *lines = str(caught.value).split("\n")
    assert message == caught.value.message
    assert [line.split(": ")[0] for line in lines] == ["  4:5", "  6:5"]


async def test_an_invalid_request_carries_its_violations(daemon: FakeDaemon) -> None:
    field = error_details_pb2.BadRequest.FieldViolation
    bad = error_details_pb2.BadRequest(field_violations=[field(field="params.n", description="expected an integer")])
    daemon.fail["StartRun"] = (
        grpc.StatusCode.INVALID_ARGUMENT,
        "no",
        (info("INVALID_PARAMS"), bad),
    )
    async with Client(daemon.address) as client:
        with pytest.raises(InvalidArgument) as caught:
            await client.start_run("x")
    expected = Violation(field="params.n", description="expected an integer")
    assert caught.value.violations == (expected,)
    assert str(expected) == "params.n: expected an integer"
    assert str(caught.value) == "no\n  params.n: expected an integer"
    said = InvalidArgument("invalid parameters: n: expected an integer", violations=[expected])
    assert str(said) == said.message


async def test_details_of_an_unknown_kind_hide_nothing(daemon: FakeDaemon) -> None:
    unknown = error_details_pb2.Help(links=[error_details_pb2.Help.Link(url="x")])
    daemon.fail["GetInfo"] = (grpc.StatusCode.NOT_FOUND, "gone", (unknown, info("GONE")))
    async with Client(daemon.address) as client:
        with pytest.raises(NotFound) as caught:
            await client.get_info()
    assert caught.value.reason == "GONE"


async def test_an_older_daemon_is_recognised(daemon: FakeDaemon) -> None:
    daemon.fail["GetInfo"] = (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ())
    async with Client(daemon.address) as client:
        with pytest.raises(InternalError, match="may be older than this client"):
            await client.get_info()


async def test_a_daemon_that_is_not_there_is_named(daemon: FakeDaemon) -> None:
    daemon.stop()
    async with Client(daemon.address, retry_for=0) as client:
        with pytest.raises(Unreachable) as caught:
            await client.get_info()
    assert caught.value.message == f"no daemon answers at {daemon.address}: no such socket"


async def test_a_socket_that_nobody_serves_is_recognised(daemon: FakeDaemon) -> None:
    if sys.platform == "win32":
        pytest.skip("there are no such sockets")
    daemon.stop()
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(daemon.path))
    async with Client(daemon.address, retry_for=0) as client:
        with pytest.raises(Unreachable, match="nothing listens there"):
            await client.get_info()
    daemon.path.unlink()


async def test_an_answer_that_does_not_come_ends_the_wait(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    daemon.hold_after = 0
    async with Client(daemon.address, timeout=0.2) as client:
        # A call that hangs, seen through one that has a deadline.
        watching = client.watch_run(record.run.id)
        daemon.fail["GetInfo"] = (grpc.StatusCode.DEADLINE_EXCEEDED, "late", ())
        with pytest.raises(Unreachable, match="did not answer within"):
            await client.get_info()
        await watching.aclose()


@pytest.mark.parametrize("params", [{"a": "x\ud800"}, {"a\udcff": 1}, {"a": [{"b": "\ud800"}]}])
def test_a_parameter_that_is_not_unicode_is_refused_with_its_name(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        to_struct(params)
    (violation,) = caught.value.violations
    assert violation.field.startswith("a")
    assert "not valid Unicode" in violation.description
