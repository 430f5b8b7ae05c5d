"""Parts that requests of several services share: the caller, the idempotency key, and definitions."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from google.protobuf import field_mask_pb2, struct_pb2, timestamp_pb2
from google.protobuf.message import Message

from toban.definition.timing.cron import LAST_YEAR
from toban.limits import MAX_APPLIED, MAX_REQUEST_ID_CHARS
from toban.v1 import workflow_pb2
from toband.api.handler import Context
from toband.api.request_errors import InvalidFieldError
from toband.domain.identity import Identity
from toband.engine.access.call_identity import current
from toband.engine.caller import CallOrigin
from toband.engine.definitions.catalog import DefinitionText
from toband.ports import Request

ORIGIN = "toban-origin"
_FIRST_YEAR = 1970
_FILE_BYTES = 1000
"""The name of a text: every result repeats it."""


# Definitions and parameters have checks and errors of their own.
_SOURCE = workflow_pb2.Definition.DESCRIPTOR.fields_by_name["source"]


def check_texts(message: Message, path: str = "") -> None:
    """Raises InvalidFieldError for a text with a NUL character, which paths and some databases cannot contain."""
    if isinstance(message, struct_pb2.Struct):
        return
    for field, value in message.ListFields():
        place = f"{path}{field.name}"
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            texts = [*value, *value.values()]
        elif field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                check_texts(each, f"{place}.")
            continue
        elif field.type == field.TYPE_STRING and field is not _SOURCE:
            texts = list(value) if field.is_repeated else [value]
        else:
            continue
        if any(isinstance(text, str) and "\0" in text for text in texts):
            raise InvalidFieldError(place, "the text contains a NUL character")


def identity() -> Identity:
    """Who makes the call."""
    found = current()
    assert found is not None, "every call has an identity"
    return found


def caller() -> str:
    """The name of who makes the call, for records."""
    return identity().name


def origin_of(context: Context) -> CallOrigin | None:
    """The attempt that a call comes from: the one that proves its identity, or the one that its metadata name.

    None for a call from outside. Raises InvalidFieldError.
    """
    step = identity().step
    if step is not None:
        return CallOrigin(run_id=step.run_id, token=step.token)
    given = [value for key, value in context.invocation_metadata() or () if key == ORIGIN]
    if not given:
        return None
    run_id, _, token = str(given[-1]).partition("/")
    if not run_id or not token:
        raise InvalidFieldError(
            ORIGIN,
            "must be `RUN_ID/TOKEN`, as in the environment of a step",
        )
    return CallOrigin(run_id=run_id, token=token, is_caller=False)


def request_of(rpc: str, message: Message, request_id: str) -> Request | None:
    """The idempotency key of a call; None if it has none. Raises InvalidFieldError."""
    if not request_id:
        return None
    if len(request_id) > MAX_REQUEST_ID_CHARS:
        raise InvalidFieldError(
            "request_id", f"must have at most {MAX_REQUEST_ID_CHARS} characters, found {len(request_id)}"
        )
    body = message.SerializeToString(deterministic=True)
    digest = hashlib.sha256(body).hexdigest()
    return Request(caller=caller(), rpc=rpc, id=request_id, digest=digest)


def base_dir(definition: workflow_pb2.Definition) -> str:
    """Raises InvalidFieldError."""
    if definition.base_dir and not os.path.isabs(definition.base_dir):
        raise InvalidFieldError("definition.base_dir", f"must be an absolute path, found {definition.base_dir!r}")
    return definition.base_dir


def definition_texts(texts: Sequence[workflow_pb2.DefinitionText]) -> Sequence[DefinitionText]:
    """Raises InvalidFieldError."""
    if not 1 <= len(texts) <= MAX_APPLIED:
        raise InvalidFieldError("texts", f"must be 1 to {MAX_APPLIED:,} texts, found {len(texts):,}")
    files = [text.file or f"<definition {number}>" for number, text in enumerate(texts, start=1)]
    for file, count in Counter(files).items():
        if len(file.encode()) > _FILE_BYTES:
            raise InvalidFieldError("texts.file", f"must have at most {_FILE_BYTES:,} bytes: {file:.100}...")
        if count > 1:
            raise InvalidFieldError("texts.file", f"must be unique, found {file!r} {count} times")
    return [
        DefinitionText(file=file, source=text.definition.source, base_dir=base_dir(text.definition))
        for file, text in zip(files, texts, strict=True)
    ]


def moment(value: timestamp_pb2.Timestamp, field: str) -> datetime:
    """Raises InvalidFieldError for a time outside of the calendar, or of the years in which a schedule can be due."""
    try:
        found = value.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidFieldError(field, "must be a valid time") from None
    if not _FIRST_YEAR <= found.year <= LAST_YEAR:
        raise InvalidFieldError(field, f"must be a time from {_FIRST_YEAR} to {LAST_YEAR}")
    return found


def check_mask(mask: field_mask_pb2.FieldMask) -> None:
    """Raises InvalidFieldError for a mask other than `definition`; an empty mask means `definition`."""
    paths = list(mask.paths)
    if paths not in ([], ["definition"]):
        raise InvalidFieldError("update_mask", f"must be `definition`, found {paths}")
