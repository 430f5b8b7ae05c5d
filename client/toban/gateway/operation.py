"""One operation of the HTTP API: the call of the daemon behind it, and where each field of its request comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message_factory import GetMessageClass

from toban.message_json.message_schema import message_kinds
from toban.v1 import access_rule_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
    from google.protobuf.message import Message

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")

REQUEST_ID: Final = "request_id"
"""The field that the header `Idempotency-Key` sets."""
PAGE_TOKEN: Final = "next_page_token"  # noqa: S105 - no secret


@dataclass(frozen=True, kw_only=True)
class Operation:
    """`METHOD /api/PATH` makes one call of the daemon.

    The placeholders of the path set fields of the request. The others come from the query of a GET or a DELETE, else
    from the body, by their own names. `names` gives placeholders and other names the field that they set, as in
    `{"name": "workflow.name"}`. `result` is the field of the answer that is written, with the others beside its own.
    """

    id: str
    method: str
    path: str
    rpc: str
    summary: str
    result: str = ""
    status: int = 200
    names: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    # Fields of the body that a request must have.
    needed: tuple[str, ...] = ()
    # The field that a body of YAML is the text of.
    source: str = ""
    # The field that `If-Match` sets.
    if_match: str = ""
    # The field of the result that `ETag` is made of; without one it is made of the answer alone.
    etag: str = ""
    within: float = 30.0

    @property
    def tag(self) -> str:
        return self.path.split("/")[1]

    @cached_property
    def placeholders(self) -> tuple[str, ...]:
        return tuple(_PLACEHOLDER.findall(self.path))

    @cached_property
    def call(self) -> MethodDescriptor:
        return method_of(self.rpc)

    @cached_property
    def request_class(self) -> type[Message]:
        return GetMessageClass(self.call.input_type)

    @cached_property
    def answer(self) -> Descriptor:
        return self.call.output_type

    @property
    def in_body(self) -> bool:
        return self.method not in ("GET", "DELETE")

    @cached_property
    def given(self) -> dict[str, str]:
        """The fields that a query or a body may set, by the names that they have there."""
        taken = {self.names.get(name, name).partition(".")[0] for name in (*self.placeholders, *self.names)}
        taken |= {name.partition(".")[0] for name in (*self.fixed, self.if_match)}
        taken |= {REQUEST_ID, *self.left_out}
        own = {each.name: each.name for each in self.call.input_type.fields if each.name not in taken}
        renamed = {name: path for name, path in self.names.items() if name not in self.placeholders}
        return {**renamed, **own}

    @property
    def idempotent_by_key(self) -> bool:
        return REQUEST_ID in self.call.input_type.fields_by_name

    def field_at(self, path: str) -> FieldDescriptor:
        """The field of the request at a path such as `workflow.name`."""
        *outer, last = path.split(".")
        kind = self.call.input_type
        for name in outer:
            inner = kind.fields_by_name[name].message_type
            assert inner is not None
            kind = inner
        return kind.fields_by_name[last]


def method_of(rpc: str) -> MethodDescriptor:
    """The method of a name such as `RunService/GetRun`."""
    service, _, name = rpc.partition("/")
    for kind in message_kinds().values():
        services = kind.file.services_by_name
        if service in services:
            return services[service].methods_by_name[name]
    raise LookupError(rpc)


def role_of(rpc: str) -> str:
    """The least role for a call, such as `viewer`; empty if every identity may make it."""
    rule = method_of(rpc).GetOptions().Extensions[access_rule_pb2.access]
    return access_rule_pb2.Role.Name(rule.role).removeprefix("ROLE_").lower() if rule.role else ""
