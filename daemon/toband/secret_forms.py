"""The byte strings under which a secret may appear in output: as it is, encoded, escaped or quoted.

Long ones are cut into pieces of 64 bytes and more, so that comparing and holding back stay cheap; a piece is masked
wherever it appears.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator

SHORTEST = 6
"""Characters. Shorter secrets are refused elsewhere; shorter lines of longer ones are masked with their neighbours."""
LONGEST = 127
"""Bytes of a form."""
_PIECE = 64
_ALPHANUMERIC = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
# What the encoders in use leave as it is: quote of Python (both defaults), encodeURIComponent, encodeURI, Java's.
_UNRESERVED = tuple(
    _ALPHANUMERIC | frozenset(each) for each in (b"-._~", b"-._~/", b"-._~!'()*", b"-._~!'()*;,/?:@&=+$#", b"-._*")
)
_SHELL_PLAIN = frozenset("-_./:=@%+,")
_JSON_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_JSON_SLASHES = ("/", "\\/", "\\u002F")
# Besides what JSON demands: nothing; what Go escapes; what .NET escapes.
_JSON_ESCAPED = ("", "<>&", "<>&'\"+`")
_ANSI_C = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "\\'", "\x1b": "\\E", "\a": "\\a", "\b": "\\b"}
_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKUP_QUOTES: tuple[dict[str, str], ...] = (
    {},
    {'"': "&quot;", "'": "&#x27;"},
    {'"': "&quot;", "'": "&#39;"},
    {'"': "&#34;", "'": "&#39;"},
    {'"': "&quot;", "'": "&apos;"},
)


def forms_of(value: str) -> set[bytes]:
    """All forms of one secret; of several lines also each line that is long enough."""
    forms: set[bytes] = set()
    for text in _texts(value):
        forms.update(_encoded(text))
    return {piece for form in forms for piece in _pieces(form)}


def _texts(value: str) -> set[str]:
    lines = [line.strip("\r") for line in value.split("\n")]
    found = {each for line in lines for each in (line, line.strip()) if len(each) >= SHORTEST}
    whole = value.strip("\r\n")
    # With all its lines masked it is masked as a whole.
    if len(whole) >= SHORTEST and any(0 < len(line) < SHORTEST for line in lines):
        found |= {whole, "\r\n".join(whole.split("\n"))}
    if not found and len(value) >= SHORTEST:
        found.add(value)
    return found


def _encoded(text: str) -> Iterator[bytes]:
    raw = text.encode(errors="surrogateescape")
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    for standard in _in_base64(raw):
        url_safe = standard.replace(b"+", b"-").replace(b"/", b"_")
        yield from (standard, url_safe)
        if url_safe != standard:
            yield standard.replace(b"/", b"\\/")
            for plus, slash in ((b"%2B", b"%2F"), (b"%2b", b"%2f")):
                quoted = standard.replace(b"+", plus)
                yield from (quoted, quoted.replace(b"/", slash))
    if text.isascii() and text.isalnum():
        return
    yield from _in_url(raw)
    for escaped in (*_in_json(text), *_in_shell(text), *_in_python(text, raw), *_in_markup(text)):
        yield escaped.encode(errors="surrogateescape")


def _in_base64(raw: bytes) -> Iterator[bytes]:
    """For each of the three positions that it may have: the characters that its bytes alone decide.

    Also with the last character, as it is when nothing follows, or a line break.
    """
    for before, first in ((0, 0), (1, 2), (2, 3)):
        text = base64.b64encode(bytes(before) + raw).rstrip(b"=")
        if (before + len(raw)) % 3 == 0:
            yield text[first:]
            continue
        yield text[first:-1]
        yield text[first:]
        yield base64.b64encode(bytes(before) + raw + b"\n").rstrip(b"=")[first:]


def _in_url(raw: bytes) -> Iterator[bytes]:
    for unreserved in _UNRESERVED:
        for escape in ("%%%02X", "%%%02x"):
            escaped = {byte: chr(byte) if byte in unreserved else escape % byte for byte in set(raw)}
            yield "".join(escaped[byte] for byte in raw).encode()
            if 0x20 in escaped:
                escaped[0x20] = "+"
                yield "".join(escaped[byte] for byte in raw).encode()


def _in_json(text: str) -> set[str]:
    found = set()
    for ascii_only in (False, True):
        for slash in _JSON_SLASHES:
            for extra in _JSON_ESCAPED:
                for digits in ("%04x", "%04X"):
                    found.add(_json(text, ascii_only, slash, extra, digits))
    # JSON within a string of JSON.
    return found | {_json(_json(text, inner, "/", "", "%04x"), inner, "/", "", "%04x") for inner in (False, True)}


def _json(text: str, ascii_only: bool, slash: str, extra: str, digits: str) -> str:
    def escape(char: str) -> str:
        if char in extra or (char < " " and char not in _JSON_SHORT) or (ascii_only and char > "~"):
            return "".join("\\u" + digits % unit for unit in _units(char))
        return slash if char == "/" else _JSON_SHORT.get(char, char)

    return _each(text, escape)


def _units(char: str) -> Iterable[int]:
    """Of UTF-16."""
    data = char.encode("utf-16-le", errors="surrogatepass")
    return (data[i] | data[i + 1] << 8 for i in range(0, len(data), 2))


def _in_shell(text: str) -> Iterator[str]:
    yield text.replace("'", "'\\''")
    yield text.replace("'", "'\"'\"'")
    yield _each(text, lambda char: "\\" + char if char in '"\\$`' else char)
    yield _each(text, lambda char: char if char.isalnum() or char in _SHELL_PLAIN or char > "~" else "\\" + char)
    yield _each(text, lambda char: _ANSI_C.get(char, char))
    yield _each(
        text,
        lambda char: (
            "".join(f"\\{byte:03o}" for byte in char.encode(errors="surrogateescape"))
            if char > "~"
            else _ANSI_C.get(char, char)
        ),
    )


def _in_python(text: str, raw: bytes) -> Iterator[str]:
    for shown in (repr(text)[1:-1], ascii(text)[1:-1], repr(raw)[2:-1]):
        yield shown
        yield shown.replace("\\'", "'")
        yield shown.replace("'", "\\'")


def _in_markup(text: str) -> Iterator[str]:
    for quotes in _MARKUP_QUOTES:
        table = _MARKUP | quotes
        yield _each(text, lambda char, table=table: table.get(char, char))  # type: ignore[misc]


def _each(text: str, escape: Callable[[str], str]) -> str:
    escaped = {char: escape(char) for char in set(text)}
    return "".join(escaped[char] for char in text)


def _pieces(form: bytes) -> Iterator[bytes]:
    if len(form) <= LONGEST:
        yield form
        return
    for start in range(0, len(form) - 2 * _PIECE + 1, _PIECE):
        yield form[start : start + _PIECE]
    yield form[(len(form) // _PIECE - 1) * _PIECE :]
