"""The published keys of an issuer (JWKS), from a file or an address, kept for a while."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from toband.domain.credential_rules import is_safe_key_url
from toband.ports import BadSignedTokenError

if TYPE_CHECKING:
    import jwt

FETCH_WITHIN = 5.0
LARGEST = 1024 * 1024
FRESH_FOR = 600.0
"""Seconds after which keys are read again."""
USED_FOR = 86_400.0
"""Seconds for which known keys are used while an issuer does not answer."""
READ_AGAIN_AFTER = 15.0
"""Seconds between two reads because of an unknown key, or after a failure."""
_SIGNING = ("RSA", "EC", "OKP")

log = structlog.get_logger()


class KeySet:
    """Belongs to the event loop. `read` returns a JWKS; it runs in a thread, and raises OSError or ValueError."""

    def __init__(self, source: str, read: Callable[[], bytes]) -> None:
        self._source = source
        self._read = read
        self._keys: Sequence[jwt.PyJWK] = ()
        self._read_at = float("-inf")
        self._tried_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None) -> jwt.PyJWK:
        """The key of that id; without an id the only key. Raises BadSignedTokenError."""
        if self._age() > FRESH_FOR:
            await self._refresh()
        if (found := self._known(key_id)) is None:
            # The issuer may have a new key.
            await self._refresh()
            found = self._known(key_id)
        if found is None:
            raise BadSignedTokenError(f"{self._source} has no key {key_id!r}" if key_id else "the token names no key")
        return found

    def _known(self, key_id: str | None) -> jwt.PyJWK | None:
        if self._age() > USED_FOR:
            return None
        matching = [each for each in self._keys if key_id is None or each.key_id == key_id]
        return matching[0] if len(matching) == 1 else None

    def _age(self) -> float:
        return time.monotonic() - self._read_at

    async def _refresh(self) -> None:
        """At most one read at a time, and not again at once."""
        if self._reading is None:
            if time.monotonic() - self._tried_at < READ_AGAIN_AFTER:
                return
            self._reading = asyncio.create_task(self._read_once())
        await asyncio.shield(self._reading)

    async def _read_once(self) -> None:
        self._tried_at = time.monotonic()
        try:
            data = await asyncio.get_running_loop().run_in_executor(None, self._read)
            self._keys = parse_keys(data)
            self._read_at = time.monotonic()
        except (OSError, ValueError, http.client.HTTPException) as error:
            text = f"cannot read the keys of an issuer from {self._source}"
            log.warning(text, action="keys_failed", error=str(error))
        finally:
            self._reading = None


def parse_keys(data: bytes) -> Sequence[jwt.PyJWK]:
    """The keys for asymmetric signatures. Raises ValueError."""
    try:
        listed = json.loads(data)["keys"]
        given = [each for each in listed if each.get("kty") in _SIGNING and each.get("use", "sig") == "sig"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError("it is not a JWKS document") from None
    return [key for each in given if (key := _key(each)) is not None]


def _key(data: dict[str, Any]) -> jwt.PyJWK | None:
    """None for a key of a kind that is not known; the others still count."""
    import jwt

    try:
        return jwt.PyJWK(data)
    except jwt.PyJWTError:
        return None


def file_reader(path: str) -> Callable[[], bytes]:
    def read() -> bytes:
        with open(path, "rb") as file:
            return _limited(file.read(LARGEST + 1))

    return read


def url_reader(url: str) -> Callable[[], bytes]:
    # Without TLS a proxy of the environment could replace the keys, also those of this machine.
    proxies = {scheme: proxy for scheme, proxy in urllib.request.getproxies().items() if scheme == "https"}
    opener = urllib.request.build_opener(_SafeRedirects(), urllib.request.ProxyHandler(proxies))

    def read() -> bytes:
        with opener.open(url, timeout=FETCH_WITHIN) as response:
            return _limited(response.read(LARGEST + 1))

    return read


def _limited(data: bytes) -> bytes:
    if len(data) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST:,} bytes")
    return data


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if not is_safe_key_url(newurl):
            raise urllib.error.URLError("it redirects to an address without TLS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
