"""`/api/session`: logs a browser in and out. Its cookie is a session of the daemon, and nothing else is kept here."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from toban.gateway.browser_name import browser_name
from toban.gateway.caller_credential import SessionCookie, caller_token, check_own_site
from toban.gateway.daemon_calls import DaemonCalls
from toban.gateway.login_codes import LoginCodes
from toban.gateway.operation_answer import json_answer
from toban.gateway.operation_request import json_object, read_body
from toban.gateway.problem_details import RefusedRequestError
from toban.message_json.message_data import to_dict
from toban.sdk.connection import Connection
from toban.sdk.credentials import checked_token
from toban.sdk.errors import Conflict, InvalidArgument
from toban.v1 import access_pb2, access_pb2_grpc

_LABEL_CHARS: Final = 64
_LARGEST: Final = 64 * 1024


class SessionRoutes:
    """Each method is an endpoint. `own` makes the calls of the user who started the gateway, for codes only."""

    def __init__(self, calls: DaemonCalls, own: Connection, codes: LoginCodes, cookie: SessionCookie) -> None:
        self._calls = calls
        self._own = own
        self._codes = codes
        self._cookie = cookie

    async def log_in(self, request: Request) -> Response:
        """Exchanges a code or a token for a cookie."""
        check_own_site(request)
        given = json_object(request, await read_body(request, _LARGEST))
        match given:
            case {"code": str(code), **rest} if not rest:
                token = await self._of_code(code, request)
            case {"token": str(text), **rest} if not rest:
                token = await self.of_token(text, request)
            case _:
                raise RefusedRequestError(422, "INVALID_ARGUMENT", "the body must have either a `code` or a `token`")
        response = json_answer(request, to_dict(await self._who(token)), 201)
        self._cookie.set(response, token)
        return response

    async def show(self, request: Request) -> Response:
        """Who the caller is, and what it may do."""
        return json_answer(request, to_dict(await self._who(caller_token(request, self._cookie))))

    async def log_out(self, request: Request) -> Response:
        """Ends the session in the daemon, and forgets the cookie."""
        token = caller_token(request, self._cookie)
        session = (await self._who(token)).identity.session_id
        if session:
            await self._calls.call("AccessService/RevokeSession", access_pb2.RevokeSessionRequest(id=session), token)
        response = Response(status_code=204)
        self._cookie.clear(response)
        return response

    async def of_token(self, text: str, request: Request) -> str:
        """A session of the owner of a token; the token itself if it is one. Raises a TobanError."""
        try:
            token = checked_token(text, "that was given")
        except InvalidArgument as error:
            raise RefusedRequestError(422, "INVALID_ARGUMENT", error.message) from None
        try:
            made = await self._calls.call("AccessService/CreateSession", _wanted(request), token)
        except Conflict as error:
            if error.reason != "SESSION_OF_SESSION":
                raise
            return token
        return str(made.text)

    async def _of_code(self, code: str, request: Request) -> str:
        if not self._codes.take(code):
            raise RefusedRequestError(401, "CODE_INVALID", "the code was used, or has expired: ask for a new link")
        stub: Any = access_pb2_grpc.AccessServiceStub(self._own.channel)
        made: access_pb2.CreateSessionResponse = await self._own.call(stub.CreateSession, _wanted(request))
        return made.text

    async def _who(self, token: str) -> access_pb2.WhoAmIResponse:
        found: access_pb2.WhoAmIResponse = await self._calls.call(
            "AccessService/WhoAmI", access_pb2.WhoAmIRequest(), token
        )
        return found


def _wanted(request: Request) -> access_pb2.CreateSessionRequest:
    agent = browser_name(request.headers.get("User-Agent", ""))
    return access_pb2.CreateSessionRequest(label=f"web: {agent}"[:_LABEL_CHARS].strip())
