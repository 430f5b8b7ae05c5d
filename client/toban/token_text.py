"""The text of a token: `toban_ID_SECRET`. The ID names the token; the secret is known to its owner only."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

_TEXT = re.compile(r"toban_(?P<id>[0-9a-f]{16})_(?P<secret>[0-9A-Za-z_-]{43})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenText:
    id: str
    text: str

    @property
    def digest(self) -> str:
        """What a daemon stores of it. The secret has 256 random bits, so that a plain hash is enough."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"TokenText(id={self.id!r})"


def new_token_text() -> TokenText:
    token_id = secrets.token_hex(8)
    return TokenText(id=token_id, text=f"toban_{token_id}_{secrets.token_urlsafe(32)}")


def read_token_text(text: str) -> TokenText | None:
    """None if it is not the text of a token."""
    match = _TEXT.fullmatch(text)
    return TokenText(id=match["id"], text=text) if match else None
