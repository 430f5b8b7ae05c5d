"""A real daemon for a test: started, killed, started again, and gone at the end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import grpc

from helpers.messages import cause_name as cause_name
from helpers.messages import error_class as error_class
from helpers.messages import process_state as process_state
from helpers.messages import run_state as run_state
from helpers.messages import skip_reason as skip_reason
from helpers.messages import step_states as step_states
from helpers.messages import steps_of as steps_of
from helpers.messages import texts as texts
from helpers.messages import waits_for as waits_for
from helpers.processes import describe, kill, users_of
from helpers.wait import wait_until
from toban.v1 import (
    dead_letter_pb2_grpc,
    event_pb2,
    event_pb2_grpc,
    job_pb2_grpc,
    run_pb2,
    run_pb2_grpc,
    schedule_pb2_grpc,
    system_pb2_grpc,
    workflow_pb2,
    workflow_pb2_grpc,
)

GIB = 1024**3
START_WITHIN = 60.0
STOP_WITHIN = 60.0
CALL_WITHIN = 60.0
"""What is acknowledged is on disk, and a busy disk takes its time."""


class Daemon:
    """Owns one state directory; `start` may be called again after `kill` or `stop`."""

    def __init__(self, state_dir: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.state_dir = state_dir
        self.environment = {
            "TOBAN_LOG_FORMAT": "json",
            **_reserve(state_dir),
            **(environment or {}),
        }
        self.arguments = arguments
        self.program: Sequence[str] = (sys.executable, "-m", "toband")
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
        # A channel to one that died would wait before it tries again.
        self._drop_channel()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.program, "--state-dir", str(self.state_dir), *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment, **(environment or {})},
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
            if self.announced() == self.process.pid:
                return True
            select_pause()
        raise AssertionError(f"the daemon neither serves nor ends:\n{self.tail()}")

    def announced(self) -> int:
        """The pid of the daemon that said last that it serves; 0 if none ever did."""
        try:
            return int(json.loads((self.state_dir / "toband.json").read_bytes())["pid"])
        except (FileNotFoundError, ValueError, LookupError, TypeError):
            return 0

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
            target = f"unix:{quote(f'{self.state_dir}/toban.sock')}"
            self._channel = grpc.insecure_channel(target, options)
        return self._channel

    @property
    def workflows(self) -> workflow_pb2_grpc.WorkflowServiceStub:
        return workflow_pb2_grpc.WorkflowServiceStub(self.channel)

    @property
    def runs(self) -> run_pb2_grpc.RunServiceStub:
        return run_pb2_grpc.RunServiceStub(self.channel)

    @property
    def jobs(self) -> job_pb2_grpc.JobServiceStub:
        return job_pb2_grpc.JobServiceStub(self.channel)

    @property
    def dead_letters(self) -> dead_letter_pb2_grpc.DeadLetterServiceStub:
        return dead_letter_pb2_grpc.DeadLetterServiceStub(self.channel)

    @property
    def events(self) -> event_pb2_grpc.EventServiceStub:
        return event_pb2_grpc.EventServiceStub(self.channel)

    @property
    def schedules(self) -> schedule_pb2_grpc.ScheduleServiceStub:
        return schedule_pb2_grpc.ScheduleServiceStub(self.channel)

    def emit(self, event_type: str, payload: Any = None, **fields: Any) -> event_pb2.Event:
        request = event_pb2.EmitEventRequest(type=event_type, payload_json=json.dumps(payload), **fields)
        return self.events.EmitEvent(request, timeout=CALL_WITHIN).event

    @property
    def system(self) -> system_pb2_grpc.SystemServiceStub:
        return system_pb2_grpc.SystemServiceStub(self.channel)

    def apply(self, source: str, base_dir: str = "") -> workflow_pb2.Workflow:
        definition = workflow_pb2.Definition(source=source, base_dir=base_dir)
        request = workflow_pb2.CreateWorkflowRequest(definition=definition)
        return self.workflows.CreateWorkflow(request, timeout=CALL_WITHIN).workflow

    def start_run(self, workflow: str, **params: Any) -> str:
        request = run_pb2.StartRunRequest(workflow=workflow)
        request.params.update(params)
        return self.runs.StartRun(request, timeout=CALL_WITHIN).run.id

    def run(self, workflow: str, **params: Any) -> run_pb2.Run:
        """Starts it and waits for its end."""
        return self.wait_run(self.start_run(workflow, **params))

    def cancel(self, run_id: str, reason: str = "") -> run_pb2.Run:
        request = run_pb2.CancelRunRequest(id=run_id, reason=reason)
        return self.runs.CancelRun(request, timeout=CALL_WITHIN).run

    def get_run(self, run_id: str) -> run_pb2.Run:
        return self.runs.GetRun(run_pb2.GetRunRequest(id=run_id), timeout=CALL_WITHIN).run

    def wait_run(self, run_id: str, within: float = 60.0) -> run_pb2.Run:
        """Waits until the daemon reports its end; returns the run."""
        for _ in self.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id), timeout=within):
            pass
        return self.get_run(run_id)

    def wait_started(self, run_id: str, step: str, within: float = 60.0) -> int:
        """Until a process of the step is known to run; its pid."""
        watched = self.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id), timeout=within)
        for _ in watched:
            for execution in self.processes(run_id):
                if execution.step == step and execution.pid:
                    cast(Any, watched).cancel()
                    return execution.pid
        raise AssertionError(f"the run ended before {step} was started")

    def processes(self, run_id: str) -> list[run_pb2.ProcessExecution]:
        request = run_pb2.ListProcessExecutionsRequest(run_id=run_id)
        found = self.runs.ListProcessExecutions(request, timeout=CALL_WITHIN).process_executions
        return sorted(found, key=lambda execution: execution.id)

    def log_of(self, run_id: str, step: str = "", follow: bool = False) -> dict[int, bytes]:
        """Everything that was printed, by stream."""
        printed: dict[int, bytearray] = {}
        request = run_pb2.StreamLogsRequest(run_id=run_id, step=step, follow=follow)
        for message in self.runs.StreamLogs(request, timeout=60):
            for record in message.chunk.records:
                printed.setdefault(record.stream, bytearray()).extend(record.data)
        return {stream: bytes(data) for stream, data in printed.items()}

    def process_of(self, run_id: str, step: str) -> run_pb2.ProcessExecution:
        """The only process of a step."""
        (found,) = (each for each in self.processes(run_id) if each.step == step)
        return found

    def chunks(
        self, run_id: str, position: str = "", follow: bool = False, **how: Any
    ) -> list[run_pb2.StreamLogsResponse]:
        """Every message of StreamLogs until it ends."""
        request = run_pb2.StreamLogsRequest(run_id=run_id, position=position, follow=follow, **how)
        return list(self.runs.StreamLogs(request, timeout=60))

    def end_runs(self) -> None:
        """Cancels what is active, its finally steps too, and waits until its processes are gone."""
        states = [run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING]
        active = run_pb2.ListRunsRequest(states=states, page_size=1000)
        for run in self.runs.ListRuns(active, timeout=CALL_WITHIN).runs:
            with contextlib.suppress(grpc.RpcError):
                self.cancel(run.id)
            for change in self.runs.WatchRun(run_pb2.WatchRunRequest(id=run.id), timeout=60):
                part = change.run.finally_part
                if change.run.HasField("finally_part") and not part.HasField("ending"):
                    with contextlib.suppress(grpc.RpcError):
                        self.cancel(run.id)

    def clear(self) -> None:
        """Ends all that was started on the state directory: its runs, the daemon, the processes behind it.

        What a test armed for one start only is not armed here.
        """
        if self.process is None:
            return
        self._drop_channel()
        try:
            if self.process.poll() is not None and users_of(self.state_dir):
                # Steps outlive the daemon that started them; only another one can end them in order.
                self.start(wait=False)
                self.wait_serving()
            if self.process.poll() is None:
                self.end_runs()
                self.stop()
        finally:
            self._drop_channel()
            self.process.kill()
            self.process.wait()
        try:
            wait_until(lambda: not users_of(self.state_dir), "processes outlived the test")
        except AssertionError:
            left = users_of(self.state_dir)
            shown = "\n".join(map(describe, left))
            for each in left:
                kill(each)
            raise AssertionError(f"processes outlived the test:\n{shown}") from None

    def _drop_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _reserve(state_dir: Path) -> dict[str, str]:
    """A machine whose own disk is nearly full may still run the tests."""
    disk = shutil.disk_usage(state_dir.parent)
    nearly_full = disk.total > GIB > disk.free
    return {"TOBAN_DISK_RESERVE": "0"} if nearly_full else {}


def select_pause() -> None:
    """Gives the processor away between two looks at a condition."""
    signal.sigtimedwait([], 0.005)


@contextmanager
def running_daemon(state_dir: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    """A daemon that serves; at the end it is gone, with all that it started."""
    daemon = Daemon(state_dir, *arguments, environment=environment)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.clear()
