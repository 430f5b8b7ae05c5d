"""Authentication: which identity the credentials of a call prove."""

from __future__ import annotations

import re
from dataclasses import dataclass

from toban.token_text import read_token_text
from toband.domain.identity import Identity
from toband.engine.access.door import Door
from toband.engine.access.external_identities import CertificateIdentities, IssuerIdentities
from toband.engine.access.login_tokens import LoginTokens
from toband.engine.access.sessions import Sessions
from toband.engine.access.step_tokens import StepTokens
from toband.engine.access.tokens import Tokens, invalid_credential
from toband.engine.errors import CredentialReason, InvalidCredentialError

_BEARER = re.compile(r"bearer +(?P<text>[!-~]+)", re.IGNORECASE)
_LONGEST = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a call presents of itself. Only the certificate is proved, by the handshake."""

    authorization: str = ""
    origin: str = ""
    """The attempt of a step: `RUN_ID/TOKEN`."""
    certificate: bytes = b""
    """A client certificate that the authority of the configuration signed, in PEM; empty: none."""


class Authenticator:
    """One credential decides, and a credential that proves nothing never falls back to another.

    In this order: a session, a token or a signed token, the step of the call, a login token, a client certificate, the
    door. So a step stays a step although its process could fetch a login token, or may open the socket of the
    administrator.
    """

    def __init__(
        self,
        *,
        tokens: Tokens,
        logins: LoginTokens,
        sessions: Sessions,
        steps: StepTokens,
        certificates: CertificateIdentities,
        issuers: IssuerIdentities,
    ) -> None:
        self._tokens = tokens
        self._logins = logins
        self._sessions = sessions
        self._steps = steps
        self._certificates = certificates
        self._issuers = issuers

    async def identify(self, door: Door, credentials: Credentials) -> Identity:
        """Raises InvalidCredentialError."""
        login = None
        if credentials.authorization:
            identity, login = await self._bearer(door, credentials.authorization)
            if identity is not None:
                return identity
        if credentials.origin:
            return self._steps.identify(credentials.origin)
        if login is not None:
            return login
        if credentials.certificate:
            return self._certificates.identify(credentials.certificate)
        if door.role is None:
            raise InvalidCredentialError("a credential is required", CredentialReason.REQUIRED)
        return door.identity

    async def _bearer(self, door: Door, authorization: str) -> tuple[Identity | None, Identity | None]:
        """The identity of a session or token, or else that of a login token. Raises InvalidCredentialError."""
        match = _BEARER.fullmatch(authorization[: _LONGEST + 1])
        if match is None or len(authorization) > _LONGEST:
            raise invalid_credential()
        text = match["text"]
        token = read_token_text(text)
        if token is not None:
            login = self._logins.identify(door, token)
            if login is not None:
                return None, login
            return self._sessions.identify(token) or self._tokens.identify(token), None
        if text.count(".") == 2:
            return await self._issuers.identify(text), None
        raise invalid_credential()
