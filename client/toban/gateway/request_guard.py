"""What holds for every request: its Host and Origin are ours, and the answer forbids what the console does not need."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toban.gateway.problem_details import problem
from toban.gateway.web_site import WebSite

API_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
PAGE_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)

_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_TRANSPORT: Final = "max-age=31536000"


class RequestGuard:
    """Refuses requests for another host, as DNS rebinding makes them, and requests of pages of another origin."""

    def __init__(self, app: ASGIApp, site: WebSite) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # Nothing here speaks WebSocket.
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._protect(scope, MutableHeaders(scope=message))
            await send(message)

        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        origin = headers.get("origin")
        if len(hosts) != 1 or hosts[0].lower() not in self._site.hosts:
            text = f"this gateway is {self._site.url}; --public-url gives it another name"
            await problem(421, "HOST_NOT_ALLOWED", text)(scope, receive, guarded)
        elif origin is not None and origin.lower() not in self._site.origins:
            text = "requests of pages of another origin are refused"
            await problem(403, "ORIGIN_NOT_ALLOWED", text)(scope, receive, guarded)
        else:
            await self._app(scope, receive, guarded)

    def _protect(self, scope: Scope, headers: MutableHeaders) -> None:
        is_page = not scope["path"].startswith(("/api/", "/hooks/"))
        headers.setdefault("Content-Security-Policy", PAGE_POLICY if is_page else API_POLICY)
        for name, value in _HEADERS.items():
            headers[name] = value
        if self._site.secure:
            headers["Strict-Transport-Security"] = _TRANSPORT
