"""Verifies signed tokens (JWT) with the keys of their issuers.

PyJWT takes megabytes: it is loaded with the first token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from toband.domain.credential_rules import IssuerRules
from toband.ports import BadSignedTokenError
from toband.signed_credentials.key_sets import KeySet, file_reader, url_reader

if TYPE_CHECKING:
    import jwt

ALGORITHMS: Mapping[str, Sequence[str]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""By the kind of a key. Only asymmetric ones: a public key must never be taken for a shared secret."""
_UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError)
"""What PyJWT raises, besides its own errors, for claims of the wrong kind or nested too deeply."""
SKEW = 30.0
"""Seconds by which the clocks of the issuer and of this machine may differ."""


class JwtVerifier:
    """`toband.ports.SignedTokens`."""

    def __init__(self, issuers: Sequence[IssuerRules]) -> None:
        self._keys: dict[tuple[str, str], KeySet] = {}
        self.use(issuers)

    def use(self, issuers: Sequence[IssuerRules]) -> None:
        known, self._keys = self._keys, {}
        for each in issuers:
            place = (each.jwks_file, each.jwks_url)
            # Keys that were read stay known: their issuer may not answer now.
            self._keys[place] = known.get(place) or _key_set(each)
        self._issuers = {each.issuer: (each, self._keys[each.jwks_file, each.jwks_url]) for each in issuers}

    async def verify(self, text: str) -> tuple[str, Mapping[str, Any]]:
        import jwt

        try:
            header = jwt.get_unverified_header(text)
            issuer = jwt.decode(text, options={"verify_signature": False}).get("iss")
        except (jwt.PyJWTError, *_UNREADABLE) as error:
            raise BadSignedTokenError(str(error)) from None
        known = self._issuers.get(issuer) if isinstance(issuer, str) else None
        if known is None:
            raise BadSignedTokenError("the issuer is not configured")
        rules, keys = known
        key_id = header.get("kid")
        key = await keys.find(key_id if isinstance(key_id, str) else None)
        return rules.issuer, _claims(text, key, header, rules)


def _claims(text: str, key: jwt.PyJWK, header: Mapping[str, Any], rules: IssuerRules) -> Mapping[str, Any]:
    """Raises BadSignedTokenError."""
    import jwt

    facts: Mapping[str, Any] = key._jwk_data
    allowed = ALGORITHMS.get(str(facts.get("kty")), ())
    if header.get("alg") not in allowed or facts.get("alg", header["alg"]) != header["alg"]:
        raise BadSignedTokenError("the algorithm is not allowed")
    try:
        claims: Mapping[str, Any] = jwt.decode(
            text,
            key=key.key,
            algorithms=list(allowed),
            audience=rules.audience,
            issuer=rules.issuer,
            leeway=SKEW,
            options={"require": ["exp", "iss", "aud"]},
        )
        _check_expiry(claims["exp"])
    except jwt.ExpiredSignatureError as error:
        raise BadSignedTokenError(str(error), expired=True) from None
    except (jwt.PyJWTError, *_UNREADABLE) as error:
        raise BadSignedTokenError(str(error)) from None
    return claims


def _check_expiry(value: Any) -> None:
    """A number of seconds that is a time. Raises ValueError."""
    try:
        datetime.fromtimestamp(value, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise ValueError("the expiry is no time") from None


def _key_set(rules: IssuerRules) -> KeySet:
    if rules.jwks_file:
        return KeySet(rules.jwks_file, file_reader(rules.jwks_file))
    return KeySet(rules.jwks_url, url_reader(rules.jwks_url))
