"""Makes system calls of a running process fail, or slow, for a while, with strace."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from helpers.wait import wait_until


def why_not() -> str:
    """Why processes cannot be traced here; empty if they can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    return "" if os.geteuid() == 0 else "tracing another process needs root"


@contextlib.contextmanager
def injected(pid: int, calls: str, what: str, scratch: Path) -> Iterator[None]:
    """Until the end every one of these calls, such as `fsync,fdatasync`, meets with it in all threads of the process.

    `what` is as strace has it: `error=EIO`, or `delay_enter=300ms`.
    """
    said = scratch / f"strace.{pid}"
    with said.open("ab") as errors:
        tracer = subprocess.Popen(
            [
                *("strace", "-f", "-qq", "-o", "/dev/null", "-p", str(pid)),
                *("-e", f"trace={calls}", "-e", f"inject={calls}:{what}"),
            ],
            stdin=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        wait_until(lambda: tracer.poll() is not None or all(_tracers(pid)), "strace does not attach")
        assert tracer.poll() is None, f"cannot trace {pid}: {said.read_text()}"
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(30)
    wait_until(lambda: not any(_tracers(pid)), "strace does not let go")


def _tracers(pid: int) -> list[int]:
    """The tracer of each thread; 0: none."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = Path(f"/proc/{pid}/task/{task}/status").read_text()
            found += [int(line.split()[1]) for line in text.splitlines() if line.startswith("TracerPid:")]
    return found
