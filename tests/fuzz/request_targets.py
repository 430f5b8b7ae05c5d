"""Every call of the API with mutated requests, sent to a real daemon by callers of every role."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, cast

import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from fuzz.mutation import mutated_bytes, mutated_json, words_of
from fuzz.target import Check, Target
from fuzz.watched_daemon import WatchedDaemon
from helpers.daemon import Daemon, running_daemon
from helpers.wait import wait_until
from toban.token_text import new_token_text
from toban.v1 import run_pb2, system_pb2, workflow_pb2
from toband.api.access_rules import access_rules
from toband.api.call_limits import ALL_SERVED
from toband.domain.access_rule import CallTarget
from toband.domain.identity import Role

METHODS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method for service in ALL_SERVED for method in service.methods
}
CALLERS = ("admin", "editor", "operator", "viewer", "narrowed", "step", "unknown", "nobody")
"""`narrowed` is an administrator of one workflow; `unknown` has a token that does not exist, `nobody` has none."""
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
    grpc.StatusCode.UNAUTHENTICATED,
}
WITHIN = 20.0
STREAMED_WITHIN = 0.1
_DRAIN = "/toban.v1.SystemService/Drain"

_RULES = access_rules()
_ROLES = {role.label: role for role in reversed(Role)} | {"narrowed": Role.ADMIN}
"""`narrowed` is the last one."""
_HELD = """\
name: held
description: x
overlap: allow
steps: [{name: only, run: 'printf "$TOBAN_RUN_ID/$TOBAN_ATTEMPT_TOKEN"; exec sleep 3600', kill_grace: 1s}]
"""
Metadata = tuple[tuple[str, str], ...]

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


def encoded(caller: str, path: str, request: bytes) -> bytes:
    return f"{caller} {path}\n".encode() + request


def _split(data: bytes) -> tuple[str, str, bytes]:
    """Names that do not exist are taken for the first ones."""
    line, _, request = data.partition(b"\n")
    caller, _, path = line.decode(errors="replace").partition(" ")
    caller = caller if caller in CALLERS else CALLERS[0]
    return caller, (path if path in METHODS else next(iter(METHODS))), request


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
    for number, (path, method) in enumerate(METHODS.items()):
        request = _filled(GetMessageClass(method.input_type)()).SerializeToString()
        yield encoded("admin", path, request)
        yield encoded(CALLERS[1 + number % (len(CALLERS) - 1)], path, request)
    for source in (SOURCE, _JOB):
        definition = workflow_pb2.Definition(source=source)
        made = workflow_pb2.ValidateWorkflowRequest(definition=definition)
        yield encoded("admin", "/toban.v1.WorkflowService/ValidateWorkflow", made.SerializeToString())


def _mutated(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    caller, path, raw = _split(data)
    if random.randrange(10) == 0:
        path = random.choice(list(METHODS))
    if random.randrange(2) == 0:
        # Half of all calls are the administrator's, which get farthest.
        caller = random.choice((*CALLERS[1:], *CALLERS[:1] * (len(CALLERS) - 1)))
    request = GetMessageClass(METHODS[path].input_type)()
    try:
        request.ParseFromString(raw)
    except DecodeError:
        return encoded(caller, path, mutated_bytes(random, raw, others))
    for _ in range(random.choice((1, 1, 2, 3))):
        _change(random, request)
    raw = request.SerializeToString(deterministic=True)
    if random.randrange(8) == 0:
        raw = mutated_bytes(random, raw, ())
    return encoded(caller, path, raw)


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
    """Sends requests and looks at the daemon after each."""

    def __init__(self, daemon: Daemon, closed: grpc.Channel, tokens: Mapping[str, str]) -> None:
        self._daemon = daemon
        self._closed = closed
        self._metadata: dict[str, Metadata] = {
            name: (("authorization", f"Bearer {text}"),) for name, text in tokens.items()
        }
        source = "name: known\ndescription: x\noverlap: allow\nsteps: [{name: only, run: echo hello}]\n"
        daemon.apply(source)
        run_id = daemon.start_run("known")
        daemon.wait_run(run_id)
        listed = daemon.runs.ListRuns(run_pb2.ListRunsRequest(page_size=1), timeout=WITHIN)
        self._known = {"@run": run_id, "@token": listed.next_page_token, "@etag": ""}
        daemon.apply(_HELD)
        self._metadata["step"] = self._step_under_way()
        self._watched = WatchedDaemon(daemon)

    def check(self, data: bytes) -> str:
        """An answer in time, of a code that says what is wrong; the daemon lives, and has not grown."""
        caller, path, raw = _split(data)
        raw = self._with_ids(path, raw)
        code, details = self._called(caller, path, raw)
        goes_on = METHODS[path].server_streaming and code is grpc.StatusCode.DEADLINE_EXCEEDED
        if path == _DRAIN:
            self._daemon.system.Resume(system_pb2.ResumeRequest(), timeout=WITHIN)
        assert goes_on or code in ANSWERED, f"{caller}: {path} answers {code}: {details}"
        if code is grpc.StatusCode.OK:
            assert _may(caller, path), f"{caller} may call {path}"
        elif code is grpc.StatusCode.UNAUTHENTICATED:
            # A signature is the only credential of a signed call, whoever makes it.
            rule = _RULES.get(path)
            signed = rule is not None and rule.signed
            assert signed or caller in ("step", "unknown", "nobody"), f"{caller}: {path}: {details}"
            if caller == "step" and not signed:
                self._metadata["step"] = self._step_under_way()
        self._watched.expect_unharmed(f"{caller}: {path}")
        return f"{caller} {path} {code.name} {details}"

    def _step_under_way(self) -> Metadata:
        """Of a step that runs; one that was cancelled by a request is no caller any more."""
        with contextlib.suppress(grpc.RpcError):
            run_id = self._daemon.start_run("held")
            stdout = run_pb2.LOG_STREAM_STDOUT
            wait_until(lambda: len(self._daemon.log_of(run_id).get(stdout, b"")) > 40, "the step printed nothing")
            return (("toban-origin", self._daemon.log_of(run_id)[stdout].decode()),)
        return self._metadata["step"]

    def _called(self, caller: str, path: str, raw: bytes) -> tuple[grpc.StatusCode, str]:
        method, metadata = METHODS[path], self._metadata.get(caller)
        channel = cast(Any, self._closed if caller == "nobody" else self._daemon.channel)
        if not method.server_streaming:
            return _code(lambda: channel.unary_unary(path)(raw, timeout=WITHIN, metadata=metadata))
        if method.client_streaming:
            stream = channel.stream_stream(path)(iter([raw]), timeout=STREAMED_WITHIN, metadata=metadata)
        else:
            stream = channel.unary_stream(path)(raw, timeout=STREAMED_WITHIN, metadata=metadata)
        return _code(lambda: [*stream])

    def _with_ids(self, path: str, raw: bytes) -> bytes:
        request = GetMessageClass(METHODS[path].input_type)()
        with contextlib.suppress(DecodeError):
            request.ParseFromString(raw)
            _replace(request, self._known)
            return request.SerializeToString()
        return raw


def _may(caller: str, path: str) -> bool:
    """Whether the contract lets the caller make the call, whatever it is about."""
    rule = _RULES.get(path)
    if rule is None:
        return True
    if caller in ("unknown", "nobody"):
        return False
    if caller == "step":
        return rule.steps
    if rule.role is None:
        return True
    if caller == "narrowed" and rule.target in (CallTarget.DAEMON, CallTarget.EVENT):
        return False
    return _ROLES[caller] >= rule.role


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
    tokens = {name: new_token_text() for name in (*_ROLES, "unknown")}
    config = work / "toband.toml"
    lines = [f'listen = ["unix://{work}/s/toban.sock", {{address = "unix://{work}/closed.sock", role = "none"}}]']
    for name, role in _ROLES.items():
        lines.append(f'[access.tokens.{name}]\nrole = "{role.label}"\ndigest = "{tokens[name].digest}"')
    lines.append('workflows = ["known*"]')
    config.write_text("\n".join(lines))
    with (
        running_daemon(work / "s", "--config", str(config)) as daemon,
        grpc.insecure_channel(f"unix:{work}/closed.sock") as closed,
    ):
        yield _Calls(daemon, closed, {name: token.text for name, token in tokens.items()}).check


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
