"""Tokens, as the engine uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from toband.domain.identity import Narrowing, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """A token as it is stored: its secret is known by its digest only."""

    id: str
    name: str
    role: Role
    narrowing: Narrowing | None
    digest: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str = ""


class TokenExistsError(Exception):
    """A token with this name exists and is not revoked; the argument is the name."""


class AccessStore(Protocol):
    async def create_token(self, token: StoredToken) -> None:
        """Raises TokenExistsError."""
        ...

    async def list_tokens(self) -> Sequence[StoredToken]:
        """All of them, the revoked ones too, oldest first."""
        ...

    async def forget_tokens(self, before: datetime) -> Sequence[str]:
        """Removes some of the tokens that expired or were revoked before then; their ids, none if there are no more."""
        ...

    async def revoke_token(self, token_id: str, at: datetime, by: str) -> bool:
        """False if it was revoked before, or does not exist."""
        ...

    async def note_token_use(self, token_id: str, at: datetime) -> None: ...
