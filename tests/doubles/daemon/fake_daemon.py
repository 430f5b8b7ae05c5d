"""A small daemon for tests: real gRPC on a real socket, with everything else in memory.

It can be stopped and started again on the same socket with what it knows, can lose an answer after the work was
done, and can hold a stream back. It runs on an event loop in a thread of its own, so that a test may be
synchronous, asynchronous, or another process.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from doubles.daemon.fake_access import Access, AccessRecords
from doubles.daemon.fake_dead_letters import DeadLetters
from doubles.daemon.fake_errors import Context, abort
from doubles.daemon.fake_events import Events, SubjectSchedules
from doubles.daemon.fake_hooks import Hooks
from doubles.daemon.fake_jobs import Jobs
from doubles.daemon.fake_runs import Runs
from doubles.daemon.fake_secrets import Secrets
from doubles.daemon.fake_workflows import Workflows
from toban.v1 import (
    access_pb2_grpc,
    dead_letter_pb2,
    dead_letter_pb2_grpc,
    event_pb2,
    event_pb2_grpc,
    hook_pb2,
    hook_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    run_pb2,
    run_pb2_grpc,
    schedule_pb2,
    schedule_pb2_grpc,
    secret_pb2,
    secret_pb2_grpc,
    system_pb2,
    system_pb2_grpc,
    workflow_pb2,
    workflow_pb2_grpc,
)

# Generous: a program that is waited for may have to start first, on a machine that has much else to do.
DEADLINE = 60.0

_Answer = TypeVar("_Answer", bound=Message)
_Result = TypeVar("_Result")


@dataclass
class RunRecord:
    """A run, its changes and its output."""

    run: run_pb2.Run
    changes: list[run_pb2.WatchRunResponse] = field(default_factory=list)
    chunks: list[run_pb2.LogChunk] = field(default_factory=list)
    processes: list[run_pb2.ProcessExecution] = field(default_factory=list)
    # By step, artifact and path: a header, then pieces; one that is None breaks the download off.
    contents: dict[tuple[str, str, str], tuple[Any, ...]] = field(default_factory=dict)


class FakeDaemon:
    """The daemon and the handles by which a test moves it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = f"unix://{path}"
        self.workflows: dict[str, workflow_pb2.Workflow] = {}
        self.versions: dict[str, list[workflow_pb2.WorkflowVersion]] = {}
        self.jobs: dict[str, job_pb2.Job] = {}
        self.letters: dict[str, dead_letter_pb2.DeadLetter] = {}
        self.runs: dict[str, RunRecord] = {}
        self.run_changes: list[run_pb2.WatchRunsResponse] = []
        """What WatchRuns sends; `change_of_run` adds to it."""
        # What every dry run answers.
        self.plan = run_pb2.PlanRunResponse()
        # What is told of the schedules of every workflow.
        self.due_times: list[workflow_pb2.DueTime] = []
        self.backfilled: list[workflow_pb2.BackfilledTime] = []
        self.explanation = workflow_pb2.ExplainScheduleResponse()
        self.fires: list[workflow_pb2.Fire] = []
        self.events: list[event_pb2.Event] = []
        # By type of event: the workflows that one starts.
        self.listeners: dict[str, list[str]] = {}
        self.resolution = event_pb2.ResolveEventResponse()
        # Of the last call.
        self.metadata: dict[str, Any] = {}
        # Those of subjects.
        self.schedules: dict[str, schedule_pb2.Schedule] = {}
        # What any time in words means.
        self.understood = schedule_pb2.InterpretTimeResponse(
            understood="once at 2099-01-01 09:00:00 Asia/Tokyo", timezone="Asia/Tokyo"
        )
        self.requests: dict[str, Message] = {}
        self.calls: Counter[str] = Counter()
        self._called = threading.Condition()
        # What else happens when this RPC is called, before it answers.
        self.on_call: dict[str, Callable[[], None]] = {}
        self.seen: list[Message] = []
        # The next answers of this RPC are lost after the work was done.
        self.lose: Counter[str] = Counter()
        # The next calls of this RPC fail so.
        self.fail: dict[str, tuple[grpc.StatusCode, str, tuple[Message, ...]]] = {}
        # Streams send this many messages and then nothing, until the daemon stops.
        self.hold_after: int | None = None
        self.steps_per_page = 1000
        self.info = system_pb2.GetInfoResponse(version="9.9.9", pid=4711, database=system_pb2.DATABASE_KIND_SQLITE)
        self.findings: list[system_pb2.Finding] = []
        self.reloaded = system_pb2.ReloadResponse()
        self.reloaded_config = system_pb2.ReloadConfigResponse()
        self.locks: list[system_pb2.Lock] = []
        self.secrets: list[secret_pb2.Secret] = []
        self.hooks: dict[str, hook_pb2.Hook] = {}
        self.garbage = system_pb2.CollectGarbageResponse()
        self.backup: list[system_pb2.BackupResponse | None] = []
        self.collected: list[system_pb2.CollectGarbageResponse] = []
        self.access = AccessRecords()
        self.changed: asyncio.Condition
        self._server: grpc.aio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    # What a test does with it.

    def start(self) -> None:
        self._do(self._start())

    def stop(self, *, grace: float | None = None) -> None:
        """Ends it as a restart does: every call that is under way is cut off."""
        self._do(self._stop(grace))

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wait_for(self, what: str, times: int = 1) -> None:
        """Waits until an RPC was called, or with `hold` a stream held back, so many times."""
        with self._called:
            assert self._called.wait_for(lambda: self.calls[what] >= times, timeout=DEADLINE)

    def add_workflow(self, name: str, source: str = "", **more: Any) -> workflow_pb2.Workflow:
        source = source or f"name: {name}\nsteps:\n  one:\n    run: echo hello\n"
        return self.store_workflow(name, workflow_pb2.Definition(source=source, **more))

    def add_job(self, name: str, source: str = "", **more: Any) -> job_pb2.Job:
        source = source or f"jobs:\n  {name}:\n    run: echo hello\n"
        return self.store_job(name, workflow_pb2.Definition(source=source, **more))

    def add_letter(self, record: RunRecord, step: str, error: str) -> dead_letter_pb2.DeadLetter:
        letter = dead_letter_pb2.DeadLetter(
            id=str(uuid.uuid4()),
            run_id=record.run.id,
            workflow=record.run.workflow,
            step=step,
            attempts=4,
            error_message=error,
            error_class=run_pb2.ERROR_CLASS_RETRYABLE_TRANSIENT,
            state=dead_letter_pb2.DEAD_LETTER_STATE_OPEN,
        )
        letter.created_at.GetCurrentTime()
        self.letters[letter.id] = letter
        return letter

    def add_run(
        self,
        workflow: str,
        *,
        steps: Iterable[str] = ("one",),
        state: run_pb2.RunState.ValueType = run_pb2.RUN_STATE_RUNNING,
    ) -> RunRecord:
        number = 1 + sum(1 for record in self.runs.values() if record.run.workflow == workflow)
        run = run_pb2.Run(
            id=str(uuid.uuid4()),
            workflow=workflow,
            version=1,
            number=number,
            scope="full",
            state=state,
            triggered_by=run_pb2.TRIGGER_MANUAL,
            caller="uid:1000",
        )
        run.created_at.GetCurrentTime()
        run.started_at.GetCurrentTime()
        for index, step in enumerate(steps):
            run.steps.add(id=step, index=index, state=run_pb2.STEP_STATE_PENDING)
        run.steps_total = len(run.steps)
        record = RunRecord(run)
        self.runs[run.id] = record
        self.change(record, run_pb2.RUN_CHANGE_KIND_RUN_STARTED)
        return record

    def add_event(self, event_type: str, payload_json: str = "", *, dedupe_key: str = "") -> event_pb2.Event:
        """Starts what listens to it, and tells the watchers."""
        event = event_pb2.Event(
            id=str(uuid.uuid4()),
            type=event_type,
            payload_json=payload_json or "{}",
            payload_bytes=len(payload_json.encode()) or 2,
            source=event_pb2.EVENT_SOURCE_CLIENT,
            caller="uid:1000",
            dedupe_key=dedupe_key,
            state=event_pb2.EVENT_STATE_RESOLVED,
            sequence=len(self.events) + 1,
        )
        event.emitted_at.GetCurrentTime()
        event.resolved_at.GetCurrentTime()
        for workflow in self.listeners.get(event_type, []):
            record = self.add_run(workflow)
            record.run.triggered_by = run_pb2.TRIGGER_EVENT
            record.run.event_id, record.run.event_type = event.id, event.type
            event.runs.add(
                workflow=workflow,
                outcome=event_pb2.EVENT_RUN_OUTCOME_STARTED,
                run_id=record.run.id,
            )
        self.events.append(event)
        self._notify()
        return event

    def change(self, record: RunRecord, kind: run_pb2.RunChangeKind.ValueType, *steps: run_pb2.Step) -> None:
        """Changes steps of a run and tells the watchers."""
        known = {step.id: step for step in record.run.steps}
        for step in steps:
            known[step.id].MergeFrom(step)
        run = run_pb2.Run()
        run.CopyFrom(record.run)
        del run.steps[:]
        run.steps.extend(known[step.id] for step in steps)
        record.changes.append(run_pb2.WatchRunResponse(sequence=len(record.changes) + 1, run=run, change=kind))
        self._notify()

    def step(self, record: RunRecord, step: str, state: run_pb2.StepState.ValueType, **more: Any) -> None:
        changed = run_pb2.Step(id=step, state=state, **more)
        if state == run_pb2.STEP_STATE_RUNNING:
            changed.started_at.GetCurrentTime()
            changed.attempts = changed.attempts or 1
        elif state != run_pb2.STEP_STATE_PENDING:
            changed.finished_at.GetCurrentTime()
            record.run.steps_ended += 1
        if state == run_pb2.STEP_STATE_FAILED:
            record.run.failed_steps += 1
        self.change(record, run_pb2.RUN_CHANGE_KIND_ATTEMPT_STARTED, changed)

    def finish(self, record: RunRecord, state: run_pb2.RunState.ValueType, error: str = "") -> None:
        record.run.state = state
        record.run.error_message = error
        record.run.finished_at.GetCurrentTime()
        self.change(record, run_pb2.RUN_CHANGE_KIND_ATTEMPT_ENDED)

    def write(
        self,
        record: RunRecord,
        step: str,
        *data: bytes,
        stream: run_pb2.LogStream.ValueType = run_pb2.LOG_STREAM_STDOUT,
    ) -> None:
        """One chunk of output with one record per piece."""
        chunk = run_pb2.LogChunk(step=step, attempt=1, process_execution_id=f"{step}-1")
        for piece in data:
            entry = chunk.records.add(stream=stream, data=piece)
            entry.at.GetCurrentTime()
        record.chunks.append(chunk)
        self._notify()

    # What the servicers share.

    def ids_of(self, kind: run_pb2.IdKind.ValueType) -> list[str]:
        """The ids of that kind."""
        match kind:
            case run_pb2.ID_KIND_RUN:
                return list(self.runs)
            case run_pb2.ID_KIND_PROCESS:
                return [each.id for record in self.runs.values() for each in record.processes]
            case run_pb2.ID_KIND_EVENT:
                return [event.id for event in self.events]
            case run_pb2.ID_KIND_DEAD_LETTER:
                return list(self.letters)
            case _:
                return list(self.schedules)

    def store_workflow(self, name: str, definition: workflow_pb2.Definition) -> workflow_pb2.Workflow:
        version = self._new_version(name, definition)
        workflow = workflow_pb2.Workflow(
            name=name,
            title=f"Title of {name}",
            enabled=True,
            version=version.version,
            owner_kind=workflow_pb2.OWNER_KIND_API,
            definition=definition,
            etag=version.digest[:8],
        )
        workflow.created_at.GetCurrentTime()
        workflow.updated_at.GetCurrentTime()
        self.workflows[name] = workflow
        return workflow

    def store_job(self, name: str, definition: workflow_pb2.Definition) -> job_pb2.Job:
        version = self._new_version(name, definition)
        job = job_pb2.Job(
            name=name,
            title=f"Title of {name}",
            enabled=True,
            version=version.version,
            owner_kind=workflow_pb2.OWNER_KIND_API,
            definition=definition,
            etag=version.digest[:8],
        )
        job.created_at.GetCurrentTime()
        job.updated_at.GetCurrentTime()
        self.jobs[name] = job
        return job

    def _new_version(self, name: str, definition: workflow_pb2.Definition) -> workflow_pb2.WorkflowVersion:
        versions = self.versions.setdefault(name, [])
        version = workflow_pb2.WorkflowVersion(
            workflow=name,
            version=len(versions) + 1,
            definition=definition,
            digest=hashlib.sha256(definition.source.encode()).hexdigest(),
        )
        version.created_at.GetCurrentTime()
        versions.append(version)
        return version

    async def answer(
        self,
        rpc: str,
        context: Context,
        request: Any,
        work: Callable[[], Coroutine[Any, Any, _Answer]],
    ) -> _Answer:
        """Does the work once per request id, and answers or loses the answer."""
        await self.begin(rpc, context, request)
        request_id = getattr(request, "request_id", "")
        if request_id and request_id in self.requests:
            stored: Any = self.requests[request_id]
            result: _Answer = stored
        else:
            result = await work()
            if request_id:
                self.requests[request_id] = result
        if self.lose[rpc] > 0:
            self.lose[rpc] -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost")
        return result

    def count(self, what: str) -> None:
        with self._called:
            self.calls[what] += 1
            self._called.notify_all()

    async def begin(self, rpc: str, context: Context, request: Message) -> None:
        self.count(rpc)
        self.seen.append(request)
        self.metadata = dict(context.invocation_metadata() or ())
        await self.access.check(context, self.metadata)
        if rpc in self.on_call:
            self.on_call[rpc]()
        if rpc in self.fail:
            code, text, details = self.fail[rpc]
            await abort(context, code, text, *details)

    def change_of_run(self, run_id: str, sequence: int) -> None:
        self.run_changes.append(run_pb2.WatchRunsResponse(run=run_pb2.Run(id=run_id), sequence=sequence))
        self._notify()

    def _notify(self) -> None:
        async def tell() -> None:
            async with self.changed:
                self.changed.notify_all()

        if self._server is None:
            return
        if threading.current_thread() is self._thread:
            self._loop.create_task(tell())
        else:
            self._do(tell())

    async def _start(self) -> None:
        self.changed = asyncio.Condition()
        self._server = grpc.aio.server()
        workflow_pb2_grpc.add_WorkflowServiceServicer_to_server(Workflows(self), self._server)
        job_pb2_grpc.add_JobServiceServicer_to_server(Jobs(self), self._server)
        run_pb2_grpc.add_RunServiceServicer_to_server(Runs(self), self._server)
        dead_letter_pb2_grpc.add_DeadLetterServiceServicer_to_server(DeadLetters(self), self._server)
        event_pb2_grpc.add_EventServiceServicer_to_server(Events(self), self._server)
        schedule_pb2_grpc.add_ScheduleServiceServicer_to_server(SubjectSchedules(self), self._server)
        system_pb2_grpc.add_SystemServiceServicer_to_server(System(self), self._server)
        # What it does not have is UNIMPLEMENTED.
        hook_pb2_grpc.add_HookServiceServicer_to_server(Hooks(self), self._server)
        secret_pb2_grpc.add_SecretServiceServicer_to_server(Secrets(self), self._server)  # type: ignore[abstract]
        access_pb2_grpc.add_AccessServiceServicer_to_server(Access(self), self._server)
        self._server.add_insecure_port(self.address)
        self.access.listen(self._server)
        await self.access.start_login(self.path)
        await self._server.start()

    async def _stop(self, grace: float | None) -> None:
        server, self._server = self._server, None
        if server is not None:
            await self.access.stop_login()
            await server.stop(grace)

    def _do(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=DEADLINE)


