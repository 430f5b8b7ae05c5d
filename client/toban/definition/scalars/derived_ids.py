"""Ids that are derived from names in any script."""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256

_LONGEST = 64
_HASH_DIGITS = 8
_GAPS = re.compile(r"[^a-z0-9_]+")


def derive_id(name: str, word: str) -> str:
    """The ASCII letters and digits of a name, without accents, as in `fetch-data`.

    If the name has other letters or is too long, a short hash of it follows; `word` replaces a name without any ASCII.
    """
    plain = [char for char in unicodedata.normalize("NFKD", name).lower() if not unicodedata.combining(char)]
    slug = _GAPS.sub("-", "".join(plain)).strip("-_")
    lost = any(char.isalnum() and not char.isascii() for char in plain)
    if slug and not lost and len(slug) <= _LONGEST:
        return slug
    digest = sha256(unicodedata.normalize("NFC", name).encode(errors="replace")).hexdigest()[:_HASH_DIGITS]
    begin = slug[: _LONGEST - _HASH_DIGITS - 1].rstrip("-_") or word
    return f"{begin}-{digest}"
