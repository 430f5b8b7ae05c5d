"""Where the token of a call comes from: given, in a file, or from the login socket of a local daemon."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import datetime
from typing import Final, Protocol

from toban.sdk.credentials import ClientCredentials, checked_token, read_token_file
from toban.sdk.errors import InvalidArgument

# What follows the path of a daemon's socket in that of its login socket.
LOGIN_SUFFIX: Final = ".login"

# A login socket answers at once, without waiting for anything.
_LOGIN_WITHIN: Final = 2.0
_LONGEST_LOGIN: Final = 4096
# Seconds before its expiry at which a login token is replaced.
_LOGIN_MARGIN: Final = 30.0
# Seconds until an absent login socket is tried again.
_ABSENT_FOR: Final = 5.0


class TokenSource(Protocol):
    """The token of the next call; empty for none."""

    async def token(self) -> str: ...

    def renew(self, refused: str) -> bool:
        """Forgets a token that the daemon refused; False if no other one can be had."""
        ...


class GivenToken:
    """Always the same one, or none."""

    def __init__(self, text: str = "") -> None:
        self._text = text

    async def token(self) -> str:
        return self._text

    def renew(self, refused: str) -> bool:
        return False


class TokenFile:
    """A token in a file, which is read again if the daemon refuses what was in it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._text = ""

    async def token(self) -> str:
        self._text = self._text or read_token_file(self._path)
        return self._text

    def renew(self, refused: str) -> bool:
        try:
            self._text = read_token_file(self._path)
        except InvalidArgument:
            return False
        return self._text != refused


# The text of a token, and on time.time() until when it is used.
_Login = tuple[str, float]


class LoginSocket:
    """Short-lived tokens that prove the user of this process; none if the daemon has no such socket."""

    # Of this process, by path of the daemon's socket.
    _known: Final[dict[str, _Login]] = {}

    def __init__(self, path: str) -> None:
        self._path = path

    async def token(self) -> str:
        known = self._known.get(self._path)
        if known is None or known[1] < time.time():
            known = self._known[self._path] = await _log_in(f"{self._path}{LOGIN_SUFFIX}")
        return known[0]

    def renew(self, refused: str) -> bool:
        known = self._known.get(self._path)
        if known is not None and known[0] == refused:
            del self._known[self._path]
        # Without a token another try would end the same.
        return bool(refused)


def token_source(given: ClientCredentials, *, path: str) -> TokenSource:
    """`path` is that of the socket whose login socket is used if no token is given; empty for none."""
    if given.token:
        return GivenToken(checked_token(given.token, "that was given"))
    if given.token_file:
        return TokenFile(given.token_file)
    return LoginSocket(path) if path and sys.platform != "win32" else GivenToken()


async def _log_in(path: str) -> _Login:
    """An empty token if the socket is absent, closed to this user, or does not answer."""
    try:
        async with asyncio.timeout(_LOGIN_WITHIN):
            answer = json.loads(await _answer(path))
        text = checked_token(str(answer["token"]), "of the daemon")
        until = datetime.fromisoformat(answer["expires_at"]).timestamp()
    except (OSError, ValueError, LookupError, TypeError, RecursionError, TimeoutError, InvalidArgument):
        return "", time.time() + _ABSENT_FOR
    return text, until - _LOGIN_MARGIN


if sys.platform == "win32":

    async def _answer(path: str) -> bytes:
        raise OSError("there are no such sockets")

else:

    async def _answer(path: str) -> bytes:
        reader, writer = await asyncio.open_unix_connection(path, limit=_LONGEST_LOGIN)
        try:
            return await reader.readline()
        finally:
            writer.close()
