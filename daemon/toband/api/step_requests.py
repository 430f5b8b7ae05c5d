"""Requests that come from inside of a step: values of its secrets in them are masked, as they are in what it prints."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from google.protobuf.message import Message

from toban.v1 import run_pb2
from toband.engine.caller import CallOrigin
from toband.engine.execution.step_maskers import StepMaskers
from toband.masker import Masker

_AT_ONCE: Final = 64 * 1024
"""Bytes of a request that are searched in the event loop; larger ones in a thread."""
_JSON: Final = "_json"
# The run that is made of them keeps those that are secret apart, and masks the others itself.
_WITH_PARAMS: Final = (run_pb2.StartRunRequest, run_pb2.RetryRunRequest, run_pb2.PlanRunRequest)
_SECRETS: Final = "/toban.v1.SecretService/"


async def mask_request(maskers: StepMaskers, method: str, origin: CallOrigin, request: Message) -> None:
    """Changes the request. Raises SecretUnavailableError, SealError, StoreError if it cannot know the values."""
    if method.startswith(_SECRETS):
        return  # a step that changes a password sends the value on purpose
    masker = await maskers.of_call(origin)
    if masker is None:
        return
    if request.ByteSize() <= _AT_ONCE:
        _mask(masker, request)
    else:
        await asyncio.to_thread(_mask, masker, request)


def _mask(masker: Masker, message: Any) -> None:
    skipped = "params" if isinstance(message, _WITH_PARAMS) else ""
    for field, value in message.ListFields():
        if field.name == skipped:
            continue
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            _mask_map(masker, value, kind.fields_by_name["value"].message_type is not None)
        elif kind is not None:
            for each in value if field.is_repeated else (value,):
                _mask(masker, each)
        elif field.type == field.TYPE_STRING:
            if field.is_repeated:
                value[:] = [masker.mask_text(each) for each in value]
            else:
                setattr(message, field.name, _text(masker, value, json_text=field.name.endswith(_JSON)))


def _mask_map(masker: Masker, items: Any, of_messages: bool) -> None:
    """Also the keys, if they are texts."""
    for key in list(items):
        shown = masker.mask_text(key) if isinstance(key, str) else key
        if of_messages:
            _mask(masker, items[key])
            if shown != key:
                items[shown].CopyFrom(items[key])
                del items[key]
            continue
        value = items.pop(key)
        items[shown] = masker.mask_text(value) if isinstance(value, str) else value


def _text(masker: Masker, text: str, *, json_text: bool) -> str:
    masked = masker.mask_text(text)
    if masked == text or not json_text:
        return masked
    try:
        # A number may be a secret too, and must not leave something that is no JSON.
        return json.dumps(masker.mask_value(json.loads(text)))
    except (ValueError, RecursionError):
        return masked
