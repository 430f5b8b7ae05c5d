"""Runs the gateway: its socket, TLS, and uvicorn."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import uvicorn

from toban.gateway.http_app import GatewayParts, http_app
from toban.gateway.issuer_requests import IssuerRequests
from toban.gateway.login_codes import LoginCodes
from toban.gateway.oidc_login import IssuerSettings
from toban.gateway.web_site import WebSite, web_site
from toban.sdk.connection import Connection
from toban.sdk.endpoint import Endpoint

_MOST_CONNECTIONS: Final = 2000
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """`certificate` and `key` are paths of PEM files; with both the gateway speaks TLS only."""

    host: str
    port: int
    certificate: str = ""
    key: str = ""
    public_url: str = ""
    api_only: bool = False
    issuer: IssuerSettings | None = None
    issuer_ca: str = ""


class WebServer:
    """Listens at once, so that the address is known; `run` serves until it is stopped."""

    def __init__(self, settings: WebSettings, endpoint: Endpoint) -> None:
        """Raises OSError for an address that cannot be used, and ssl.SSLError for a certificate that cannot."""
        self._settings = settings
        self._endpoint = endpoint
        self._issuer_requests = IssuerRequests(settings.issuer_ca)
        if settings.certificate:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(settings.certificate, settings.key)
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        self._socket = socket.create_server((settings.host, settings.port), family=family, backlog=128)
        port = self._socket.getsockname()[1]
        tls = bool(settings.certificate)
        self.site: WebSite = web_site(settings.host, port, tls=tls, public_url=settings.public_url)
        self.codes = LoginCodes()

    def run(self, ready: Callable[[], None]) -> None:
        """Serves until SIGINT or SIGTERM. Calls `ready` when requests are answered."""
        asyncio.run(self._serve(ready))

    def close(self) -> None:
        self._socket.close()

    async def _serve(self, ready: Callable[[], None]) -> None:
        # What a login link makes is retried while the daemon restarts.
        connection = Connection(self._endpoint, timeout=30.0, retry_for=5.0, connect_for=5.0)
        parts = GatewayParts(
            connection=connection,
            site=self.site,
            codes=self.codes,
            issuer=self._settings.issuer,
            issuer_requests=self._issuer_requests,
            api_only=self._settings.api_only,
        )
        config = uvicorn.Config(
            http_app(parts),
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="on",
            access_log=False,
            log_level="warning",
            server_header=False,
            date_header=True,
            proxy_headers=False,
            ssl_certfile=self._settings.certificate or None,
            ssl_keyfile=self._settings.key or None,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,
            limit_concurrency=_MOST_CONNECTIONS,
            h11_max_incomplete_event_size=64 * 1024,
        )
        server = _Announcing(config, ready)
        await server.serve(sockets=[self._socket])


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stops at a signal, which is then done with: the exit code is 0."""
        before = {each: signal.signal(each, self.handle_exit) for each in _STOPPING}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()
