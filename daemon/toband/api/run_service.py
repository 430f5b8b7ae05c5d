"""RunService: see proto/toban/v1/run.proto."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

from google.protobuf import json_format, struct_pb2, timestamp_pb2

from toban.definition import ParamError
from toban.v1 import run_pb2 as pb
from toban.v1 import run_pb2_grpc
from toband.api import convert, paging
from toband.api.errors import Context, InvalidFieldError, streaming, unary
from toband.api.requests import caller, request_of
from toband.domain.model import Run, RunState, Trigger
from toband.engine.changes import Changes
from toband.engine.errors import (
    AttemptNotFoundError,
    NeverRunError,
    RunNotFoundError,
    StoppingError,
    WorkflowNotFoundError,
)
from toband.engine.log_stream import LogChunk, LogEnd, LogQuery, LogStreams
from toband.engine.runs import Runs
from toband.engine.usage import Usages
from toband.ports import LogKind, Store

STEPS = 500
CHANGES = 500
REASON_MOST = 1000


class RunService(run_pb2_grpc.RunServiceServicer):
    def __init__(
        self, runs: Runs, logs: LogStreams, store: Store, changes: Changes, usages: Usages
    ) -> None:
        self._runs = runs
        self._usages = usages
        self._logs = logs
        self._store = store
        self._changes = changes

    @unary
    async def StartRun(self, request: pb.StartRunRequest, context: Context) -> pb.StartRunResponse:
        run = await self._runs.start(
            request.workflow,
            _params(request.params),
            trigger=_trigger(request.triggered_by),
            caller=caller(context),
            request=request_of("StartRun", request, request.request_id, context),
        )
        return pb.StartRunResponse(run=await self._whole(await self._page(run.id)))

    @unary
    async def GetRun(self, request: pb.GetRunRequest, context: Context) -> pb.GetRunResponse:
        limit = paging.size(request.step_page_size, STEPS, "step_page_size")
        given = request.step_page_token
        after = paging.number(given, "step_page_token") if given else -1
        run = await self._whole(await self._page(request.id, after=after, limit=limit))
        last = run.steps[-1].index if run.steps else after
        return pb.GetRunResponse(
            run=run,
            next_step_page_token=paging.token(str(last)) if last + 1 < run.progress_total else "",
        )

    @unary
    async def GetCurrentRun(
        self, request: pb.GetCurrentRunRequest, context: Context
    ) -> pb.GetCurrentRunResponse:
        run = await self._store.current_run(request.workflow)
        if run is None:
            if await self._store.get_workflow(request.workflow) is None:
                raise WorkflowNotFoundError(request.workflow)
            raise NeverRunError(request.workflow)
        return pb.GetCurrentRunResponse(run=await self._whole(run))

    @unary
    async def ListRuns(self, request: pb.ListRunsRequest, context: Context) -> pb.ListRunsResponse:
        limit = paging.size(request.page_size, 50)
        found = await self._store.list_runs(
            workflow=request.workflow,
            states=[_run_state(state) for state in request.states],
            before=paging.last(request.page_token),
            limit=limit + 1,
        )
        runs = [
            await self._whole(run) if run.current_step else convert.run(run)
            for run in found[:limit]
        ]
        count = paging.fitting(runs)
        return pb.ListRunsResponse(
            runs=runs[:count],
            next_page_token=paging.token(found[count - 1].id) if len(found) > count else "",
        )

    @unary
    async def CancelRun(
        self, request: pb.CancelRunRequest, context: Context
    ) -> pb.CancelRunResponse:
        if len(request.reason) > REASON_MOST:
            text = f"found {len(request.reason)} characters, at most {REASON_MOST}"
            raise InvalidFieldError("reason", text)
        run = await self._runs.cancel(request.id, request.reason)
        return pb.CancelRunResponse(run=await self._whole(await self._page(run.id)))

    @streaming
    async def WatchRun(
        self, request: pb.WatchRunRequest, context: Context
    ) -> AsyncIterator[pb.WatchRunResponse]:
        with self._changes.watching(request.id) as watch:
            sequence = request.after_sequence
            run = await self._page(request.id, limit=0)
            plan = await self._runs.plan_of(run)
            if not 0 <= sequence <= run.sequence:
                raise InvalidFieldError(
                    "after_sequence", f"found {sequence}, the run has come to {run.sequence}"
                )
            if sequence == 0:
                async for run, more in self._picture(request.id):
                    sequence = run.sequence
                    for part, rest in _parts(convert.run(run, plan)):
                        yield pb.WatchRunResponse(sequence=sequence, run=part, partial=more or rest)
            state = run.state
            while True:
                watch.changed.clear()
                entries = await self._store.history(request.id, after=sequence, limit=CHANGES)
                for entry in entries:
                    sequence, state = entry.sequence, entry.run.state
                    yield pb.WatchRunResponse(
                        sequence=sequence, run=convert.run(entry.run, plan), event=entry.event
                    )
                if state.terminal:
                    return
                if self._changes.closed:
                    raise StoppingError
                if len(entries) < CHANGES:
                    await watch.wait()

    async def _picture(self, run_id: str) -> AsyncIterator[tuple[Run, bool]]:
        """The whole run in pages, all of the same moment: begun anew when it changes in between."""
        pages: list[Run] = []
        for _ in range(100):
            pages.clear()
            after = -1
            while True:
                page = await self._page(run_id, after=after)
                pages.append(page)
                after = max((step.index for step in page.steps.values()), default=after)
                if after + 1 >= page.total_steps:
                    break
            if all(page.sequence == pages[0].sequence for page in pages):
                break
        for page in pages:
            # If it never stood still, the changes since the first page come once more.
            yield replace(page, sequence=pages[0].sequence), page is not pages[-1]

    @streaming
    async def StreamLogs(
        self, request: pb.StreamLogsRequest, context: Context
    ) -> AsyncIterator[pb.StreamLogsResponse]:
        async for item in self._logs.stream(_query(request)):
            match item:
                case LogChunk():
                    yield _chunk(item)
                case LogEnd():
                    state = pb.RunState.Value(f"RUN_STATE_{item.state.value}")
                    end = pb.LogEnd(run_state=state, complete=item.complete)
                    yield pb.StreamLogsResponse(end=end, position=item.position)

    @unary
    async def ListProcessExecutions(
        self, request: pb.ListProcessExecutionsRequest, context: Context
    ) -> pb.ListProcessExecutionsResponse:
        limit = paging.size(request.page_size, 100)
        if request.run_id:
            await self._page(request.run_id, limit=0)
        found = await self._store.list_attempts(
            run_id=request.run_id,
            step=request.step,
            before=paging.last(request.page_token),
            limit=limit + 1,
        )
        names = {run_id: await self._workflow_of(run_id) for run_id in {a.run_id for a in found}}
        usage = await self._usages.of([attempt.id for attempt in found[:limit]])
        return pb.ListProcessExecutionsResponse(
            process_executions=[
                convert.process_execution(
                    attempt, names[attempt.run_id], usage.get(attempt.id), only_latest=True
                )
                for attempt in found[:limit]
            ],
            next_page_token=paging.token(found[limit - 1].id) if len(found) > limit else "",
        )

    @unary
    async def GetProcessExecution(
        self, request: pb.GetProcessExecutionRequest, context: Context
    ) -> pb.GetProcessExecutionResponse:
        attempt = await self._store.get_attempt(request.id)
        if attempt is None:
            raise AttemptNotFoundError(request.id)
        name = await self._workflow_of(attempt.run_id)
        usage = (await self._usages.of([attempt.id])).get(attempt.id)
        return pb.GetProcessExecutionResponse(
            process_execution=convert.process_execution(attempt, name, usage)
        )

    async def _page(self, run_id: str, *, after: int = -1, limit: int = STEPS) -> Run:
        run = await self._store.get_run_page(run_id, after_index=after, limit=limit)
        if run is None:
            raise RunNotFoundError(run_id)
        return run

    async def _whole(self, run: Run) -> pb.Run:
        """With what only its definition knows, and as many of its steps as fit."""
        made = convert.run(run, await self._runs.plan_of(run))
        waiting = [step.id for step in run.steps.values() if self._runs.waits_for_place(step)]
        if waiting and not made.waiting_for:
            made.waiting_for = f"a free place for {', '.join(waiting[:5])}"
        del made.steps[paging.fitting(made.steps) :]
        return made

    async def _workflow_of(self, run_id: str) -> str:
        run = await self._store.get_run_page(run_id, limit=0)
        return run.workflow if run is not None else ""


def _parts(run: pb.Run) -> Iterator[tuple[pb.Run, bool]]:
    """The run in as many messages as its steps need, and whether more follow."""
    steps = list(run.steps)
    while True:
        count = paging.fitting(steps)
        del run.steps[:]
        run.steps.extend(steps[:count])
        steps = steps[count:]
        yield run, bool(steps)
        if not steps:
            return


def _params(given: struct_pb2.Struct) -> dict[str, Any]:
    """Raises ParamError for what has no form in JSON."""
    params: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for name, value in given.fields.items():
        try:
            params[name] = json_format.MessageToDict(value)
        except (json_format.Error, ValueError):
            problems.append((name, "expected a value that JSON can hold"))
    if problems:
        raise ParamError(problems)
    return params


def _trigger(value: pb.Trigger.ValueType) -> Trigger:
    match value:
        case pb.TRIGGER_UNSPECIFIED | pb.TRIGGER_API:
            return Trigger.API
        case pb.TRIGGER_MANUAL:
            return Trigger.MANUAL
        case _:
            raise InvalidFieldError("triggered_by", f"{value} is not a trigger")


def _run_state(value: pb.RunState.ValueType) -> RunState:
    try:
        return RunState(pb.RunState.Name(value).removeprefix("RUN_STATE_"))
    except ValueError:
        raise InvalidFieldError("states", f"{value} is not a state") from None


def _query(request: pb.StreamLogsRequest) -> LogQuery:
    if request.tail < 0 or request.attempt < 0:
        raise InvalidFieldError("tail" if request.tail < 0 else "attempt", "expected 0 or more")
    if request.tail and request.position:
        raise InvalidFieldError("tail", "it cannot be given together with `position`")
    if request.attempt and not request.step:
        raise InvalidFieldError("attempt", "it needs `step`")
    unknown = [kind for kind in request.streams if kind not in pb.LogStream.values()]
    if unknown:
        raise InvalidFieldError("streams", f"{unknown[0]} is not a stream")
    return LogQuery(
        run_id=request.run_id,
        step=request.step,
        attempt=request.attempt,
        kinds=[LogKind(kind) for kind in request.streams if kind],
        tail=request.tail,
        since=_since(request.since),
        follow=request.follow,
        position=request.position,
    )


def _since(given: timestamp_pb2.Timestamp) -> int:
    """In microseconds; 0, the epoch, if it was not given."""
    try:
        # Asked for its date, it says whether it is one.
        given.ToDatetime()
    except (ValueError, OverflowError):
        raise InvalidFieldError("since", "it is not a time") from None
    return given.ToMicroseconds()


def _chunk(item: LogChunk) -> pb.StreamLogsResponse:
    made = pb.StreamLogsResponse(position=item.position)
    made.chunk.step = item.attempt.step
    made.chunk.attempt = item.attempt.number
    made.chunk.process_execution_id = item.attempt.id
    for at, kind, data in item.pieces:
        record = made.chunk.records.add(stream=pb.LogStream.ValueType(kind), data=data)
        record.at.FromMicroseconds(at)
    return made
