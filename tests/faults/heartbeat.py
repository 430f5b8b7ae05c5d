"""Workflows whose step leaves heartbeats, and what these say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from faults import heartbeat_step
from helpers.waiting import wait_until


class Heartbeats:
    """Of one step, in a file of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def step(self, **fields: Any) -> dict[str, Any]:
        """The fields of a step that beats until it is killed."""
        program = str(Path(heartbeat_step.__file__).resolve())
        args = ["-I", "-S", program, str(self.path)]
        return {"job_type": "exec", "target": sys.executable, "args": args, **fields}

    def times(self) -> list[float]:
        if not self.path.exists():
            return []
        return [float(line) for line in self.path.read_text().splitlines()]

    def began(self) -> float:
        """Waits for the first one; when it was."""
        return wait_until(self.times, f"no heartbeat in {self.path}")[0]

    def lasted(self) -> float:
        """From the first to the last."""
        times = self.times()
        return times[-1] - times[0]


def workflow(name: str, steps: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"name": name, "description": "heartbeats", "steps": steps, **fields})
