"""External identities: client certificates and signed tokens, by the rules of the configuration."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime

import structlog

from toband.domain.credential_rules import CertificateFacts, CertificateRule, ClaimRule, IssuerRules
from toband.domain.identity import Identity, IdentityKind
from toband.engine.access.live_streams import LiveStreams
from toband.engine.access.rate_limit import TokenBucket
from toband.engine.access.tokens import invalid_credential
from toband.engine.errors import CredentialReason, InvalidCredentialError
from toband.ports import BadSignedTokenError, Clock, SignedTokens

log = structlog.get_logger()


class CertificateIdentities:
    """`read` reads a certificate in PEM; it raises ValueError."""

    def __init__(
        self, rules: Sequence[CertificateRule], read: Callable[[bytes], CertificateFacts], clock: Clock
    ) -> None:
        self._rules = rules
        self._read = read
        self._log = _RefusalLog()
        self._clock = clock

    def use(self, rules: Sequence[CertificateRule], streams: LiveStreams) -> None:
        """Replaces the rules. Ends the streams that a rule permitted which is gone or changed."""
        self._rules = rules
        _end_others(streams, _CERTIFICATE, {_by_certificate_rule(each) for each in rules})

    def identify(self, certificate: bytes) -> Identity:
        """The handshake has verified the certificate. Raises InvalidCredentialError."""
        try:
            facts = self._read(certificate)
        except ValueError as error:
            raise self._log.invalid(f"the client certificate cannot be read: {error}") from None
        if facts.not_after <= self._clock.now():
            raise _expired()
        rule = next((each for each in self._rules if each.matches(facts)), None)
        if rule is None:
            raise self._log.invalid(
                f"no rule of access.certificates matches the client certificate of {facts.subject_cn!r}"
            )
        name = rule.name or facts.subject_cn or next(iter(facts.san), "")
        if not name or not name.isprintable():
            raise self._log.invalid("the client certificate has no usable name")
        return Identity(
            name=f"certificate:{name}",
            kind=IdentityKind.CERTIFICATE,
            role=rule.grant.role,
            narrowing=rule.grant.narrowing,
            # Who requests a certificate may choose its name: `uid:0` or `token:ci` must not pass for another identity.
            aliases=frozenset() if ":" in name else frozenset({name}),
            credential=_by_certificate_rule(rule),
            expires_at=facts.not_after,
        )


class IssuerIdentities:
    def __init__(self, issuers: Sequence[IssuerRules], signed: SignedTokens) -> None:
        self._issuers = {each.issuer: each for each in issuers}
        self._signed = signed
        self._log = _RefusalLog()

    def use(self, issuers: Sequence[IssuerRules], streams: LiveStreams) -> None:
        """Replaces the rules. Ends the streams that a rule permitted which is gone or changed."""
        self._issuers = {each.issuer: each for each in issuers}
        self._signed.use(issuers)
        _end_others(streams, _ISSUER, {_by_issuer(each, rule) for each in issuers for rule in each.rules})

    async def identify(self, text: str) -> Identity:
        """`text` is a JWT. Raises InvalidCredentialError."""
        try:
            issuer, claims = await self._signed.verify(text)
        except BadSignedTokenError as error:
            raise (_expired() if error.expired else self._log.invalid(f"a signed token was refused: {error}")) from None
        rules = self._issuers.get(issuer)
        if rules is None:
            # A reload removed it while its keys were read.
            raise self._log.invalid("a signed token was refused: the issuer is not configured")
        rule, name = rules.rule(claims), rules.name(claims)
        if rule is None:
            raise self._log.invalid(f"no rule of the issuer {issuer} matches the claims of {name!r}")
        if not name:
            raise self._log.invalid(f"a signed token of {issuer} has no usable claim {rules.name_claim!r}")
        return Identity(
            name=f"{rules.label}:{name}",
            kind=IdentityKind.ISSUER,
            role=rule.grant.role,
            narrowing=rule.grant.narrowing,
            credential=_by_issuer(rules, rule),
            expires_at=datetime.fromtimestamp(claims["exp"], UTC),
        )


_CERTIFICATE, _ISSUER = "certificate:", "issuer:"


def _by_certificate_rule(rule: CertificateRule) -> str:
    """Changes with the rule."""
    return f"{_CERTIFICATE}{rule!r}"


def _by_issuer(issuer: IssuerRules, rule: ClaimRule) -> str:
    """Changes with how the issuer's tokens are read, and with the rule."""
    return f"{_ISSUER}{dataclasses.replace(issuer, rules=())!r} {rule!r}"


def _end_others(streams: LiveStreams, kind: str, permitted: Collection[str]) -> None:
    for credential in streams.credentials():
        if credential.startswith(kind) and credential not in permitted:
            streams.end(credential, InvalidCredentialError("the credential was revoked", CredentialReason.REVOKED))


class _RefusalLog:
    """Logs why credentials are refused, because callers are not told; limited during a flood."""

    def __init__(self) -> None:
        self._bucket = TokenBucket(rate=1, burst=20)

    def invalid(self, why: str) -> InvalidCredentialError:
        if self._bucket.take(time.monotonic()):
            log.info("a credential was refused", action="credential_refused", reason=why)
        return invalid_credential()


def _expired() -> InvalidCredentialError:
    return InvalidCredentialError("the credential has expired", CredentialReason.EXPIRED)
