"""Requests to an issuer: what it says about itself, and the exchange of a code."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from toban.gateway.web_site import LOOPBACK

_WITHIN: Final = 10.0
_LARGEST: Final = 1024 * 1024
_FACTS_FOR: Final = 3600.0


class IssuerError(Exception):
    """An issuer does not answer, or not as it should; the text can be shown to a user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerFacts:
    authorization_endpoint: str
    token_endpoint: str
    until: float


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A code and a secret go where the issuer said, and nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class IssuerRequests:
    """Blocking; for a thread. Raises IssuerError."""

    def __init__(self, ca_file: str = "") -> None:
        context = ssl.create_default_context(cafile=ca_file or None)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects)
        self._facts: dict[str, IssuerFacts] = {}

    def discover(self, issuer: str) -> IssuerFacts:
        """What the issuer says about itself, at most an hour ago."""
        known = self._facts.get(issuer)
        if known is not None and known.until > time.monotonic():
            return known
        found = self._fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise IssuerError(f"{issuer} says that it is another issuer")
        endpoints = [str(found.get(name, "")) for name in ("authorization_endpoint", "token_endpoint")]
        for each in endpoints:
            check_issuer_url(each)
        facts = IssuerFacts(
            authorization_endpoint=endpoints[0],
            token_endpoint=endpoints[1],
            until=time.monotonic() + _FACTS_FOR,
        )
        self._facts[issuer] = facts
        return facts

    def redeem(self, issuer: str, fields: Mapping[str, str], client_id: str, secret: str) -> Mapping[str, Any]:
        """The tokens for a code."""
        headers = {}
        if secret:
            pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return self._fetch(self.discover(issuer).token_endpoint, urlencode(fields).encode(), headers)

    def _fetch(
        self, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        check_issuer_url(url)
        host = urlsplit(url).netloc
        request = urllib.request.Request(  # noqa: S310 - http or https: checked above
            url, body, {"Accept": "application/json", **(headers or {})}
        )
        try:
            with self._opener.open(request, timeout=_WITHIN) as response:
                content = response.read(_LARGEST + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise IssuerError(f"{host} refused the login: {_reason(error)}") from None
        except (OSError, ValueError) as error:
            raise IssuerError(f"{host} does not answer: {getattr(error, 'reason', error)}") from None
        try:
            found = json.loads(content) if len(content) <= _LARGEST else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise IssuerError(f"{host} sent an answer that cannot be read")
        return found


def check_issuer_url(url: str) -> None:
    """Raises IssuerError for an address that is not https; on this machine it need not be."""
    parts = urlsplit(url)
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)):
        raise IssuerError(f"the issuer must be reached over https, found {url[:200]!r}")


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        found = json.loads(error.read(_LARGEST))
        return str(found.get("error_description") or found["error"])
    except (OSError, ValueError, LookupError, AttributeError, RecursionError):
        return f"{error.code} {error.reason}"
