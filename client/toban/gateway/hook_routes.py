"""`POST /hooks/{name}`: deliveries of other systems, handed byte for byte to the daemon, which checks them."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from toban.gateway.daemon_calls import DaemonCalls
from toban.gateway.operation_answer import json_answer
from toban.gateway.operation_request import read_body
from toban.limits import MIB
from toban.message_json.message_data import to_dict
from toban.v1 import hook_pb2

_LARGEST: Final = MIB
# Credentials are nothing that the payload of an event should have.
_WITHHELD: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


class HookRoutes:
    """The endpoint raises RefusedRequestError and TobanError."""

    def __init__(self, calls: DaemonCalls) -> None:
        self._calls = calls

    async def deliver(self, request: Request) -> Response:
        """201 with the event of a new delivery; 200 of one that came before, or that is ignored."""
        message = hook_pb2.DeliverHookRequest(
            name=request.path_params["name"],
            headers={
                name: ", ".join(request.headers.getlist(name)) for name in set(request.headers) if name not in _WITHHELD
            },
            body=await read_body(request, _LARGEST),
            forwarded_for=request.client.host if request.client is not None else "",
        )
        answer = await self._calls.deliver(message)
        return json_answer(request, to_dict(answer), 201 if answer.created else 200)
