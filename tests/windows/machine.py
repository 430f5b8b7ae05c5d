"""A real daemon on Windows, its API over loopback, and the processes that it starts."""

from __future__ import annotations

import sys

if sys.platform != "win32":
    raise ImportError("this needs Windows")

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from helpers.wait import wait_until
from toban.sdk import DefinitionText, SyncClient, Unreachable
from toban.v1 import run_pb2
from toband.supervise.shim import frames
from toband.supervise.shim.windows import win32

PYTHON = sys.executable
OUT = run_pb2.LOG_STREAM_STDOUT
ERR = run_pb2.LOG_STREAM_STDERR
SILENT = 50.0
"""Longer than nearly every run of these tests, and short enough for three tries."""
DEADLINE = 150.0
"""To start an interpreter may take half a minute here if the machine is busy, and some wait for several."""


class Process(NamedTuple):
    """A process with its start time: the pid alone may belong to another process by now."""

    pid: int
    created: int


def seen(pid: int) -> Process:
    """The living process of that pid. Raises AssertionError if there is none."""
    found = _look(pid)
    assert found is not None, f"there is no process {pid}"
    return Process(pid, found)


def alive(process: Process) -> bool:
    return _look(process.pid) == process.created


def _look(pid: int) -> int | None:
    handle = win32.open_process(pid)
    if handle is None:
        return None
    try:
        return win32.created(handle) if win32.lives(handle) else None
    finally:
        win32.close(handle)


def kill(process: Process) -> None:
    """TerminateProcess, as the task manager does it."""
    assert alive(process)
    # One that has just ended by itself is refused.
    with suppress(PermissionError):
        os.kill(process.pid, 9)
    wait_until(lambda: not alive(process), f"process {process.pid} lives on")


def written(path: Path) -> str:
    """Waits for a file that a step makes under another name first; its text."""

    def text() -> str:
        # Who renames a file keeps others from opening it, for a moment longer than it takes to see its new name.
        try:
            return path.read_text(encoding="utf-8")
        except (FileNotFoundError, PermissionError):
            return ""

    return wait_until(text, f"{path.name} does not appear", DEADLINE)


def claim_in(path: Path) -> dict[str, Any] | None:
    """Read in a way that a rename which is just ending does not disturb."""
    fd = win32.open_to_read(str(path))
    try:
        return frames.read_claim(fd)
    finally:
        os.close(fd)


def step(name: str, code: str, *args: str, **fields: Any) -> dict[str, Any]:
    """An exec step that runs a Python program."""
    return {
        "name": name,
        "job_type": "exec",
        "target": PYTHON,
        "args": ["-c", code, *args],
        **fields,
    }


SAY = """
import os, sys

def say(name, text):
    # Whole when it can be seen.
    with open(name + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(name + ".new", name)
"""

WAIT = """
import os, time

def wait(name):
    while not os.path.exists(name):
        time.sleep(0.01)
"""


class Patient:
    """Every call of a client, made again over a new connection if nothing is heard of it; lists are whole.

    Now and then a connection falls silent under wine, while the daemon serves others. That it happened is printed; more
    than twice is a failure. So whatever is called has to be such that it may be repeated.
    """

    def __init__(self, address: Callable[[], str], token_file: Path) -> None:
        self._address = address
        self._token_file = token_file
        self._client: SyncClient | None = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **fields: Any) -> Any:
            return self._heard(lambda client: getattr(client, name)(*args, **fields))

        return call

    def start_run(self, workflow: str) -> run_pb2.Run:
        request_id = uuid4().hex
        run: run_pb2.Run = self._heard(lambda client: client.start_run(workflow, {}, request_id=request_id))
        return run

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _heard(self, call: Callable[[SyncClient], Any]) -> Any:
        for _ in range(3):
            if self._client is None:
                self._client = SyncClient(self._address(), token_file=str(self._token_file))
            answer: Future[Any] = Future()
            work = (answer, call, self._client)
            threading.Thread(target=_answer, args=work, daemon=True).start()
            try:
                return answer.result(SILENT)
            except (FutureTimeoutError, Unreachable):
                print(f"a call fell silent for up to {SILENT:g} seconds: trying a new connection")
                # Not closed: that would wait for the stream.
                self._client = None
        raise AssertionError("every call falls silent")


def _answer(answer: Future[Any], call: Callable[[SyncClient], Any], client: SyncClient) -> None:
    try:
        result = call(client)
        answer.set_result(list(result) if isinstance(result, Iterator) else result)
    except BaseException as error:
        answer.set_exception(error)


