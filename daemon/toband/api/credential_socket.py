"""The credential socket beside a gRPC socket: hands a short-lived token to the user whom the system reports.

gRPC in Python cannot see the user of its peer, so clients fetch a token here and send it with their calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys

import structlog

from toband.api.unix_socket import clear_stale, file_identity, made_with
from toband.config.listeners import SOCKET_PATH_MOST, ListenAddress
from toband.engine.access.door import Door
from toband.engine.access.login_tokens import LoginTokens

SUFFIX = ".login"
_ANSWER_WITHIN = 10.0
_CREDENTIALS = struct.Struct("3i")

log = structlog.get_logger()


class CredentialSocket:
    """Belongs to the event loop."""

    def __init__(self, listener: ListenAddress, door: Door, logins: LoginTokens) -> None:
        self._listener = listener
        self._door = door
        self._logins = logins
        self._path = listener.path + SUFFIX
        self._server: asyncio.Server | None = None
        self._bound: tuple[int, int] | None = None

    async def start(self) -> None:
        """Raises ListenError, OSError."""
        if sys.platform == "win32":
            return
        await asyncio.to_thread(clear_stale, self._path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with made_with(self._path, self._listener.mode, self._listener.group):
                listening.bind(self._path)
                self._bound = file_identity(self._path)
            self._server = await asyncio.start_unix_server(self._answer, sock=listening)
        except BaseException:
            listening.close()
            raise

    async def restore(self) -> None:
        """Recreates a deleted socket. Raises ListenError, OSError."""
        if file_identity(self._path) == self._bound:
            return
        if self._server is not None:
            self._server.close()
        await self.start()
        log.warning("recreated a deleted socket", action="socket_restored", path=self._path)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._bound is not None and file_identity(self._path) == self._bound:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        self._bound = None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            uid = _uid_of(writer.get_extra_info("socket"))
            user = await asyncio.get_running_loop().run_in_executor(None, _user_name, uid)
            text, expires_at = self._logins.create(self._door, uid, user)
            line = json.dumps({"token": text.text, "expires_at": expires_at.isoformat()})
            writer.write(f"{line}\n".encode())
            async with asyncio.timeout(_ANSWER_WITHIN):
                await writer.drain()
        except (OSError, TimeoutError):
            # The client has gone, or does not read.
            pass
        finally:
            writer.close()


def serves_logins(listener: ListenAddress) -> bool:
    """Whether callers of the socket can prove which user they are. Only Linux reports it so."""
    if sys.platform != "linux" or not listener.path or listener.role is None:
        return False
    if len(os.fsencode(listener.path + SUFFIX)) > SOCKET_PATH_MOST:
        log.warning("no credential socket: its path would be too long", action="no_login_socket", path=listener.path)
        return False
    return True


if sys.platform == "linux":
    import pwd

    def _uid_of(connection: socket.socket) -> int:
        """Raises OSError."""
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        uid: int = _CREDENTIALS.unpack(data)[1]
        return uid & 0xFFFFFFFF

    def _user_name(uid: int) -> str:
        """Empty if the user has no name. May ask a directory service."""
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return ""

else:

    def _uid_of(connection: socket.socket) -> int:
        raise OSError("this system does not report the user of a socket's peer")

    def _user_name(uid: int) -> str:
        return ""
