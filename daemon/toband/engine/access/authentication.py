"""Authentication: which identity the credentials of a call prove."""

from __future__ import annotations

import os
from dataclasses import dataclass

from toband.domain.identity import Identity, IdentityKind, Role
from toband.engine.errors import CredentialReason, InvalidCredentialError


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """An address that the daemon listens on."""

    address: str
    role: Role | None = None
    """The role of a caller without a credential; None: a credential is required."""

    @property
    def caller(self) -> str:
        """The name of a caller of whom only the door is known."""
        if self.address.startswith("unix://"):
            return f"socket:{os.path.basename(self.address)}"
        return self.address.replace("://", ":")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a call presents of itself. Nothing of it is proved."""

    authorization: str = ""
    """The metadata of this name."""


class Authenticator:
    async def identify(self, door: Door, credentials: Credentials) -> Identity:
        """Raises InvalidCredentialError."""
        if credentials.authorization:
            raise InvalidCredentialError("the credential is not valid", CredentialReason.INVALID)
        if door.role is None:
            raise InvalidCredentialError("a credential is required", CredentialReason.REQUIRED)
        return Identity(name=door.caller, kind=IdentityKind.SOCKET, role=door.role)
