"""A terminal for tests: starts a program on a pseudo-terminal and reads what it draws."""

from __future__ import annotations

import os
import re
import select
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from doubles.daemon.fake_daemon import DEADLINE

# Makes the terminal the program's own, so that Ctrl-C reaches it.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


if sys.platform == "win32":

    def _open(rows: int, columns: int) -> tuple[int, int]:
        raise OSError("there are no such terminals")

    def _modes(terminal: int) -> list[object]:
        raise OSError("there are no such terminals")

else:
    import fcntl
    import pty
    import termios

    def _open(rows: int, columns: int) -> tuple[int, int]:
        own, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        return own, other

    def _modes(terminal: int) -> list[object]:
        return termios.tcgetattr(terminal)


class Terminal:
    """`toban` on a terminal of so many rows and columns."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        rows: int = 24,
        columns: int = 80,
    ) -> None:
        self._own, other = _open(rows, columns)
        # pytest-xdist sets the size of a terminal for its workers.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.program = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, "-m", "toban.cli", *arguments],
            stdin=other,
            stdout=other,
            stderr=other,
            env={**inherited, "TERM": "xterm-256color", **(env or {})},
            start_new_session=True,
        )
        os.close(other)
        self.raw = b""

    @property
    def text(self) -> str:
        """All that was written, without colours and cursor movements."""
        return re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]|\r", "", self.raw.decode())

    def wait_for(self, text: str) -> None:
        """Waits until the text has been drawn."""
        deadline = time.monotonic() + DEADLINE
        while text not in self.text:
            assert self._read(deadline), f"{text!r} never came, but:\n{self.text}"

    def wait_for_more(self) -> None:
        """Waits until anything has been drawn."""
        assert self._read(time.monotonic() + DEADLINE), f"nothing more came after:\n{self.text}"

    def press(self, keys: str) -> None:
        os.write(self._own, keys.encode())

    def press_ctrl_c(self) -> None:
        os.write(self._own, b"\x03")

    def modes(self) -> Sequence[object]:
        """How the terminal treats keys."""
        return _modes(self._own)

    def end_with_modes(self) -> tuple[int, Sequence[object]]:
        """Reads until the program has ended, and gives its exit code and the modes that it left."""
        deadline = time.monotonic() + DEADLINE
        while self.program.poll() is None and self._read(deadline):
            pass
        code = self.program.wait(DEADLINE)
        modes = self.modes()
        self.end()
        return code, modes

    def end(self) -> int:
        """Reads to the end and gives the exit code."""
        deadline = time.monotonic() + DEADLINE
        while self._read(deadline):
            pass
        os.close(self._own)
        return self.program.wait(DEADLINE)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._own], [], [], max(deadline - time.monotonic(), 0))
        assert ready, f"nothing more came after:\n{self.text}"
        try:
            data = os.read(self._own, 65536)
        except OSError:
            # So Linux says that nobody holds the other end any more.
            return False
        self.raw += data
        return bool(data)
