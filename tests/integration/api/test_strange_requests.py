"""Every method of every service with requests that make no sense: each gets an answer, no log an error."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, cast

import grpc
import pytest
from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from helpers.daemon import Daemon, running_daemon, steps_of
from helpers.postgres import DATABASES, postgres_schema
from toban.v1 import (
    dead_letter_pb2,
    event_pb2,
    job_pb2,
    run_pb2,
    schedule_pb2,
    system_pb2,
    workflow_pb2,
)

SERVICES = [
    service
    for module in (
        dead_letter_pb2,
        event_pb2,
        job_pb2,
        run_pb2,
        schedule_pb2,
        system_pb2,
        workflow_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
]
METHODS = {f"/{service.full_name}/{method.name}": method for service in SERVICES for method in service.methods}
TEXTS = {
    "nothing": "",
    "nul": "a\0b",
    "control": "\x1b[31m\u202e\u2028\x85",
    "not characters": "\ufdd0\uffff\U0010ffff",
    "long": "x" * 1_000_000,
    "page token with nul": "YQBi",
    "json": '"\\ud800"',
    "json with nul": '{"a": "\\u0000"}',
    "not json": "{",
    "path": "../" * 50,
    "number": "9" * 5000,
}
# Those never have a good reason.
BAD = {
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}


@pytest.fixture(scope="module", params=DATABASES)
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("d") / "s"
    if request.param == "sqlite":
        with running_daemon(place) as running:
            yield running
        return
    with (
        postgres_schema() as url,
        running_daemon(place, environment={"TOBAN_DATABASE": url}) as running,
    ):
        yield running


@pytest.fixture(autouse=True)
def nothing_in_the_log(daemon: Daemon) -> Iterator[None]:
    before = daemon.log.stat().st_size
    yield
    with daemon.log.open("rb") as log:
        log.seek(before)
        # Whole lines: the daemon may be writing one at either end.
        found = [line for line in log.read().split(b"\n")[:-1] if line.startswith(b"{")]
    lines = [json.loads(line) for line in found]
    assert [line for line in lines if line["level"] == "error" or "exception" in line] == []


def code_of(daemon: Daemon, path: str, request: bytes) -> tuple[grpc.StatusCode, str]:
    """How a call ends, or OK once it gave something."""
    channel = cast(Any, daemon.channel)
    try:
        if METHODS[path].server_streaming:
            stream = channel.unary_stream(path)(request, timeout=60)
            next(stream, None)
            stream.cancel()
        else:
            channel.unary_unary(path)(request, timeout=60)
    except grpc.RpcError as error:
        call = cast(grpc.Call, error)
        return call.code(), call.details() or ""
    return grpc.StatusCode.OK, ""


def filled(method: MethodDescriptor, text: str) -> Message:
    """The request with that text in every field of the kind."""
    return fill(GetMessageClass(method.input_type)(), text, depth=4)


def fill(message: Message, text: str, depth: int) -> Message:
    if isinstance(message, struct_pb2.Struct):
        message.fields[text[:100]].string_value = text
        return message
    for field in message.DESCRIPTOR.fields:
        if field.message_type and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            if value.type == FieldDescriptor.TYPE_STRING:
                getattr(message, field.name)[text[:100]] = text
        elif field.message_type:
            if depth and not field.is_repeated:
                fill(getattr(message, field.name), text, depth - 1)
        elif field.type == FieldDescriptor.TYPE_STRING:
            if field.is_repeated:
                getattr(message, field.name).append(text)
            else:
                setattr(message, field.name, text)
        elif field.type == FieldDescriptor.TYPE_BYTES and not field.is_repeated:
            setattr(message, field.name, text.encode())
    return message


@pytest.mark.parametrize("path", METHODS)
def test_bytes_that_are_no_request_are_invalid(daemon: Daemon, path: str) -> None:
    requests = [b"\xff\xff\xff", b"\x0a\x05abc", b"\x0b" * 300]
    first = METHODS[path].input_type.fields_by_number.get(1)
    if first is not None and first.type == FieldDescriptor.TYPE_STRING:
        requests.append(b"\x0a\x03\xed\xa0\x80")  # half of a surrogate pair
    for request in requests:
        assert code_of(daemon, path, request)[0] is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("path", METHODS)
def test_random_bytes_get_an_answer(daemon: Daemon, path: str) -> None:
    chosen = random.Random(path)  # the same ones every time
    for size in (1, 2, 3, 8, 40, 1000):
        code, text = code_of(daemon, path, chosen.randbytes(size))
        assert code not in BAD, text


@pytest.mark.parametrize("path", METHODS)
def test_any_text_in_all_fields_gets_an_answer(daemon: Daemon, path: str) -> None:
    for name, text in TEXTS.items():
        request = filled(METHODS[path], text)
        code, said = code_of(daemon, path, request.SerializeToString())
        assert code not in BAD, f"{name}: {said}"


@pytest.mark.parametrize("path", METHODS)
def test_a_text_with_a_nul_is_refused_with_its_field(daemon: Daemon, path: str) -> None:
    request = GetMessageClass(METHODS[path].input_type)()
    field = next((each for each in request.DESCRIPTOR.fields if each.type == each.TYPE_STRING), None)
    if field is None:
        return
    given: Any = ["a\0b"] if field.is_repeated else "a\0b"
    sent = type(request)(**{field.name: given}).SerializeToString()
    code, said = code_of(daemon, path, sent)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert said == f"{field.name}: the text contains a NUL character"


STRANGE = r"""
name: strange
description: words and files that are not UTF-8
steps:
  - name: files
    run: |
      mkdir -p out && printf 1 > "$(printf 'out/a\377b')" && printf 22 > out/plain
    outputs: [{name: all, path: out}]
  - name: words
    run: printf 'key=\355\240\200 \377\nother=\000' >> "$TOBAN_OUTPUT"; printf '\377\n' >&2; exit 3
    on_failure: continue
"""


def test_what_steps_leave_that_is_not_utf_8_is_told_escaped(daemon: Daemon) -> None:
    daemon.apply(STRANGE)
    run = daemon.run("strange")
    steps = steps_of(run)
    assert steps["words"].outputs["key"].endswith(" \ufffd")
    request = run_pb2.ListArtifactsRequest(run_id=run.id)
    (listed,) = daemon.runs.ListArtifacts(request, timeout=20).artifacts
    assert {file.path for file in listed.files} == {"out/a\\xffb", "out/plain"}
    wanted = run_pb2.DownloadArtifactRequest(run_id=run.id, step="files", name="all", path="out/a\\xffb")
    first, *rest = daemon.runs.DownloadArtifact(wanted, timeout=20)
    assert first.header.file_name == "a\\xffb"
    assert b"".join(message.data for message in rest) == b"1"
