"""Reads the message of an operation from an HTTP request: path, query, headers and body."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect, Request

from toban.gateway.operation import REQUEST_ID, Operation
from toban.gateway.problem_details import RefusedRequestError
from toban.limits import MAX_MESSAGE_BYTES
from toban.message_json.message_reader import MessageReader
from toban.sdk.errors import InvalidArgument, Violation

if TYPE_CHECKING:
    from google.protobuf.message import Message

YAML_TYPES: Final = ("application/yaml", "application/x-yaml", "text/yaml")
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
# As JSON a message is somewhat larger: the daemon has the last word.
LARGEST_BODY: Final = 2 * MAX_MESSAGE_BYTES


async def read_request(operation: Operation, request: Request) -> Message:
    """Raises RefusedRequestError for a body that cannot be read, and InvalidArgument with everything that is wrong."""
    message = operation.request_class()
    reader = MessageReader()
    for path, value in operation.fixed.items():
        _set(reader, operation, message, path, path, value)
    for name in operation.placeholders:
        _set_words(reader, operation, message, name, [request.path_params[name]])
    if operation.idempotent_by_key and (key := request.headers.get(IDEMPOTENCY_KEY)):
        setattr(message, REQUEST_ID, key)
    if operation.if_match and (tag := request.headers.get("If-Match")):
        _set(reader, operation, message, "If-Match", operation.if_match, _etag(tag))
    words = _query(request)
    if operation.in_body:
        body = await read_body(request)
        if _is_yaml(operation, request):
            _set_source(reader, operation, message, body)
            given = {name for name, path in operation.given.items() if operation.source.startswith(f"{path}.")}
            # The rest, such as `force`, then comes with the query.
            rest = {name: path for name, path in operation.given.items() if name not in given}
            given |= _read_query(reader, operation, message, words, rest)
        else:
            _read_query(reader, operation, message, words, {})
            given = _read_object(reader, operation, message, json_object(request, body))
    else:
        given = _read_query(reader, operation, message, words, operation.given)
    for name in operation.needed:
        if name not in given:
            reader.wrong.append(Violation(field=name, description="is required"))
    reader.check()
    return message


async def read_body(request: Request, most: int = LARGEST_BODY) -> bytes:
    """Raises RefusedRequestError for a body that is too large."""
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise RefusedRequestError(413, "REQUEST_TOO_LARGE", f"a body has at most {most:,} bytes")
    except ClientDisconnect:
        raise RefusedRequestError(400, "UNREADABLE_REQUEST", "the connection ended within the body") from None
    return bytes(body)


def json_object(request: Request, body: bytes) -> dict[str, Any]:
    """The object of a body; an empty one if there is none. Raises RefusedRequestError."""
    if not body:
        return {}
    kind = _media_type(request)
    if kind != "application/json":
        raise RefusedRequestError(415, "UNSUPPORTED_MEDIA_TYPE", "the body must be application/json")
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedRequestError(400, "UNREADABLE_REQUEST", f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise RefusedRequestError(422, "INVALID_ARGUMENT", "the body must be a JSON object")
    return value


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _media_type(request: Request) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _is_yaml(operation: Operation, request: Request) -> bool:
    return bool(operation.source) and _media_type(request) in YAML_TYPES


def _query(request: Request) -> dict[str, list[str]]:
    words: dict[str, list[str]] = defaultdict(list)
    for name, value in request.query_params.multi_items():
        words[name].append(value)
    return words


def _read_query(
    reader: MessageReader,
    operation: Operation,
    message: Message,
    words: dict[str, list[str]],
    allowed: dict[str, str],
) -> set[str]:
    """Sets the fields; their names."""
    for name, values in words.items():
        if name not in allowed:
            reader.refuse_unknown(name, allowed)
        else:
            _set_words(reader, operation, message, name, values)
    return {name for name, values in words.items() if any(values)}


def _read_object(reader: MessageReader, operation: Operation, message: Message, values: dict[str, Any]) -> set[str]:
    for name, value in values.items():
        if name not in operation.given:
            reader.refuse_unknown(name, operation.given)
        else:
            _set(reader, operation, message, name, operation.given[name], value)
    return {name for name, value in values.items() if value is not None}


def _set(reader: MessageReader, operation: Operation, message: Message, name: str, path: str, value: Any) -> None:
    *outer, last = path.split(".")
    target: Any = message
    for each in outer:
        target = getattr(target, each)
    reader.set(target, target.DESCRIPTOR.fields_by_name[last], value, name)


def _set_words(reader: MessageReader, operation: Operation, message: Message, name: str, words: list[str]) -> None:
    *outer, last = operation.names.get(name, name).split(".")
    target: Any = message
    for each in outer:
        target = getattr(target, each)
    reader.set_words(target, target.DESCRIPTOR.fields_by_name[last], words, name)


def _set_source(reader: MessageReader, operation: Operation, message: Message, body: bytes) -> None:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedRequestError(400, "UNREADABLE_REQUEST", "the body is not UTF-8") from None
    _set(reader, operation, message, "body", operation.source, text)


def _etag(given: str) -> str:
    """The daemon's part of the value of `If-Match`: see `operation_answer`. Raises InvalidArgument."""
    text = given.strip().removeprefix("W/")
    if text == "*":
        return ""
    if len(text) < 2 or text[0] != '"' or text[-1] != '"' or '"' in text[1:-1]:
        raise InvalidArgument(
            "If-Match must be one value of ETag, in its quotes",
            reason="INVALID_ARGUMENT",
            violations=[Violation(field="If-Match", description="must be one value of ETag, in its quotes")],
        )
    return text[1:-1].partition(".")[0]
