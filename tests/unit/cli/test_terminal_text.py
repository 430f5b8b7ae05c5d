"""What of a step's output reaches a terminal: colors, and nothing else that controls it."""

from __future__ import annotations

import re

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.cli.render.terminal_text import TerminalText, terminal_line
from toban.v1 import run_pb2

from .conftest import OnTerminal

RED, RESET = b"\x1b[31m", b"\x1b[0m"
ATTACKS = [
    b"\x1b]0;title\x07",
    b"\x1b]8;;http://example.org\x1b\\",
    b"\x1b[2A\x1b[2K",
    b"\x1b[6n",
    b"\x1bP$q\x1b\\",
    b"\x1bc",
    b"\x1b[?1049h",
    b"\x9b2J",
    "\x9b2J".encode(),
    b"\x1b[31",
    b"\x1b[31;\n",
    b"\x1b\x1b[31m",
    b"\x1b[3\x1b[1m1m",
    b"\x1b[" + b"1;" * 100 + b"m",
    "\u202e".encode(),
    b"\x08\x08\x7f\x00\x0e",
]
SAFE = re.compile(rb"(?:\x1b\[[0-9;:]*m|\r\x1b\[K|[\t\n\x20-\x7e]|[\xc2-\xf4][\x80-\xbf]+)*")


def shown(*pieces: bytes, color: bool = True) -> bytes:
    text = TerminalText(color=color)
    return b"".join(map(text.feed, pieces)) + text.finish()


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_but_colors_passes_however_it_is_split(attack: bytes) -> None:
    data = b"before " + RED + b"red" + RESET + attack + b"after\n"
    whole = shown(data)
    assert SAFE.fullmatch(whole)
    assert "\x9b" not in whole.decode()
    for cut in range(len(data)):
        assert shown(data[:cut], data[cut:]) == whole
    assert shown(*(bytes([each]) for each in data)) == whole
    assert SAFE.fullmatch(terminal_line(data.rstrip(b"\n"), color=True))
    assert b"before" in whole
    assert b"after" in whole


def test_escapes_are_readable() -> None:
    assert shown(b"\x1b]0;x\x07\n") == b"\\x1b]0;x\\x07\n"
    assert shown(b"\xff\xe5\xbd\x93\xe7\n") == "\\xff当\\xe7\n".encode()
    assert shown(b"tab\there\r\n") == b"tab\there\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (RED + b"x" + RESET + b"\ny\n", RED + b"x" + RESET + b"\ny\n"),
        (RED + b"x\ny\n", RED + b"x" + RESET + b"\ny\n"),
        (RED + b"x", RED + b"x" + RESET),
        (b"\x1b[1;38:5:208mx\x1b[m\n", b"\x1b[1;38:5:208mx\x1b[m\n"),
        (RED + b"x\r\n", RED + b"x" + RESET + b"\n"),
    ],
)
def test_a_color_ends_with_its_line(data: bytes, expected: bytes) -> None:
    assert shown(data) == expected
    assert shown(data, color=False) == re.sub(rb"\x1b\[[0-9;:]*m", b"", data).replace(b"\r", b"")


def test_a_line_replaces_itself_only() -> None:
    assert shown(b"1%\r50%\r", b"\r100%\r", b"\nnext\n") == b"1%\r\x1b[K50%\r\x1b[K100%\nnext\n"
    assert terminal_line(b"1%\r100%\r", color=True) == b"100%"


def test_streams_do_not_color_each_other() -> None:
    text = TerminalText(color=True)
    assert text.feed(RED + b"x\x1b[3", 1) == RED + b"x"
    assert text.feed(b"y\n", 2) == RESET + b"y\n"
    assert text.feed(b"2mz\n", 1) == b"\x1b[32mz" + RESET + b"\n"


def test_on_a_terminal_and_elsewhere(daemon: FakeDaemon, on_terminal: OnTerminal, cli: object) -> None:
    daemon.add_workflow("w")
    record = daemon.add_run("w", steps=["a", "b"], state=run_pb2.RUN_STATE_SUCCEEDED)
    daemon.write(record, "a", b"\x1b]0;ti", b"tle\x07" + RED + b"red\nb | 1%\rforged\n")
    server = ("--server", daemon.address)
    for arguments, expected in {
        ("--step", "a"): b"\\x1b]0;title\\x07" + RED + b"red" + RESET + b"\r\nb | 1%\r\x1b[Kforged\r\n",
        (): b"a | \\x1b]0;title\\x07" + RED + b"red" + RESET + b"\r\na | forged\r\n",
        ("--step", "a", "--no-color"): b"\\x1b]0;title\\x07red\r\nb | 1%\r\x1b[Kforged\r\n",
        ("--step", "a", "--raw"): b"\x1b]0;title\x07" + RED + b"red\r\nb | 1%\rforged\r\n",
    }.items():
        terminal = on_terminal("logs", "w", *server, *arguments)
        assert terminal.end() == 0
        assert terminal.raw == expected
    # Messages about the end come from the fake daemon only if it sends one.
    follow = on_terminal("logs", "w", *server, "-f", env={"TERM": "dumb"})
    assert follow.end() == 0
    assert b"\x07" not in follow.raw
