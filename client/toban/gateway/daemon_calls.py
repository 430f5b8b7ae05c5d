"""Calls of the daemon for the callers of the gateway, each with the caller's own credential."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from toban.gateway.operation import method_of
from toban.sdk.connection import Connection, Metadata
from toban.v1 import hook_pb2, hook_pb2_grpc

if TYPE_CHECKING:
    from google.protobuf.message import Message


class DaemonCalls:
    """One channel for all callers. Calls raise a TobanError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection(self, token: str) -> Connection:
        """The connection for one caller. It does not check the token: requests without one were refused before."""
        assert token, "a call without a credential would have the rights of the gateway's own socket"
        return self._connection.acting_for(token)

    async def deliver(self, request: hook_pb2.DeliverHookRequest) -> hook_pb2.DeliverHookResponse:
        """Hands a delivery over. Its signature is its only credential, so the call has none."""
        stub = hook_pb2_grpc.HookServiceStub(self._connection.channel)
        return await self._connection.acting_for("").call(stub.DeliverHook, request)

    async def call(self, rpc: str, request: Message, token: str, within: float = 30.0) -> Any:
        """Makes a call such as `RunService/GetRun`."""
        method = method_of(rpc)
        multi: Callable[..., Any] = self._connection.channel.unary_unary(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        return await self.connection(token).call(multi, request, within=within)

    def open_stream(self, rpc: str, request: Message) -> Callable[[Metadata], grpc.aio.UnaryStreamCall[Any, Any]]:
        """Opens a stream such as `RunService/StreamLogs`, as `Connection.stream` wants it."""
        method = method_of(rpc)
        multi = self._connection.channel.unary_stream(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )

        def opened(metadata: Metadata) -> grpc.aio.UnaryStreamCall[Any, Any]:
            call: grpc.aio.UnaryStreamCall[Any, Any] = multi(request, metadata=metadata)
            return call

        return opened

    async def close(self) -> None:
        await self._connection.close()
