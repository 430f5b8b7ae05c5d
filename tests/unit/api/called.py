"""Calls a servicer without a server, with a fake context, and takes refusals apart."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from toband.api.handler import Context


class AbortedError(Exception):
    """`args` has the status."""


class FakeContext:
    def __init__(self, **metadata: str) -> None:
        self._metadata = metadata

    def peer(self) -> str:
        return "unix:"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple(self._metadata.items())

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        raise AbortedError(status)


CONTEXT = cast(Context, FakeContext())


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`fields` are those of the violations."""

    code: grpc.StatusCode
    text: str
    reason: str
    fields: list[str]


async def refused(call: Awaitable[Any]) -> Refusal:
    """The call, which must be refused."""
    with pytest.raises(AbortedError) as caught:
        await call
    found: Any = caught.value.args[0]
    (status,) = (
        status_pb2.Status.FromString(value)
        for key, value in found.trailing_metadata
        if key == "grpc-status-details-bin"
    )
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad)
    return Refusal(
        code=found.code,
        text=found.details,
        reason=info.reason,
        fields=[each.field for each in bad.field_violations],
    )
