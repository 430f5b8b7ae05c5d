"""The credential of a request: a bearer token, or the cookie of a session. There is no other way to have rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from toban.gateway.problem_details import RefusedRequestError

CSRF_HEADER: Final = "Toban-Request"
"""Every request with a cookie that changes something carries it. A page of another origin cannot send it."""

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCookie:
    """How the cookie is called and sent. Cookies do not tell ports apart, so the port is part of the name."""

    name: str
    secure: bool

    def set(self, response: Response, token: str) -> None:
        response.set_cookie(self.name, token, path="/", secure=self.secure, httponly=True, samesite="strict")

    def clear(self, response: Response) -> None:
        response.delete_cookie(self.name, path="/", secure=self.secure, httponly=True, samesite="strict")


def session_cookie(port: int, *, secure: bool) -> SessionCookie:
    # The prefix __Host- keeps other hosts of the domain from setting it; browsers take it over TLS only.
    return SessionCookie(name=f"__Host-toban-{port}" if secure else f"toban-{port}", secure=secure)


def caller_token(request: Request, cookie: SessionCookie) -> str:
    """The token of a request. Raises RefusedRequestError if there is none, or if another site may have sent it."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    if scheme:
        token = text.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii() or not token.isprintable() or " " in token:
            raise RefusedRequestError(401, "CREDENTIAL_INVALID", "the header Authorization must be `Bearer TOKEN`")
        return token
    token = request.cookies.get(cookie.name, "")
    if not token or not token.isascii() or not token.isprintable():
        raise RefusedRequestError(
            401, "CREDENTIAL_REQUIRED", "log in, or send a token as `Authorization: Bearer TOKEN`"
        )
    check_own_site(request)
    return token


def check_own_site(request: Request) -> None:
    """Raises RefusedRequestError for a request that a page of another origin may have made."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    unsafe = request.method not in _SAFE
    if site not in _OWN_SITES or (unsafe and CSRF_HEADER not in request.headers):
        missing = f": send the header {CSRF_HEADER}" if site in _OWN_SITES else ""
        raise RefusedRequestError(403, "CROSS_SITE_REQUEST", f"another site may have made this request{missing}")
