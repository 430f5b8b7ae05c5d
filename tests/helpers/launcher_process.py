"""A launcher in a process of its own, so that a test can kill it as a crash would.

Run as a program it opens a launcher, launches the given attempts, reports that, and waits: a line on its standard input
closes it in good order.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.processes import Process, seen
from helpers.supervision import Place, Supervision, new_attempt
from toband.domain.attempt_model import Attempt


@dataclass(slots=True)
class LauncherProcess:
    """The other process, with one attempt launched."""

    process: subprocess.Popen[str]
    spawner: Process
    attempt: Attempt

    @classmethod
    def start(
        cls,
        place: Place,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        grace: float = 0.2,
    ) -> LauncherProcess:
        attempt = new_attempt()
        order = {
            "root": place.root,
            "marker": place.marker,
            "id": attempt.id,
            "token": attempt.token,
            "argv": list(argv),
            "timeout": timeout,
            "grace": grace,
        }
        tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        process = subprocess.Popen(
            [sys.executable, "-m", "helpers.launcher_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": tests},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        spawner = process.stdout.readline()
        assert spawner, "the launcher's process failed"
        return cls(process, seen(int(spawner)), attempt)

    def kill(self) -> None:
        self.process.kill()
        self._over()

    def close(self) -> None:
        """Ends it in good order."""
        assert self.process.stdin is not None
        self.process.stdin.write("close\n")
        self.process.stdin.flush()
        self._over()
        assert self.process.returncode == 0

    def _over(self) -> None:
        self.process.wait(30)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


async def _serve() -> None:
    order = json.loads(sys.stdin.readline())
    supervision = Supervision(Place(order["root"], order["marker"]))
    await supervision.open()
    attempt = new_attempt(id=order["id"], token=order["token"])
    how = {"timeout": order["timeout"], "grace": order["grace"]}
    supervision.launch(order["argv"], attempt=attempt, **how)
    print(supervision.spawner.pid, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await supervision.close()


if __name__ == "__main__":
    # Standard output is for the pid alone.
    import structlog

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(_serve())
