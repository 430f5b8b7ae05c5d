"""Readers of the client: the output of steps on a terminal, and the file of contexts."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from fuzz.mutation import words_of
from fuzz.target import Check, Target, expect_type
from toban.cli.render.terminal_text import TerminalText, terminal_line
from toban.sdk.endpoint import resolve
from toban.sdk.errors import TobanError

# Colors, the beginning of a line that replaces itself, and what is neither a control character nor the start of one.
_SAFE = re.compile(r"(?:\x1b\[[0-9;:]*m|\r\x1b\[K|[^\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069])*")


@contextlib.contextmanager
def _terminal(work: Path) -> Iterator[Check]:
    def check(data: bytes) -> str:
        """Nothing but colors reaches the terminal, however the output is split; the last color ends."""
        whole = _shown(data)
        assert _SAFE.fullmatch(whole), whole
        half = len(data) // 2
        assert _shown(data[:half], data[half:]) == whole
        assert "\x1b" not in _shown(data, color=False).replace("\r\x1b[K", "")
        colors = re.findall(r"\x1b\[([0-9;:]*)m", whole)
        assert not colors or not colors[-1].strip("0;:"), colors[-1]
        line = terminal_line(data.replace(b"\n", b" "), color=True).decode()
        assert _SAFE.fullmatch(line), line
        return f"colors={bool(colors)} escaped={chr(92) in whole}"

    yield check


def _shown(*pieces: bytes, color: bool = True) -> str:
    text = TerminalText(color=color)
    return (b"".join(map(text.feed, pieces)) + text.finish()).decode()


@contextlib.contextmanager
def _contexts(work: Path) -> Iterator[Check]:
    place = work / "toban"
    place.mkdir()
    environ = {"XDG_CONFIG_HOME": str(work), "TOBAN_STATE_DIR": str(work)}

    def check(data: bytes) -> str:
        """A file of contexts leads to an endpoint, which does not show its secrets, or is refused with a reason."""
        (place / "contexts.json").write_bytes(data)
        try:
            found = resolve(environ=environ)
        except TobanError as error:
            return str(error)
        assert "SECRET" not in f"{found.credentials!r} {found.tls!r}"
        expect_type(found.address.text, str, "address")
        assert found.address.tls or not found.address.host or found.address.host in ("localhost", "::1", "127.0.0.1")
        return found.address.text[:6]

    yield check


TARGETS = (
    Target(
        name="terminal",
        reads="the output of steps, for a terminal",
        samples=(b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2J\r\n10%\r20%\n", "\u202e\x9b31m当番\xff".encode()),
        mutate=words_of(
            "\x1b[", "\x1b]0;", "m", "0", "31;1", ":", "\x07", "\x1b\\", "\r", "\n", "\x9b", "\u202e", "\x1b"
        ),
        opened=_terminal,
    ),
    Target(
        name="contexts",
        reads="the file of contexts, and addresses",
        samples=(
            b'{"current": "a", "contexts": {"a": {"server": "tls://h:1", "token": "SECRET", "ca": ""}}}',
            b'{"current": "b", "contexts": {"b": {"server": "127.0.0.1:1", "key": "SECRET"}}}',
        ),
        mutate=words_of(
            '"server"', "tls://", "tcp://", "unix://", "127.0.0.1", "[::1]", ":", "0", '"ca"', '"key"', "{", "}"
        ),
        opened=_contexts,
    ),
)
