"""Pages: a size within bounds, and an opaque token that says what the last page ended with."""

from __future__ import annotations

import base64
import binascii

from toband.api.errors import InvalidFieldError

MOST = 1000


def size(asked: int, default: int) -> int:
    """Raises InvalidFieldError."""
    if asked < 0:
        raise InvalidFieldError("page_size", f"found {asked}, expected 0 or more")
    return min(asked or default, MOST)


def token(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")


def last(given: str) -> str:
    """What `token` was made of. Raises InvalidFieldError."""
    try:
        return base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise InvalidFieldError("page_token", "it is not one that a list gave") from None


def number(given: str) -> int:
    """As `last`, for lists that are ordered by number."""
    text = last(given)
    if not text.isdigit():
        raise InvalidFieldError("page_token", "it is not one that this list gave")
    return int(text)
