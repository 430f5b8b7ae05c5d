"""A refused call, taken apart: its status and its error details."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from toban.v1 import workflow_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`violations` are pairs of a field and what is wrong with it."""

    code: grpc.StatusCode
    text: str
    domain: str
    reason: str
    metadata: Mapping[str, str]
    violations: Sequence[tuple[str, str]]
    problems: Sequence[workflow_pb2.DefinitionProblem]


def refused(call: Callable[[], object]) -> Refusal:
    """Makes the call, which must be refused with an ErrorInfo of ours; a stream is read to its end."""
    with pytest.raises(grpc.RpcError) as caught:
        _finish(call())
    error = cast(grpc.Call, caught.value)
    status = rpc_status.from_call(error)
    assert status is not None, f"no details: {caught.value}"
    info = error_details_pb2.ErrorInfo()
    bad = error_details_pb2.BadRequest()
    problems = workflow_pb2.DefinitionProblems()
    unpacked = [
        name
        for detail in status.details
        for name, message in (("info", info), ("bad", bad), ("problems", problems))
        if detail.Unpack(message)
    ]
    assert "info" in unpacked, f"no ErrorInfo: {caught.value}"
    refusal = Refusal(
        code=error.code(),
        text=error.details() or "",
        domain=info.domain,
        reason=info.reason,
        metadata=dict(info.metadata),
        violations=[(each.field, each.description) for each in bad.field_violations],
        problems=list(problems.problems),
    )
    assert refusal.domain == "toban"
    assert refusal.reason
    assert refusal.text
    return refusal


def _finish(answer: object) -> None:
    if isinstance(answer, Iterator):
        for _ in answer:
            pass
