"""A picture that is written again and again: in place on a terminal, until q or Ctrl-C; line by line elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from toban.cli.safe_streams import behind, gates
from toban.cli.session import is_terminal

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"
# Seconds between two looks at whether there is news.
_NEWS_WITHIN: Final = 0.1


class _Frame(io.TextIOWrapper):
    """Takes one picture, as if it were the terminal."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, errors="replace")

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        self.flush()
        self.seek(0)
        return self.read().rstrip("\n").split("\n")


def repeat(write: Callable[[], None], interval: float, news: threading.Event | None = None) -> None:
    """Calls `write`, which prints one picture, every `interval` seconds until q or Ctrl-C; restores the terminal.

    With `news`, also whenever it is set; elsewhere than on a terminal only then.
    """
    if not is_terminal():
        repeat_lines(write, interval, news)
        return
    with contextlib.suppress(KeyboardInterrupt), _whole_screen(), _keys() as pressed:
        while True:
            _draw(write)
            until = time.monotonic() + interval
            while (left := until - time.monotonic()) > 0 and not (news and news.is_set()):
                if pressed(left if news is None else min(left, _NEWS_WITHIN)):
                    return
            if news:
                news.clear()


def repeat_lines(write: Callable[[], None], interval: float, news: threading.Event | None = None) -> None:
    """As `repeat`, one picture below the other."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            write()
            print(flush=True)
            if news is None:
                time.sleep(interval)
                continue
            # On Windows, Ctrl-C does not end a wait.
            while not news.wait(_NEWS_WITHIN):
                pass
            news.clear()


def _draw(write: Callable[[], None]) -> None:
    """Collects the picture first, so that the screen never shows half of it, and cuts it at the last line."""
    terminal = behind(sys.stdout)
    frame = _Frame(terminal.encoding)
    with contextlib.redirect_stdout(frame), gates():
        write()
    height = shutil.get_terminal_size().lines
    lines = frame.lines()
    if len(lines) > height:
        lines = [*lines[: height - 1], f"… {len(lines) - height + 1} more lines"]
    picture = f"{_REST_OF_LINE}\n".join(lines)
    terminal.write(f"{_HOME}{picture}{_REST_OF_LINE}{_REST_OF_SCREEN}")
    terminal.flush()


@contextlib.contextmanager
def _whole_screen() -> Iterator[None]:
    terminal = behind(sys.stdout)
    terminal.write(_ENTER)
    terminal.flush()
    try:
        yield
    finally:
        terminal.write(_LEAVE)
        terminal.flush()


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """A function that waits some seconds, and says whether q was pressed; it reads keys without Enter and echo."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield _sleep
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def pressed(within: float) -> bool:
        until = time.monotonic() + within
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([keyboard], [], [], left)
            if ready:
                read = os.read(keyboard, 64)
                if not read or b"q" in read or b"Q" in read:
                    return True
        return False

    try:
        tty.setcbreak(keyboard, termios.TCSANOW)
        yield pressed
    finally:
        termios.tcsetattr(keyboard, termios.TCSANOW, before)


def _sleep(within: float) -> bool:
    time.sleep(within)
    return False
