"""Rules of the configuration: which identity a credential from elsewhere proves."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from toband.domain.identity import Narrowing, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleGrant:
    """What a rule gives."""

    role: Role
    narrowing: Narrowing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredToken:
    """A token that the configuration names by the digest of its text."""

    name: str
    digest: str
    grant: RoleGrant
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringCertificate:
    """A certificate of the configuration; `described` says in which file it is."""

    described: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """A client certificate that its authority has signed, and the handshake has verified."""

    subject_cn: str
    san: tuple[str, ...]
    """The alternative names: DNS names, e-mail addresses, URIs, IP addresses."""
    not_after: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRule:
    """Matches certificates by patterns; an empty one matches all."""

    grant: RoleGrant
    subject_cn: str = ""
    san: str = ""
    name: str = ""
    """The name of the identity; empty: the common name, or else the first alternative name."""

    def matches(self, facts: CertificateFacts) -> bool:
        if self.subject_cn and not fnmatchcase(facts.subject_cn, self.subject_cn):
            return False
        return not self.san or any(fnmatchcase(each, self.san) for each in facts.san)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRule:
    """Matches a signed token whose claims all match: by a pattern, or by a member of a list."""

    grant: RoleGrant
    claims: tuple[tuple[str, str], ...]

    def matches(self, claims: Mapping[str, Any]) -> bool:
        return all(_claim_matches(_claim(claims, name), pattern) for name, pattern in self.claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerRules:
    """An issuer of signed tokens (OIDC). The first rule that matches counts."""

    issuer: str
    audience: str
    label: str
    """Before the name of an identity, as in `keycloak:aiko`."""
    rules: tuple[ClaimRule, ...]
    jwks_file: str = ""
    jwks_url: str = ""
    name_claim: str = "sub"

    def rule(self, claims: Mapping[str, Any]) -> ClaimRule | None:
        """The first that matches."""
        return next((each for each in self.rules if each.matches(claims)), None)

    def name(self, claims: Mapping[str, Any]) -> str:
        """Empty if the claims have no usable name."""
        found = _claim(claims, self.name_claim)
        return found if isinstance(found, str) and found.isprintable() and len(found) <= 200 else ""


def is_safe_key_url(url: str) -> bool:
    """Whether the keys of an issuer cannot be replaced on the way: https, or an address of this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host)))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim, or one within another as in `realm_access.roles`. None if it is absent."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _claim_matches(value: Any, pattern: str) -> bool:
    if isinstance(value, bool):
        return pattern == str(value).lower()
    if isinstance(value, str | int):
        return fnmatchcase(str(value), pattern)
    return isinstance(value, Sequence) and any(_claim_matches(each, pattern) for each in value if _is_scalar(each))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int)
