"""Decodes requests of the EventService. Raises InvalidFieldError."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NoReturn

from toban.definition import check_event_type
from toban.definition.scalars.values import checked_value, to_json
from toban.limits import MAX_PAYLOAD_BYTES
from toban.v1 import event_pb2 as pb
from toband.api.common_requests import identity, origin_of
from toband.api.handler import Context
from toband.api.request_errors import InvalidFieldError
from toband.domain.lookup_keys import check_key
from toband.engine.caller import CallOrigin
from toband.engine.errors import EventNotFoundError

TYPES_MOST = 100


def event_type(text: str, field: str = "type") -> str:
    try:
        return check_event_type(text)
    except ValueError as error:
        raise InvalidFieldError(field, str(error)) from None


def event_types(texts: Iterable[str]) -> tuple[str, ...]:
    """The types of a filter, without duplicates."""
    found = tuple(dict.fromkeys(event_type(text, "types") for text in texts))
    if len(found) > TYPES_MOST:
        raise InvalidFieldError("types", f"must be at most {TYPES_MOST} types, found {len(found)}")
    return found


def event_id(text: str) -> str:
    """Raises EventNotFoundError for a text that cannot be an id."""
    if not text.isprintable():
        raise EventNotFoundError(repr(text))
    return text


def stored_event(request: pb.ResolveEventRequest) -> str:
    """The id of a stored event; empty if the request describes an event."""
    if request.event_id and (request.type or request.payload_json):
        raise InvalidFieldError("event_id", "cannot be combined with `type` or `payload_json`")
    return event_id(request.event_id)


def key(text: str, field: str, *, required: bool = False) -> str:
    """A text that identifies something, such as a dedupe key or a subject."""
    try:
        return check_key(text, required=required)
    except ValueError as error:
        raise InvalidFieldError(field, str(error)) from None


def payload(text: str, field: str = "payload_json") -> Any:
    """The JSON value; {} for an empty text."""
    size = len(text.encode())
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidFieldError(
            field,
            f"must have at most {MAX_PAYLOAD_BYTES} bytes, found {size}: send a reference to larger data",
        )
    if not text:
        return {}
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidFieldError(field, f"invalid JSON: {error.msg} ({place})") from None
    except RecursionError:
        raise InvalidFieldError(field, "is nested too deeply") from None
    except ValueError as error:
        raise InvalidFieldError(field, f"invalid JSON: {error}") from None
    try:
        value = checked_value(value)
        to_json(value)
    except ValueError as error:
        raise InvalidFieldError(field, str(error)) from None
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def origin(request: pb.EmitEventRequest, context: Context) -> CallOrigin | None:
    """The attempt that emits the event; None for a call from outside a step."""
    if not request.HasField("origin"):
        return origin_of(context)
    given = request.origin
    if not given.run_id or not given.attempt_token:
        missing = "attempt_token" if given.run_id else "run_id"
        raise InvalidFieldError(f"origin.{missing}", "is required: take it from the environment of the step")
    key(given.run_id, "origin.run_id")
    key(given.attempt_token, "origin.attempt_token")
    is_caller = identity().step is not None
    return CallOrigin(run_id=given.run_id, token=given.attempt_token, is_caller=is_caller)
