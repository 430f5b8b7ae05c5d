"""Keys that people choose and look things up by, such as a subject or a dedupe key."""

from __future__ import annotations

import unicodedata

from toban.limits import MAX_KEY_CHARS

# Controls, surrogates, and line and paragraph separators. Some scripts need wide spaces and joiners.
_REFUSED = frozenset({"Cc", "Cs", "Zl", "Zp"})


def check_key(text: str, *, required: bool = False) -> str:
    """Returns the text. Raises ValueError with the reason if it is not a valid key."""
    if required and not text.strip():
        raise ValueError("it is empty")
    if len(text) > MAX_KEY_CHARS:
        raise ValueError(f"found {len(text)} characters, at most {MAX_KEY_CHARS}")
    if any(unicodedata.category(character) in _REFUSED for character in text):
        raise ValueError("it has a line break or a control character")
    return text
