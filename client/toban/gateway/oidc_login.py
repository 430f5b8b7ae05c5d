"""Logging in with an account of an issuer: the authorization code flow of OpenID Connect, with PKCE.

The ID token is the credential: the daemon checks it as `[[access.issuers]]` says, and makes a session of it. The
gateway trusts nothing in it; it compares the nonce, so that the token belongs to the login that this browser began.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from toban.gateway.caller_credential import SessionCookie
from toban.gateway.issuer_requests import IssuerError, IssuerRequests
from toban.gateway.operation_answer import json_answer
from toban.gateway.session_routes import SessionRoutes
from toban.gateway.web_site import WebSite
from toban.sdk.errors import TobanError

CALLBACK: Final = "/api/login/oidc/callback"
_PATIENCE: Final = 600.0
"""Seconds in which somebody logs in at the issuer."""
_MOST: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerSettings:
    """`secret` is that of a confidential client; empty for a public one, which PKCE alone protects."""

    issuer: str
    client_id: str
    secret: str = ""
    scope: str = "openid email profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A login that somebody began; the browser has its state in a cookie."""

    verifier: str
    nonce: str
    until: float


class OidcLogin:
    """Each method is an endpoint."""

    def __init__(
        self,
        settings: IssuerSettings | None,
        requests: IssuerRequests,
        sessions: SessionRoutes,
        cookie: SessionCookie,
        site: WebSite,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._requests = requests
        self._sessions = sessions
        self._cookie = cookie
        self._site = site
        self._monotonic = monotonic
        self._begun: dict[str, _Begun] = {}
        self._state_cookie = f"{cookie.name}-login"

    async def methods(self, request: Request) -> Response:
        """How people can log in here."""
        issuers = []
        if self._settings is not None:
            issuers.append({"name": urlsplit(self._settings.issuer).netloc, "url": "/api/login/oidc"})
        return json_answer(request, {"issuers": issuers})

    async def begin(self, request: Request) -> Response:
        """Sends the browser to the issuer."""
        if self._settings is None:
            return self._failed("no issuer is configured")
        try:
            facts = await asyncio.to_thread(self._requests.discover, self._settings.issuer)
        except IssuerError as error:
            return self._failed(str(error))
        state, login = secrets.token_urlsafe(24), self._new()
        self._begun[state] = login
        challenge = base64.urlsafe_b64encode(hashlib.sha256(login.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": self._settings.scope,
            "state": state,
            "nonce": login.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in facts.authorization_endpoint else "?"
        response = RedirectResponse(f"{facts.authorization_endpoint}{joint}{urlencode(query)}", 303)
        # Lax: the issuer sends the browser back from its own site.
        response.set_cookie(
            self._state_cookie,
            state,
            max_age=int(_PATIENCE),
            path="/",
            secure=self._cookie.secure,
            httponly=True,
            samesite="lax",
        )
        response.headers["Cache-Control"] = "no-store"
        return response

    async def finish(self, request: Request) -> Response:
        """Takes the browser back from the issuer, and logs it in."""
        given = request.query_params
        state = given.get("state", "")
        login = self._begun.pop(state, None)
        known = request.cookies.get(self._state_cookie, "")
        if login is None or login.until < self._monotonic() or not hmac.compare_digest(state, known):
            return self._failed("the login has expired, or was begun elsewhere: try again")
        if "error" in given:
            return self._failed(given.get("error_description") or given["error"])
        if not given.get("code"):
            return self._failed("the issuer sent no code")
        try:
            token = await self._redeem(given["code"], login)
            session = await self._sessions.of_token(token, request)
        except (IssuerError, TobanError) as error:
            return self._failed(str(error))
        response = RedirectResponse("/", 303)
        self._cookie.set(response, session)
        response.delete_cookie(self._state_cookie, path="/", secure=self._cookie.secure, httponly=True, samesite="lax")
        response.headers["Cache-Control"] = "no-store"
        return response

    @property
    def _redirect_uri(self) -> str:
        return f"{self._site.url}{CALLBACK}"

    def _new(self) -> _Begun:
        now = self._monotonic()
        self._begun = {state: login for state, login in self._begun.items() if login.until > now}
        while len(self._begun) >= _MOST:
            del self._begun[next(iter(self._begun))]
        return _Begun(verifier=secrets.token_urlsafe(48), nonce=secrets.token_urlsafe(24), until=now + _PATIENCE)

    async def _redeem(self, code: str, login: _Begun) -> str:
        """The ID token for a code. Raises IssuerError."""
        settings = self._settings
        assert settings is not None
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "client_id": settings.client_id,
            "code_verifier": login.verifier,
        }
        answer = await asyncio.to_thread(
            self._requests.redeem, settings.issuer, fields, settings.client_id, settings.secret
        )
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise IssuerError("the issuer sent no ID token: is `openid` among its scopes?")
        nonce = _claims(token).get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), login.nonce.encode()):
            raise IssuerError("the ID token belongs to another login")
        return token

    @staticmethod
    def _failed(why: str) -> Response:
        """Back to the page of the login, which shows it."""
        response = RedirectResponse(f"/login#error={quote(why[:500], safe='')}", 303)
        response.headers["Cache-Control"] = "no-store"
        return response


def _claims(token: str) -> Mapping[str, Any]:
    """What a token says; the daemon checks whether that is true. Raises IssuerError."""
    try:
        body = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError, RecursionError):
        raise IssuerError("the issuer sent an ID token that cannot be read") from None
    return found if isinstance(found, dict) else {}
