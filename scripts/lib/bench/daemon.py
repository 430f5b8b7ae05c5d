"""The measured daemon: a real one, with its own state directory, known by its pid and its spawner's."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.lib.bench.errors import BenchError

START_WITHIN = 60.0
STOP_WITHIN = 30.0
DRIVE_WITHIN = 660.0
FLOORS = str(Path(__file__).with_name("floors.py"))
_SHOWN = 15


class Daemon:
    def __init__(self, process: subprocess.Popen[bytes], state: Path, log: Path) -> None:
        self._process = process
        self._began = time.monotonic()
        self._log = log
        self.state = state
        self.pid = 0
        self.spawner = 0
        self.started_in = 0.0

    @property
    def socket(self) -> str:
        return f"{self.state}/toban.sock"

    def drive(self, command: str, *arguments: object) -> dict[str, Any]:
        """The result of a client process, and its duration. Raises BenchError."""
        return client_of(self.socket, command, *arguments)

    def wait_serving(self) -> None:
        """Raises BenchError with the daemon's message."""
        deadline = time.monotonic() + START_WITHIN
        while not self._announced():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"cannot start the daemon:\n{self._said()}")
            time.sleep(0.01)
        self.started_in = time.monotonic() - self._began
        children = _children(self.pid)
        if len(children) != 1:
            raise BenchError(f"cannot find the spawner: the daemon has the children {children}")
        self.spawner = children[0]

    def stop(self) -> None:
        """Ends it and waits until its spawner has ended too. Raises BenchError if it does not end on its own."""
        spawner = -1
        with contextlib.suppress(ProcessLookupError):
            spawner = os.pidfd_open(self.spawner) if self.spawner else -1
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_WITHIN)
            if spawner >= 0 and not select.select([spawner], [], [], STOP_WITHIN)[0]:
                signal.pidfd_send_signal(spawner, signal.SIGKILL)
                raise BenchError("cannot stop the spawner: it had to be killed")
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait(STOP_WITHIN)
            raise BenchError(f"cannot stop the daemon: it had to be killed:\n{self._said()}") from None
        finally:
            if spawner >= 0:
                os.close(spawner)

    def _signal(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.pid:
                os.kill(self.pid, signum)
            else:
                # It did not start far enough to report its pid: kill everything in its session.
                os.killpg(self._process.pid, signum)

    def _announced(self) -> bool:
        try:
            self.pid = int(json.loads((self.state / "toband.json").read_text())["pid"])
        except (FileNotFoundError, ValueError):
            return False
        return True

    def _said(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-_SHOWN:]
        return "\n".join(f"    {line}" for line in lines)


@contextlib.contextmanager
def running(work: Path, name: str, *, under: Sequence[str] = ()) -> Iterator[Daemon]:
    """A running daemon with the state `name` in `work`; `under` is a command that starts it."""
    state, log = work / name, work / f"{name}.log"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TOBAN_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*under, sys.executable, "-m", "toband", "--state-dir", str(state)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    daemon = Daemon(process, state, log)
    try:
        daemon.wait_serving()
        yield daemon
    finally:
        daemon.stop()


def client_of(socket: str, command: str, *arguments: object) -> dict[str, Any]:
    """Runs the driver; a client in a separate process never adds pages or time to the daemon's figures."""
    answer = run_module("driver", socket, command, *arguments)
    found: dict[str, Any] = json.loads(answer)
    return found


def run_module(name: str, *arguments: object) -> str:
    """The output of a program of this package. Raises BenchError with its error message."""
    words = [sys.executable, "-m", f"{__package__}.{name}", *map(str, arguments)]
    return run_program(f"{name} {arguments[1] if len(arguments) > 1 else ''}".strip(), words)


def run_program(what: str, words: Sequence[str], given: str = "") -> str:
    try:
        done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=DRIVE_WITHIN, check=False)
    except subprocess.TimeoutExpired:
        raise BenchError(f"cannot measure: {what} took longer than {DRIVE_WITHIN:.0f} s") from None
    if done.returncode != 0:
        lines = "\n".join(f"    {line}" for line in done.stderr.splitlines()[-_SHOWN:])
        raise BenchError(f"cannot measure: {what} failed:\n{lines}")
    return done.stdout


def spawning(program: str, count: int) -> float:
    """Seconds in which a bare interpreter starts and awaits a program that many times. Raises BenchError."""
    words = [sys.executable, "-I", "-S", FLOORS, "spawn", program, str(count)]
    return float(run_program("the floor of a spawn", words))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        # A thread may have ended meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found