class System(system_pb2_grpc.SystemServiceServicer):
    """Says what the test put there."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon

    async def GetInfo(self, request: system_pb2.GetInfoRequest, context: Context) -> system_pb2.GetInfoResponse:
        async def work() -> system_pb2.GetInfoResponse:
            return self._daemon.info

        return await self._daemon.answer("GetInfo", context, request, work)

    async def GetConfig(self, request: system_pb2.GetConfigRequest, context: Context) -> system_pb2.GetConfigResponse:
        async def work() -> system_pb2.GetConfigResponse:
            return system_pb2.GetConfigResponse(
                values=[
                    system_pb2.ConfigValue(
                        key="state_dir", value_json='"/var/lib/toban"', source=system_pb2.CONFIG_SOURCE_DEFAULT
                    ),
                    system_pb2.ConfigValue(key="listen", value_json='["a"]', source=system_pb2.CONFIG_SOURCE_FLAG),
                ]
            )

        return await self._daemon.answer("GetConfig", context, request, work)

    async def Doctor(self, request: system_pb2.DoctorRequest, context: Context) -> system_pb2.DoctorResponse:
        async def work() -> system_pb2.DoctorResponse:
            return system_pb2.DoctorResponse(findings=self._daemon.findings)

        return await self._daemon.answer("Doctor", context, request, work)

    async def Drain(self, request: system_pb2.DrainRequest, context: Context) -> system_pb2.DrainResponse:
        async def work() -> system_pb2.DrainResponse:
            before, self._daemon.info.draining = self._daemon.info.draining, True
            return system_pb2.DrainResponse(changed=not before)

        return await self._daemon.answer("Drain", context, request, work)

    async def Resume(self, request: system_pb2.ResumeRequest, context: Context) -> system_pb2.ResumeResponse:
        async def work() -> system_pb2.ResumeResponse:
            before, self._daemon.info.draining = self._daemon.info.draining, False
            return system_pb2.ResumeResponse(changed=before)

        return await self._daemon.answer("Resume", context, request, work)

    async def ListLocks(self, request: system_pb2.ListLocksRequest, context: Context) -> system_pb2.ListLocksResponse:
        async def work() -> system_pb2.ListLocksResponse:
            return system_pb2.ListLocksResponse(locks=self._daemon.locks)

        return await self._daemon.answer("ListLocks", context, request, work)

    async def ReleaseLock(
        self, request: system_pb2.ReleaseLockRequest, context: Context
    ) -> system_pb2.ReleaseLockResponse:
        async def work() -> system_pb2.ReleaseLockResponse:
            answer = system_pb2.ReleaseLockResponse()
            for lock in self._daemon.locks:
                wanted = [each for each in lock.leftovers if request.run_id in ("", each.run_id)]
                if lock.name == request.name:
                    answer.released.extend(wanted)
                    for each in wanted:
                        lock.leftovers.remove(each)
            return answer

        return await self._daemon.answer("ReleaseLock", context, request, work)

    async def ReloadConfig(
        self, request: system_pb2.ReloadConfigRequest, context: Context
    ) -> system_pb2.ReloadConfigResponse:
        async def work() -> system_pb2.ReloadConfigResponse:
            return self._daemon.reloaded_config

        return await self._daemon.answer("ReloadConfig", context, request, work)

    async def Reload(self, request: system_pb2.ReloadRequest, context: Context) -> system_pb2.ReloadResponse:
        async def work() -> system_pb2.ReloadResponse:
            return self._daemon.reloaded

        return await self._daemon.answer("Reload", context, request, work)

    async def Backup(
        self, request: system_pb2.BackupRequest, context: Context
    ) -> AsyncIterator[system_pb2.BackupResponse]:
        """The test put the parts into `backup`; None is a lost connection."""
        await self._daemon.begin("Backup", context, request)
        for part in self._daemon.backup:
            if part is None:
                await abort(context, grpc.StatusCode.UNAVAILABLE, "the daemon went away")
            else:
                yield part

    async def CollectGarbage(
        self, request: system_pb2.CollectGarbageRequest, context: Context
    ) -> system_pb2.CollectGarbageResponse:
        async def work() -> system_pb2.CollectGarbageResponse:
            if not request.dry_run:
                self._daemon.collected.append(self._daemon.garbage)
            return self._daemon.garbage

        return await self._daemon.answer("CollectGarbage", context, request, work)
