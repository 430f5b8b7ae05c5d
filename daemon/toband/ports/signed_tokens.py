"""Signed tokens (JWT) of configured issuers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from toband.domain.credential_rules import IssuerRules


class BadSignedTokenError(Exception):
    """The token proves nothing; the text says why, for the log."""

    def __init__(self, text: str, *, expired: bool = False) -> None:
        super().__init__(text)
        self.expired = expired


class SignedTokens(Protocol):
    async def verify(self, text: str) -> tuple[str, Mapping[str, Any]]:
        """The issuer, and the claims, of which `exp` is a number. Raises BadSignedTokenError."""
        ...

    def use(self, issuers: Sequence[IssuerRules]) -> None:
        """Replaces the issuers. The keys of those that stay remain known."""
        ...