class Daemon:
    """Owns one state directory; `start` may be called again after `kill`."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.work = state_dir.parent
        self.log = state_dir.parent / "daemon.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.client = Patient(lambda: self.announced()["listen"][0], state_dir / "admin.token")

    def start(self, environment: Mapping[str, str] | None = None, *, wait: bool = True) -> None:
        # The next one listens elsewhere.
        self.client.close()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [PYTHON, "-m", "toband", "--state-dir", str(self.state_dir)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TOBAN_LOG_FORMAT": "json", **(environment or {})},
                creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
            )
        if wait:
            wait_until(self._serves, "the daemon does not serve", DEADLINE)

    def _serves(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the daemon ended:\n{self.printed()}"
        return self.announced().get("pid") == self.process.pid

    def announced(self) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads((self.state_dir / "toband.json").read_text())
        except (OSError, ValueError):
            return {}
        return facts

    def printed(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """TerminateProcess: it gets no chance to do anything."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def died(self) -> None:
        """Waits until it has ended by itself."""
        assert self.process is not None
        self.process.wait(DEADLINE)

    # -- the API

    def apply(self, name: str, *steps: Mapping[str, Any], **fields: Any) -> None:
        """Makes a workflow of these steps."""
        definition = {"name": name, "description": "x", "steps": list(steps), **fields}
        source = json.dumps(definition, ensure_ascii=False)
        self.client.apply_definitions([DefinitionText(source=source, base_dir=str(self.work))])

    def begin(self, name: str, *steps: Mapping[str, Any], **fields: Any) -> str:
        """Makes a workflow of these steps and starts it; the id of the run."""
        self.apply(name, *steps, **fields)
        return self.client.start_run(name).id

    def run(self, name: str, *steps: Mapping[str, Any], **fields: Any) -> run_pb2.Run:
        return self.ended(self.begin(name, *steps, **fields))

    def ended(self, run_id: str) -> run_pb2.Run:
        run: run_pb2.Run = self.client.wait_run(run_id)
        return run

    def executions(self, run_id: str) -> dict[str, run_pb2.ProcessExecution]:
        """The only process of each step."""
        return {each.step: each for each in self.client.list_process_executions(run_id=run_id)}

    def started(self, run_id: str, name: str) -> Process:
        """Waits until a step's process is known to run."""

        def pid() -> int:
            found = self.executions(run_id).get(name)
            return found.pid if found is not None else 0

        return seen(wait_until(pid, f"{name} is not started", DEADLINE))

    def logged(self, run_id: str, name: str) -> dict[int, bytes]:
        """What a step printed, by stream."""
        printed = {int(OUT): bytearray(), int(ERR): bytearray()}
        for message in self.client.stream_logs(run_id, step=name):
            for record in message.chunk.records:
                printed.setdefault(record.stream, bytearray()).extend(record.data)
        return {stream: bytes(data) for stream, data in printed.items()}

    # -- below the daemon

    def logs(self) -> list[Path]:
        return sorted(self.state_dir.glob("runs/*/attempts/*.log"))

    def shim(self, name: str) -> Process:
        """The living supervisor of a step, by its claim."""
        (path,) = (each for each in self.logs() if each.name.startswith(f"{name}."))
        facts = claim_in(path)
        assert facts is not None
        found = seen(facts["pid"])
        assert found.created == facts["start"]
        return found

    def shims(self) -> list[Process]:
        """Every supervisor that lives."""
        found = []
        for path in self.logs():
            facts = claim_in(path)
            if facts is not None and not facts.get("void"):
                shim = Process(facts["pid"], facts["start"])
                if alive(shim):
                    found.append(shim)
        return found

    def clear(self) -> None:
        """Ends everything that was started here, and the daemon. What a test armed for one start is not armed now."""
        if self.process is None:
            return
        try:
            if self.process.poll() is not None:
                # A shim that was just started has no claim by which to find it: only a daemon can end it in order.
                self.start()
            active = [run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING]
            for run in self.client.list_runs(states=active):
                self.client.cancel_run(run.id)
                self.client.wait_run(run.id)
            # One that has told of the end takes a moment to be gone itself.
            with suppress(AssertionError):
                wait_until(lambda: not self.shims(), "supervisors outlive their runs")
        finally:
            self.client.close()
            self.process.kill()
            self.process.wait(30)
            left = self.shims()
            for shim in left:
                if alive(shim):
                    kill(shim)
        assert not left, "supervisors outlived their runs"


@contextmanager
def running_daemon(state_dir: Path) -> Iterator[Daemon]:
    """A daemon that serves; at the end it is gone, with all that it started."""
    daemon = Daemon(state_dir)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.clear()


def run_state(run: run_pb2.Run) -> str:
    return run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_")


def cause_name(ending: run_pb2.ProcessEnding) -> str:
    return run_pb2.ProcessEndingCause.Name(ending.cause).removeprefix("PROCESS_ENDING_CAUSE_").lower()


def process_state(execution: run_pb2.ProcessExecution) -> str:
    return run_pb2.ProcessState.Name(execution.state).removeprefix("PROCESS_STATE_")
