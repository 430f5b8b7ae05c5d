"""Every call of the API with mutated requests, sent to a real daemon."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, cast

import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from fuzz.mutation import mutated_bytes, mutated_json, words_of
from fuzz.target import Check, Target
from helpers.daemon import Daemon, running_daemon
from toban.v1 import (
    dead_letter_pb2,
    event_pb2,
    job_pb2,
    run_pb2,
    schedule_pb2,
    system_pb2,
    workflow_pb2,
)

METHODS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
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
    for method in service.methods
}
ANSWERED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.PERMISSION_DENIED,
}
WITHIN = 20.0
STREAMED_WITHIN = 0.3
_DRAIN = "/toban.v1.SystemService/Drain"
_TROUBLE = ("Traceback", '"level": "error"', '"level":"error"')

SOURCE = """\
name: other
description: x
overlap: allow
params: {n: {type: integer, default: 1}}
on: [{event: data.changed, condition: "event.payload.n == 1"}]
steps:
  - {name: one, run: "true", when: "params.n > 0"}
  - {name: two, run: "true", depends_on: [one], for_each: [1, 2]}
"""
_JOB = "kind: job\nname: work\ndescription: x\nrun: 'true'\n"
_VALUES = {
    "id": "@run",
    "run_id": "@run",
    "workflow": "known",
    "name": "known",
    "step": "only",
    "job": "work",
    "source": SOURCE,
    "payload_json": '{"n": 1, "xs": [1, "a"]}',
    "type": "data.changed",
    "words": "in 2 hours",
    "text": "tomorrow at 9am",
    "timezone": "Asia/Tokyo",
    "position": "1.0",
    "page_token": "@token",
    "step_page_token": "@token",
    "subject": "somebody",
    "etag": "@etag",
    "artifact": "raw",
    "path": "raw",
}
_TEXTS = (
    "",
    "\0",
    "x" * 5000,
    "../" * 50,
    "\ufdd0\uffff",
    "\x1b[31m\u202e",
    "9" * 5000,
    "@run",
    "@token",
    "1.0",
    "1.0.0-5",
    "1.9.9-99999999999999999999",
    "1." + "0-1." * 3000,
    "MQ",
    "YQBi",
    "known",
    "only",
    "*",
    "%",
    "-1",
    "null",
    "{",
)
_NUMBERS = (0, 1, -1, 2, 100, 2**31 - 1, -(2**31))
_LARGE = (0, 1, -1, 2**62, -(2**63), 2**63 - 1)
_source = words_of(
    ":",
    "\n",
    "- ",
    "for_each",
    "when",
    "&a ",
    "*a",
    "<<: *a",
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    "params.n",
    "item",
    "matrix",
    "schedule",
    "cron",
    "retry",
    "loop",
    "timeout",
    "outputs",
    "inputs",
    "[1,2].map(x, x)",
    "\\ud83d",
)
_phrase = words_of("every", "day", "at", "9", "monday", "次", "毎日", "99999999999", "-", ":", "until")


def encoded(path: str, request: bytes) -> bytes:
    return path.encode() + b"\n" + request


def _split(data: bytes) -> tuple[str, bytes]:
    """A path that names no call is taken for the first one."""
    path, _, request = data.partition(b"\n")
    found = path.decode(errors="replace")
    return (found if found in METHODS else next(iter(METHODS))), request


def _filled(message: Message, depth: int = 0) -> Message:
    """Each field with something that fits its name, or its type."""
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated or depth > 2:
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, _VALUES.get(field.name, ""))
        elif (
            field.message_type is not None
            and field.containing_oneof is None
            and field.message_type.full_name.startswith("toban.")
        ):
            _filled(getattr(message, field.name), depth + 1)
    return message


def _samples() -> Iterator[bytes]:
    for path, method in METHODS.items():
        request = _filled(GetMessageClass(method.input_type)())
        yield encoded(path, request.SerializeToString())
    for source in (SOURCE, _JOB):
        definition = workflow_pb2.Definition(source=source)
        for path in METHODS:
            if path.endswith("/ValidateWorkflow"):
                made = workflow_pb2.ValidateWorkflowRequest(definition=definition)
                yield encoded(path, made.SerializeToString())


def _mutated(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    path, raw = _split(data)
    if random.randrange(10) == 0:
        path = random.choice(list(METHODS))
    request = GetMessageClass(METHODS[path].input_type)()
    try:
        request.ParseFromString(raw)
    except DecodeError:
        return encoded(path, mutated_bytes(random, raw, others))
    for _ in range(random.choice((1, 1, 2, 3))):
        _change(random, request)
    raw = request.SerializeToString(deterministic=True)
    if random.randrange(8) == 0:
        raw = mutated_bytes(random, raw, ())
    return encoded(path, raw)


def _change(random: Random, message: Message, depth: int = 0) -> None:
    fields = cast("Sequence[FieldDescriptor]", message.DESCRIPTOR.fields)
    if not fields or depth > 5:
        return
    field = random.choice(fields)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        _change_inner(random, message, field, depth)
        return
    value = _scalar(random, field, message)
    if field.is_repeated:
        target = getattr(message, field.name)
        del target[random.choice((0, len(target))) :]
        target.extend([value] * random.choice((1, 2, 500)))
    elif random.randrange(6) == 0:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, value)


def _change_inner(random: Random, message: Message, field: FieldDescriptor, depth: int) -> None:
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        with contextlib.suppress(TypeError, ValueError):
            target[random.choice(_TEXTS)] = random.choice(_TEXTS)
        with contextlib.suppress(TypeError, ValueError, AttributeError):
            _change(random, target[random.choice(("n", "a", ""))], depth + 1)
    elif field.is_repeated:
        _change(random, target.add(), depth + 1)
    else:
        target.SetInParent()
        _change(random, target, depth + 1)


def _scalar(random: Random, field: FieldDescriptor, message: Message) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return _string(random, field, message)
        case FieldDescriptor.TYPE_BYTES:
            return random.randbytes(random.choice((0, 1, 100)))
        case FieldDescriptor.TYPE_BOOL:
            return bool(random.randrange(2))
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
            return random.choice((0.0, -1.0, 1e308, float("nan"), float("inf"), 0.1))
        case FieldDescriptor.TYPE_ENUM:
            return random.choice((0, 1, 2, 3, 99, -1))
        case FieldDescriptor.TYPE_INT64 | FieldDescriptor.TYPE_SINT64:
            return random.choice(_LARGE)
        case FieldDescriptor.TYPE_UINT64 | FieldDescriptor.TYPE_UINT32:
            return random.choice((0, 1, 2**31, 2**32 - 1))
        case _:
            return random.choice(_NUMBERS)


def _string(random: Random, field: FieldDescriptor, message: Message) -> str:
    before = "" if field.is_repeated else str(getattr(message, field.name))
    text = (before or _VALUES.get(field.name, "")).encode()
    match field.name:
        case "source":
            text = _source(random, text, ())
        case "payload_json":
            text = mutated_json(random, text, ())
        case "words" | "text":
            text = _phrase(random, text, ())
        case _:
            return random.choice((*_TEXTS, *_VALUES.values()))
    return text.decode(errors="replace")


class _Calls:
    """Sends requests and looks at the daemon's log after each."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._log = daemon.log.open(errors="replace")
        self._log.read()
        source = "name: known\ndescription: x\noverlap: allow\nsteps: [{name: only, run: echo hello}]\n"
        daemon.apply(source)
        run_id = daemon.start_run("known")
        daemon.wait_run(run_id)
        listed = daemon.runs.ListRuns(run_pb2.ListRunsRequest(page_size=1), timeout=WITHIN)
        self._known = {"@run": run_id, "@token": listed.next_page_token, "@etag": ""}

    def check(self, data: bytes) -> str:
        """An answer in time, of a code that says what is wrong; nothing in the log, and the daemon lives."""
        path, raw = _split(data)
        raw = self._with_ids(path, raw)
        call = self._streamed if METHODS[path].server_streaming else self._answered
        code, details = call(path, raw)
        if path == _DRAIN:
            self._daemon.system.Resume(system_pb2.ResumeRequest(), timeout=WITHIN)
        assert code in ANSWERED, f"{path} answers {code}: {details}"
        said = self._log.read()
        assert not any(sign in said for sign in _TROUBLE), f"{path}:\n{said[-4000:]}"
        assert self._daemon.process is not None
        assert self._daemon.process.poll() is None, "the daemon ended"
        return f"{path} {code.name} {details}"

    def _with_ids(self, path: str, raw: bytes) -> bytes:
        request = GetMessageClass(METHODS[path].input_type)()
        with contextlib.suppress(DecodeError):
            request.ParseFromString(raw)
            _replace(request, self._known)
            return request.SerializeToString()
        return raw

    def _answered(self, path: str, raw: bytes) -> tuple[grpc.StatusCode, str]:
        call = cast(Any, self._daemon.channel.unary_unary(path))
        return _code(lambda: call(raw, timeout=WITHIN))

    def _streamed(self, path: str, raw: bytes) -> tuple[grpc.StatusCode, str]:
        stream = cast(Any, self._daemon.channel.unary_stream(path))(raw, timeout=STREAMED_WITHIN)
        code, details = _code(lambda: [*stream])
        late = code is grpc.StatusCode.DEADLINE_EXCEEDED
        return (grpc.StatusCode.OK, "goes on") if late else (code, details)


def _replace(message: Message, known: dict[str, str]) -> None:
    for field, value in message.ListFields():
        if field.is_repeated:
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, known.get(value, value))
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            _replace(value, known)


def _code(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


@contextlib.contextmanager
def _served(work: Path) -> Iterator[Check]:
    with running_daemon(work / "s") as daemon:
        yield _Calls(daemon).check


TARGETS = (
    Target(
        name="requests",
        reads="the request of every call",
        samples=tuple(_samples()),
        mutate=_mutated,
        opened=_served,
        seconds=None,
    ),
)
