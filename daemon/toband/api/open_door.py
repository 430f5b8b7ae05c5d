"""One address that the daemon listens on: its gRPC server, whose calls come through this door only.

gRPC does not say by which of several addresses a call came, so that each has a server of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable
from urllib.parse import quote

import grpc
import structlog

from toband.api.client_limits import server_options
from toband.api.credential_socket import CredentialSocket, serves_logins
from toband.api.interceptor import CallGate, CallInterceptor
from toband.api.unix_socket import ListenError, clear_stale, file_identity, made_with
from toband.config import ServerLimits
from toband.config.listeners import ListenAddress
from toband.config.settings import TlsSettings
from toband.engine.access.door import Door
from toband.engine.access.login_tokens import LoginTokens

Register = Callable[[grpc.aio.Server], None]

log = structlog.get_logger()


class OpenDoor:
    """Bound by `bind`, serves after `start`."""

    def __init__(self, listener: ListenAddress, tls: TlsSettings, limits: ServerLimits) -> None:
        self._limits = limits
        self._listener = listener
        self._tls = tls
        self._logins: CredentialSocket | None = None
        self._servers: list[grpc.aio.Server] = []
        self._serve: Callable[[grpc.aio.Server], None] | None = None
        self._bound: tuple[int, int] | None = None
        self.door = Door(address=listener.address, role=listener.role)
        self._interceptor = CallInterceptor()

    @property
    def path(self) -> str:
        """Of a socket; else empty."""
        return self._listener.path

    def bind(self) -> None:
        """Binds the address; `door` then has the real port. Raises ListenError."""
        port = self._bind()
        if not self.path:
            address = f"{self._listener.address.rpartition(':')[0]}:{port}"
            self.door = Door(address=address, role=self._listener.role)

    async def start(self, gate: CallGate, logins: LoginTokens, register: Register) -> None:
        """Raises ListenError, OSError."""
        if serves_logins(self._listener):
            self._logins = CredentialSocket(self._listener, self.door, logins)
            await self._logins.start()
        self._interceptor.open(gate, self.door)
        self._serve = register
        register(self._servers[0])
        await self._servers[0].start()

    async def restore(self) -> None:
        """Recreates deleted sockets. Raises ListenError, OSError.

        A running server takes no new address, so another one serves it.
        """
        if self._logins is not None:
            await self._logins.restore()
        if not self.path or file_identity(self.path) == self._bound:
            return
        assert self._serve is not None
        self._bind(before_start=self._serve)
        await self._servers[-1].start()
        log.warning("recreated a deleted socket", action="socket_restored", path=self.path)

    async def stop(self, grace: float) -> None:
        await asyncio.gather(*(server.stop(grace) for server in self._servers))

    def close(self) -> None:
        """Removes the sockets, whether the door was started or not."""
        if self._logins is not None:
            self._logins.close()
        if self.path and self._bound is not None and file_identity(self.path) == self._bound:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
        self._bound = None

    def _bind(self, before_start: Register | None = None) -> int:
        server = self._new_server()
        if before_start is not None:
            before_start(server)
        if not self.path:
            port = self._add(server, self._listener.host_and_port)
        else:
            clear_stale(self.path)
            with made_with(self.path, self._listener.mode, self._listener.group):
                port = self._add(server, f"unix:{quote(self.path)}")
                self._bound = file_identity(self.path)
        self._servers.append(server)
        return port

    def _add(self, server: grpc.aio.Server, target: str) -> int:
        try:
            if self._listener.tls:
                required = (self._listener.client_certificates or self._tls.client_certificates) == "required"
                # It loads a library that takes megabytes.
                from toband.api.server_certificate import ServerCertificate

                certificate = ServerCertificate(self._tls, require_client=required)
                port = server.add_secure_port(target, certificate.credentials())
            else:
                port = server.add_insecure_port(target)
        except RuntimeError:
            port = 0
        if port == 0:
            raise ListenError(f"cannot listen on {self._listener.address}: {_why_not(self._listener)}")
        return port

    def _new_server(self) -> grpc.aio.Server:
        return grpc.aio.server(interceptors=[self._interceptor], options=server_options(self._limits))


def _why_not(listener: ListenAddress) -> str:
    """The system's error for the same attempt; gRPC does not report it."""
    where: str | tuple[str, int]
    if sys.platform != "win32" and listener.path:
        family, where = socket.AF_UNIX, listener.path
    else:
        host, _, port = listener.host_and_port.rpartition(":")
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        where = (host.strip("[]"), int(port))
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(where)
    except OSError as error:
        return error.strerror or str(error)
    if isinstance(where, str):
        os.unlink(where)
    return "the address cannot be bound"
