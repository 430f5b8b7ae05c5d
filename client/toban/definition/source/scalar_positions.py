"""Maps characters of a scalar's value to positions in the file.

Folding, indentation and quoting change white space and escapes only, so the n-th visible character of the value is the
n-th visible character in the source. Slow, and used for problems only.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

from toban.definition.source.yaml_source import Node

_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_ESCAPE = re.compile(r"\\(?:x(..)|u(.{4})|U(.{8})|(\r\n|.))", re.DOTALL)
_PAIR = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..")
_INVISIBLE_ESCAPES = frozenset("tnvfrNLP_ \t\r\n\r\n")


class ScalarPositions:
    """Positions in the source of the characters of one scalar."""

    def __init__(self, source: str, node: Node) -> None:
        self.node = node
        self._written = list(_visible(source, node))
        self._read = [index for index, char in enumerate(node.text) if not char.isspace()]

    def of(self, offset: int) -> int:
        """The position of `node.text[offset]`; white space counts as the visible character after it."""
        number = bisect_left(self._read, offset)
        if number < len(self._written):
            return self._written[number]
        return self._written[-1] + 1 if self._written else self.node.start


def _visible(source: str, node: Node) -> Iterator[int]:
    """Positions in the source of the value's visible characters, in order."""
    match = _PROPERTIES.match(source, node.start, node.end)
    index = match.end() if match else node.start
    end = node.end
    if node.style in ("|", ">"):
        index = source.find("\n", index) + 1
    elif node.style in ("'", '"'):
        index, end = index + 1, end - 1
    while index < end:
        char = source[index]
        if node.style == "'" and char == "'":
            yield index
            index += 2
        elif node.style == '"' and char == "\\":
            escape = _ESCAPE.match(source, index, end)
            if escape is None:
                return
            if _shows(escape):
                yield index
            pair = _PAIR.match(source, index, end)
            index = (pair or escape).end()
        else:
            if not char.isspace():
                yield index
            index += 1


def _shows(escape: re.Match[str]) -> bool:
    digits = escape[1] or escape[2] or escape[3]
    if digits:
        return not chr(int(digits, 16)).isspace()
    return escape[4] not in _INVISIBLE_ESCAPES
