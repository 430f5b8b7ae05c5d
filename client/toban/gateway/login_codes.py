"""Single-use codes of the link that `toban web` prints."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Final

LIFETIME: Final = 60.0
_MOST: Final = 100


class LoginCodes:
    """Codes are kept as digests, in memory, until they are used or expire."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._until: dict[bytes, float] = {}

    def new(self) -> str:
        """A code that is good once, for LIFETIME seconds."""
        now = self._monotonic()
        self._until = {digest: until for digest, until in self._until.items() if until > now}
        while len(self._until) >= _MOST:
            del self._until[next(iter(self._until))]
        code = secrets.token_urlsafe(24)
        self._until[_digest(code)] = now + LIFETIME
        return code

    def take(self, code: str) -> bool:
        """Whether the code is good. From now on it is not."""
        until = self._until.pop(_digest(code), None)
        return until is not None and until > self._monotonic()


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest()
