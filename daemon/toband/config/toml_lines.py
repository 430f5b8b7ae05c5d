"""The lines of the keys of a TOML document. The standard library's parser reads values only."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping

Path = tuple[str | int, ...]

_TOKEN = re.compile(
    r'''(?P<skip>[ \t\r]+|\#[^\n]*)
    |(?P<newline>\n)
    |(?P<text>"""(?:\\.|[^\\])*?"{3,5}(?!")|\'\'\'.*?\'{3,5}(?!\')|"(?:\\.|[^"\\\n])*"|'[^'\n]*')
    |(?P<mark>[\[\]{}=,.])
    |(?P<word>[^\s\[\]{}=,.\#"']+)''',
    re.DOTALL | re.VERBOSE,
)


def key_lines(text: str) -> Mapping[Path, int]:
    """The line of each key, table, and member of an array, by its path. The document must be valid."""
    reader = _Reader(text)
    reader.read()
    return reader.lines


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._kind, self._text, self._line = next(self._tokens)
        self._members: Counter[Path] = Counter()
        self.lines: dict[Path, int] = {}

    def read(self) -> None:
        table: Path = ()
        while self._kind != "end":
            if self._kind == "newline":
                self._next()
            elif self._text == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        line = self._line
        self._next()
        member = self._text == "["
        if member:
            self._next()
        path = self._resolved(self._key())
        while self._text == "]":
            self._next()
        self.lines.setdefault(path, line)
        if member:
            self._members[path] += 1
            path = (*path, self._members[path] - 1)
            self.lines[path] = line
        return path

    def _resolved(self, key: Path) -> Path:
        """A header below an array of tables belongs to the last member of that array."""
        path: Path = ()
        for part in key[:-1]:
            path = (*path, part)
            if path in self._members:
                path = (*path, self._members[path] - 1)
        return (*path, *key[-1:])

    def _pair(self, table: Path) -> None:
        line = self._line
        key = self._key()
        for depth in range(1, len(key) + 1):
            self.lines.setdefault((*table, *key[:depth]), line)
        self._next()  # the equals sign
        self._value((*table, *key))

    def _key(self) -> Path:
        parts: list[str] = []
        while self._kind in ("word", "text") or self._text == ".":
            if self._text != ".":
                quoted = self._kind == "text"
                parts.append(tomllib.loads(f"key = {self._text}")["key"] if quoted else self._text)
            self._next()
        return tuple(parts)

    def _value(self, path: Path) -> None:
        opened, number = self._text, 0
        if opened not in ("[", "{"):
            while self._kind not in ("newline", "end") and self._text not in (",", "]", "}"):
                self._next()
            return
        self._next()
        while self._text not in ("]", "}") and self._kind != "end":
            if self._kind == "newline" or self._text == ",":
                self._next()
            elif opened == "{":
                self._pair(path)
            else:
                self.lines[*path, number] = self._line
                self._value((*path, number))
                number += 1
        self._next()

    def _next(self) -> None:
        self._kind, self._text, self._line = next(self._tokens, ("end", "", self._line))


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and line of each. A text in quotes is never mistaken for a mark."""
    line = 1
    for match in _TOKEN.finditer(text):
        kind, found = match.lastgroup or "", match[0]
        if kind != "skip":
            yield kind, found, line
        line += found.count("\n")
    yield "end", "", line
