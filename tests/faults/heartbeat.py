"""Workflows whose step writes heartbeats, and how to read them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from faults import heartbeat_step
from helpers.wait import wait_until

_CHUNK = 1 << 16


class Heartbeats:
    """Of one step, through a FIFO of its own: no disk makes it wait, and it says when the last who had it is gone.

    A minute of them fits in.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._said = b""
        self._over = False

    def step(self, **fields: Any) -> dict[str, Any]:
        """The fields of a step that beats until it is killed."""
        program = str(Path(heartbeat_step.__file__).resolve())
        args = ["-I", "-S", program, str(self.path)]
        return {"job_type": "exec", "target": sys.executable, "args": args, **fields}

    def times(self) -> list[float]:
        try:
            while part := os.read(self._fd, _CHUNK):
                self._said += part
            # Nobody has it open for writing: not yet, or not any more.
            self._over = bool(self._said)
        except BlockingIOError:
            self._over = False
        return [float(line) for line in self._said.splitlines()]

    def began(self) -> float:
        """Waits for the first one; when it was."""
        return wait_until(self.times, f"no heartbeat in {self.path}")[0]

    def ended(self) -> float:
        """Waits until it is gone; when the last one was."""
        wait_until(lambda: self.times() and self._over, f"{self.path} has heartbeats still")
        return self.times()[-1]

    def close(self) -> None:
        os.close(self._fd)


def workflow(name: str, steps: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"name": name, "description": "heartbeats", "steps": steps, **fields})
