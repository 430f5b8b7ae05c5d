"""Texts by which people know things and find them again, such as a subject or a dedupe key."""

from __future__ import annotations

import unicodedata

from toban.limits import MAX_KEY_CHARS

# Controls, halves of characters, and ends of lines and paragraphs. Wide spaces and joiners are letters to somebody.
_REFUSED = frozenset({"Cc", "Cs", "Zl", "Zp"})


def check_key(text: str, *, required: bool = False) -> str:
    """The text. Raises ValueError with what is wrong with it."""
    if required and not text.strip():
        raise ValueError("it is empty")
    if len(text) > MAX_KEY_CHARS:
        raise ValueError(f"found {len(text)} characters, at most {MAX_KEY_CHARS}")
    if any(unicodedata.category(character) in _REFUSED for character in text):
        raise ValueError("it has a line break or a control character")
    return text
