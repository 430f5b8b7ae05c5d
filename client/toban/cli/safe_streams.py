"""Escapes all text on its way to standard output and standard error.

Names, errors and values are untrusted: control characters and characters that change the display become escapes. Only
the colors of `colored` pass; a random mark identifies them. Bytes of logs and artifacts do not pass here, nor does
rich, whose texts are escaped by their authors.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

from toban.safe_text import CONTROLS, written_out

_MARK: Final = os.urandom(8).hex()
_UNSAFE: Final = re.compile(rf"\x1b{_MARK}(\[[0-9]+m)|[{CONTROLS}]")
_KEPT: Final = "\n\t"


def colored(text: str, code: str) -> str:
    """The text in a color that passes the gate."""
    return f"\x1b{_MARK}[{code}m{text}\x1b{_MARK}[0m"


class Gate:
    """A text stream that escapes control characters. Everything but `write` goes to the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(text if text.isprintable() else _UNSAFE.sub(_harmless, text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def gates() -> Iterator[None]:
    """Puts a gate before standard output and standard error."""
    sys.stdout, sys.stderr = cast(TextIO, Gate(sys.stdout)), cast(TextIO, Gate(sys.stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = behind(sys.stdout), behind(sys.stderr)


def behind(stream: TextIO) -> TextIO:
    """The stream behind its gate."""
    return stream.stream if isinstance(stream, Gate) else stream


def _harmless(found: re.Match[str]) -> str:
    if found[1]:
        return f"\x1b{found[1]}"
    return found[0] if found[0] in _KEPT else written_out(found)
