"""The client of a measurement, in a separate process: driver SOCKET COMMAND …

    hello                    one call
    apply FILE…              stores definitions
    run WORKFLOW STEPS       from StartRun until the end of the run was seen
    log WORKFLOW SOURCE      from StartRun until a follower has received all of SOURCE
    secret NAME VALUE WORKFLOW   stores a secret for a workflow
    printed WORKFLOW         how long the run's only process took, and how much of its output was stored
    trigger WORKFLOW COUNT   from StartRun until the step's process runs, COUNT times
    emit TYPE COUNT          from EmitEvent until the step's process of the one run that it starts runs, COUNT times
    schedule PROGRAM COUNT   stores that many workflows that are due in a distant month
    postpone PROGRAM COUNT AT   makes the first of them due at AT, in seconds since the epoch
    ready COUNT              waits until that many schedules are known, and the time of the next
    collect                  a pass of retention
    pages PAGE COUNT         the first page of runs and a later one, COUNT times each
    status COUNT             what `toban status` asks for, and a page of summaries, COUNT times
    changes COUNT            the beginning of a stream of all runs, without and with a position, COUNT times

Prints JSON. Connects before the measurement starts.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import asyncio
import json
import resource
import statistics
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from scripts.lib.bench import workflows
from scripts.lib.bench.log_follow import follow

from toban.v1 import (
    event_pb2,
    event_pb2_grpc,
    history_pb2,
    history_pb2_grpc,
    run_pb2,
    run_pb2_grpc,
    secret_pb2,
    secret_pb2_grpc,
    system_pb2,
    system_pb2_grpc,
    workflow_pb2,
    workflow_pb2_grpc,
)

TIMEOUT = 600.0
READY_WITHIN = 30.0
CALLERS = 16
_OPTIONS = (("grpc.max_receive_message_length", 16 * 1024 * 1024),)


class Driver:
    def __init__(self, channel: grpc.Channel) -> None:
        self._events = event_pb2_grpc.EventServiceStub(channel)
        self._history = history_pb2_grpc.HistoryServiceStub(channel)
        self._runs = run_pb2_grpc.RunServiceStub(channel)
        self._secrets = secret_pb2_grpc.SecretServiceStub(channel)
        self._workflows = workflow_pb2_grpc.WorkflowServiceStub(channel)
        self._system = system_pb2_grpc.SystemServiceStub(channel)

    def hello(self) -> dict[str, Any]:
        info = self._system.GetInfo(system_pb2.GetInfoRequest(), timeout=TIMEOUT)
        return {"version": info.version, "database": info.database}

    def apply(self, *files: str) -> dict[str, Any]:
        for file in files:
            definition = workflow_pb2.Definition(source=Path(file).read_text())
            request = workflow_pb2.CreateWorkflowRequest(definition=definition)
            self._workflows.CreateWorkflow(request, timeout=TIMEOUT)
        return {"applied": len(files)}

    def run(self, workflow: str, steps: str) -> dict[str, Any]:
        self.hello()
        used = _processor_time()
        wall, began = time.time(), time.perf_counter()
        run_id = self._start(workflow)
        last = run_pb2.Run()
        watch = run_pb2.WatchRunRequest(id=run_id)
        for message in self._runs.WatchRun(watch, timeout=TIMEOUT):
            last = message.run
        took = time.perf_counter() - began
        done = (last.state, last.steps_ended, last.steps_total)
        if done != (run_pb2.RUN_STATE_SUCCEEDED, int(steps), int(steps)):
            raise SystemExit(f"the run did not do its work: {last}")
        return {
            "run": run_id,
            "seconds": took,
            "began": wall,
            "ended": time.time(),
            "processor": _processor_time() - used,
        }

    def trigger(self, workflow: str, count: str) -> dict[str, Any]:
        self.hello()
        delays = []
        for _ in range(int(count)):
            began = time.time()
            delays.append(self._process_started(self._start(workflow)) - began)
        return {"seconds": delays}

    def emit(self, event_type: str, count: str) -> dict[str, Any]:
        self.hello()
        delays = []
        for number in range(int(count)):
            payload = json.dumps({"number": number, "kind": "bench"})
            request = event_pb2.EmitEventRequest(type=event_type, payload_json=payload)
            began = time.time()
            event = self._events.EmitEvent(request, timeout=TIMEOUT).event
            if event.state != event_pb2.EVENT_STATE_RESOLVED or len(event.runs) != 1:
                raise SystemExit(f"the event did not start its run: {event}")
            delays.append(self._process_started(event.runs[0].run_id) - began)
        return {"seconds": delays}

    def _process_started(self, run_id: str) -> float:
        """The start of a run's only process, in seconds since the epoch; waits until the run has ended."""
        return self._only_process(run_id).started_at.ToNanoseconds() / 1e9

    def _only_process(self, run_id: str) -> run_pb2.ProcessExecution:
        """Waits until the run has ended."""
        for _ in self._runs.WatchRun(run_pb2.WatchRunRequest(id=run_id), timeout=TIMEOUT):
            pass
        request = run_pb2.ListProcessExecutionsRequest(run_id=run_id)
        (process,) = self._runs.ListProcessExecutions(request, timeout=TIMEOUT).process_executions
        return process

    def secret(self, name: str, value: str, workflow: str) -> dict[str, Any]:
        request = secret_pb2.SetSecretRequest(name=name, value=value, workflows=[workflow])
        self._secrets.SetSecret(request, timeout=TIMEOUT)
        return {"name": name}

    def printed(self, workflow: str) -> dict[str, Any]:
        process = self._only_process(self._start(workflow))
        if process.exit_code != 0 or process.dropped_bytes:
            raise SystemExit(f"the step did not print everything: {process}")
        took = process.finished_at.ToNanoseconds() - process.started_at.ToNanoseconds()
        return {"seconds": took / 1e9, "stored": process.stdout_log_bytes}

    def search(self, workflow: str, text: str, line: str, count: str) -> dict[str, Any]:
        """Seconds of a search for a text that is only in that line, and of reading lines in the middle."""
        (run,) = self._runs.ListRuns(run_pb2.ListRunsRequest(workflow=workflow), timeout=TIMEOUT).runs

        def search() -> None:
            found = self._runs.SearchLogs(run_pb2.SearchLogsRequest(run_id=run.id, text=text), timeout=TIMEOUT)
            if [match.line.number for match in found.matches] != [int(line)] or found.next_page_token:
                raise SystemExit(f"the search found {found}")

        process = self._only_process(run.id).id

        def read() -> None:
            request = run_pb2.ReadLogRequest(process_execution_id=process, first_line=int(line) // 2, lines=1000)
            if len(self._runs.ReadLog(request, timeout=TIMEOUT).lines) != 1000:
                raise SystemExit("there are not that many lines")

        began = time.perf_counter()
        search()
        first = time.perf_counter() - began
        return {"first": first, "seconds": _median(int(count), search), "lines": _median(int(count), read)}

    def days(self, count: str) -> dict[str, Any]:
        request = history_pb2.CountRunsByDayRequest()

        def counted() -> None:
            if not self._history.CountRunsByDay(request, timeout=TIMEOUT).days:
                raise SystemExit("no day has a run")

        return {"seconds": _median(int(count), counted)}

    def grid(self, count: str) -> dict[str, Any]:
        request = history_pb2.ListRunGridRequest(workflow=workflows.scheduled_name(1))

        def listed() -> None:
            if not self._history.ListRunGrid(request, timeout=TIMEOUT).runs:
                raise SystemExit("the grid is empty")

        return {"seconds": _median(int(count), listed)}

    def schedule(self, program: str, count: str) -> dict[str, Any]:
        self.hello()
        today = datetime.now(UTC).date()

        def create(number: int) -> None:
            text = workflows.scheduled(program, number, workflows.far(number, today))
            definition = workflow_pb2.Definition(source=text)
            request = workflow_pb2.CreateWorkflowRequest(definition=definition)
            self._workflows.CreateWorkflow(request, timeout=TIMEOUT)

        return {"seconds": _for_each(int(count), create)}

    def postpone(self, program: str, count: str, at: str) -> dict[str, Any]:
        self.hello()
        schedule = f"{{at: {datetime.fromtimestamp(int(at), UTC).isoformat()}}}"

        def update(number: int) -> None:
            text = workflows.scheduled(program, number, schedule)
            workflow = workflow_pb2.Workflow(
                name=workflows.scheduled_name(number),
                definition=workflow_pb2.Definition(source=text),
            )
            request = workflow_pb2.UpdateWorkflowRequest(workflow=workflow)
            self._workflows.UpdateWorkflow(request, timeout=TIMEOUT)

        return {"seconds": _for_each(int(count), update)}

    def ready(self, count: str) -> dict[str, Any]:
        deadline = time.monotonic() + READY_WITHIN
        while True:
            info = self._system.GetInfo(system_pb2.GetInfoRequest(), timeout=TIMEOUT)
            if info.schedules == int(count) and info.HasField("next_due"):
                return {"next_due": info.next_due.ToNanoseconds() / 1e9}
            if time.monotonic() > deadline:
                raise SystemExit(f"the daemon knows {info.schedules} schedules, not {count}")
            time.sleep(0.02)

    def collect(self) -> dict[str, Any]:
        done = self._system.CollectGarbage(system_pb2.CollectGarbageRequest(), timeout=TIMEOUT)
        return {"runs": done.run_count}

    def pages(self, number: str, count: str) -> dict[str, Any]:
        def page(token: str) -> run_pb2.ListRunsResponse:
            found = self._runs.ListRuns(run_pb2.ListRunsRequest(page_token=token), timeout=TIMEOUT)
            if len(found.runs) != 50:
                raise SystemExit(f"a page has {len(found.runs)} runs")
            return found

        token = ""
        for _ in range(int(number) - 1):
            token = page(token).next_page_token
        return {"first": _median(int(count), lambda: page("")), "far": _median(int(count), lambda: page(token))}

    def status(self, count: str) -> dict[str, Any]:
        def overview() -> None:
            self._system.GetInfo(system_pb2.GetInfoRequest(), timeout=TIMEOUT)
            request = workflow_pb2.GetOverviewRequest(max_workflows=50)
            if not self._workflows.GetOverview(request, timeout=TIMEOUT).summaries:
                raise SystemExit("the overview is empty")

        def summaries() -> None:
            request = workflow_pb2.ListWorkflowSummariesRequest(page_size=50)
            if not self._workflows.ListWorkflowSummaries(request, timeout=TIMEOUT).summaries:
                raise SystemExit("there are no summaries")

        return {"seconds": _median(int(count), overview), "summaries": _median(int(count), summaries)}

    def changes(self, count: str) -> dict[str, Any]:
        begin = self._runs.WatchRuns(run_pb2.WatchRunsRequest(), timeout=TIMEOUT)
        position = next(iter(begin)).position
        begin.cancel()
        self._start(workflows.scheduled_name(0))

        def first(request: run_pb2.WatchRunsRequest) -> None:
            stream = self._runs.WatchRuns(request, timeout=TIMEOUT)
            for message in stream:
                if not message.initial:
                    break
            stream.cancel()

        return {
            "seconds": _median(int(count), lambda: first(run_pb2.WatchRunsRequest())),
            "resumed": _median(int(count), lambda: first(run_pb2.WatchRunsRequest(position=position))),
        }

    def _start(self, workflow: str) -> str:
        request = run_pb2.StartRunRequest(workflow=workflow)
        return self._runs.StartRun(request, timeout=TIMEOUT).run.id


async def follow_log(socket: str, workflow: str, source: str) -> dict[str, Any]:
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        await channel.channel_ready()
        stub: run_pb2_grpc.RunServiceAsyncStub = run_pb2_grpc.RunServiceStub(channel)
        began = time.perf_counter()
        started = await stub.StartRun(run_pb2.StartRunRequest(workflow=workflow), timeout=TIMEOUT)
        request = run_pb2.StreamLogsRequest(run_id=started.run.id, follow=True)
        messages = stub.StreamLogs(request, timeout=TIMEOUT)
        return {"seconds": await follow(_printed(messages), source) - began}


async def _printed(messages: AsyncIterable[run_pb2.StreamLogsResponse]) -> AsyncIterator[bytes]:
    end = None
    async for message in messages:
        for record in message.chunk.records:
            if record.stream == run_pb2.LOG_STREAM_STDOUT:
                yield record.data
        if message.HasField("end"):
            end = message.end
    if end is None or not end.complete or end.run_state != run_pb2.RUN_STATE_SUCCEEDED:
        raise SystemExit(f"the log did not end well: {end}")


def _for_each(count: int, call: Callable[[int], None]) -> float:
    """Calls it with each number, many at a time; returns the seconds it took."""
    began = time.perf_counter()
    with ThreadPoolExecutor(CALLERS) as pool:
        # The list raises the exceptions of the calls.
        list(pool.map(call, range(count)))
    return time.perf_counter() - began


def _median(count: int, call: Callable[[], object]) -> float:
    """The median of the seconds that calls take, after one that is not counted."""
    call()
    took = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(socket: str, command: str, *arguments: str) -> dict[str, Any]:
    if command == "log":
        return asyncio.run(follow_log(socket, *arguments))
    with grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        answer: dict[str, Any] = getattr(Driver(channel), command)(*arguments)
        return answer


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
