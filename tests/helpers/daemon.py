"""A real daemon for a test: started, killed, started again, and gone at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from toban.v1 import (
    run_pb2,
    run_pb2_grpc,
    system_pb2_grpc,
    workflow_pb2,
    workflow_pb2_grpc,
)

START_WITHIN = 30.0
STOP_WITHIN = 30.0


class Daemon:
    """Owns one state directory; `start` may be called again after `kill` or `stop`."""

    def __init__(self, state_dir: Path, *arguments: str) -> None:
        self.state_dir = state_dir
        self.arguments = arguments
        self.log = state_dir.parent / f"{state_dir.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._channel: grpc.Channel | None = None

    @property
    def socket(self) -> str:
        return f"unix://{self.state_dir}/toban.sock"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, environment: Mapping[str, str] | None = None, *, wait: bool = True) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "toband",
                    "--state-dir",
                    str(self.state_dir),
                    *self.arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TOBAN_LOG_FORMAT": "json", **(environment or {})},
                start_new_session=True,
            )
        if wait:
            assert self.wait_serving(), f"the daemon did not start:\n{self.tail()}"

    def wait_serving(self) -> bool:
        """True when it serves, False when it ended before."""
        assert self.process is not None
        deadline = time.monotonic() + START_WITHIN
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return False
            if self._announced() == self.process.pid:
                return True
            select_pause()
        raise AssertionError(f"the daemon neither serves nor ends:\n{self.tail()}")

    def _announced(self) -> int:
        try:
            facts = json.loads((self.state_dir / "toband.json").read_text())
        except (FileNotFoundError, ValueError):
            return 0
        return int(facts["pid"])

    def kill(self) -> None:
        """SIGKILL, and waits until the process is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_WITHIN)
        self._drop_channel()

    def stop(self) -> int:
        """A clean stop; its exit code."""
        assert self.process is not None
        self._drop_channel()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_WITHIN)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(START_WITHIN)

    def children(self) -> list[int]:
        """Direct children of the daemon: its spawner."""
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(word) for word in path.read_text().split()]

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    # -- the API

    @property
    def channel(self) -> grpc.Channel:
        if self._channel is None:
            options = [("grpc.max_receive_message_length", 16 << 20)]
            self._channel = grpc.insecure_channel(f"unix:{self.state_dir}/toban.sock", options)
        return self._channel

    @property
    def workflows(self) -> workflow_pb2_grpc.WorkflowServiceStub:
        return workflow_pb2_grpc.WorkflowServiceStub(self.channel)

    @property
    def runs(self) -> run_pb2_grpc.RunServiceStub:
        return run_pb2_grpc.RunServiceStub(self.channel)

    @property
    def system(self) -> system_pb2_grpc.SystemServiceStub:
        return system_pb2_grpc.SystemServiceStub(self.channel)

    def apply(self, source: str, base_dir: str = "") -> workflow_pb2.Workflow:
        definition = workflow_pb2.Definition(source=source, base_dir=base_dir)
        request = workflow_pb2.CreateWorkflowRequest(definition=definition)
        return self.workflows.CreateWorkflow(request, timeout=20).workflow

    def start_run(self, workflow: str, **params: Any) -> str:
        request = run_pb2.StartRunRequest(workflow=workflow)
        request.params.update(params)
        return self.runs.StartRun(request, timeout=20).run.id

    def get_run(self, run_id: str) -> run_pb2.Run:
        return self.runs.GetRun(run_pb2.GetRunRequest(id=run_id), timeout=20).run

    def wait_run(self, run_id: str, within: float = 60.0) -> run_pb2.Run:
        """Until it has ended, told by the daemon; the run as it is then."""
        for _ in self.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id), timeout=within):
            pass
        return self.get_run(run_id)

    def processes(self, run_id: str) -> list[run_pb2.ProcessExecution]:
        request = run_pb2.ListProcessExecutionsRequest(run_id=run_id)
        found = self.runs.ListProcessExecutions(request, timeout=20).process_executions
        return sorted(found, key=lambda execution: execution.id)

    def log_of(self, run_id: str, step: str = "", follow: bool = False) -> dict[int, bytes]:
        """Everything that was printed, by stream."""
        printed: dict[int, bytes] = {}
        request = run_pb2.StreamLogsRequest(run_id=run_id, step=step, follow=follow)
        for message in self.runs.StreamLogs(request, timeout=60):
            for record in message.chunk.records:
                printed[record.stream] = printed.get(record.stream, b"") + record.data
        return printed

    def _drop_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def select_pause() -> None:
    """Gives the processor away between two looks at a condition."""
    signal.sigtimedwait([], 0.005)


@contextmanager
def running_daemon(state_dir: Path, *arguments: str) -> Iterator[Daemon]:
    """A daemon that serves; ended at the end, whatever happened."""
    daemon = Daemon(state_dir, *arguments)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon._drop_channel()
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.process.send_signal(signal.SIGTERM)
            try:
                daemon.process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                daemon.process.kill()
                daemon.process.wait()
                raise
