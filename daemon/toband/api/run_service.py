"""RunService: see proto/toban/v1/run.proto."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from operator import attrgetter

from toban.limits import MAX_TITLE_CHARS
from toban.v1 import run_pb2 as pb
from toban.v1 import run_pb2_grpc
from toband.api import pages, run_messages, run_requests, run_summary
from toband.api.all_runs_watch_rpc import AllRunsWatchRpc
from toband.api.artifact_rpcs import ArtifactRpcs
from toband.api.common_requests import caller, identity, origin_of, request_of
from toband.api.handler import Context, streaming, unary
from toband.api.lock_messages import LockMessages
from toband.api.log_line_rpcs import LogLineRpcs
from toband.api.run_pages import STEPS, next_run_page, run_page
from toband.api.run_watch_rpc import RunWatchRpc
from toband.domain.attempt_model import Attempt
from toband.domain.plan import Plan
from toband.domain.run_model import Run, RunState, StepRun
from toband.engine.access.call_scope import visible
from toband.engine.errors import (
    AttemptNotFoundError,
    NeverRunError,
    NotWaitingError,
    RunTerminalError,
    WorkflowNotFoundError,
)
from toband.engine.execution.dispatcher import Dispatcher
from toband.engine.runs.approvals import Approvals
from toband.engine.runs.intake import RunIntake
from toband.engine.runs.log_stream import LogEnd, LogStreams
from toband.engine.runs.plan_cache import PlanCache
from toband.engine.runs.resource_sampling import ResourceSampler
from toband.engine.runs.run_control import RunControl
from toband.engine.runs.run_factory import RunFactory
from toband.engine.runs.run_log import LogChunk
from toband.engine.runs.run_preview import RunPreviews
from toband.engine.runs.run_progress import RunProgress
from toband.engine.runs.run_queue import RunQueue
from toband.engine.runs.run_search import RunSearch
from toband.ports import Store

# Ids that one call finds at most.
_IDS = 10


class RunService(run_pb2_grpc.RunServiceServicer):
    def __init__(
        self,
        *,
        intake: RunIntake,
        factory: RunFactory,
        previews: RunPreviews,
        plans: PlanCache,
        queue: RunQueue,
        launches: Dispatcher,
        control: RunControl,
        approvals: Approvals,
        logs: LogStreams,
        lines: LogLineRpcs,
        store: Store,
        watch: RunWatchRpc,
        watch_all: AllRunsWatchRpc,
        progress: RunProgress,
        locks: LockMessages,
        sampler: ResourceSampler,
        artifacts: ArtifactRpcs,
    ) -> None:
        self._intake = intake
        self._factory = factory
        self._previews = previews
        self._plans = plans
        self._queue = queue
        self._launches = launches
        self._control = control
        self._approvals = approvals
        self._artifacts = artifacts
        self._sampler = sampler
        self._logs = logs
        self._lines = lines
        self._store = store
        self._search = RunSearch(store)
        self._watch = watch
        self._watch_all = watch_all
        self._progress = progress
        self._locks = locks

    @unary
    async def StartRun(self, request: pb.StartRunRequest, context: Context) -> pb.StartRunResponse:
        run = await self._intake.start(
            request.workflow,
            run_requests.params(request.params),
            trigger=run_requests.trigger(request.triggered_by),
            caller=caller(),
            request=request_of("StartRun", request, request.request_id),
            selection=run_requests.selection(request),
            labels=run_requests.labels(request.labels),
            origin=origin_of(context),
        )
        return pb.StartRunResponse(run=await self.shown(run.id))

    @unary
    async def PlanRun(self, request: pb.PlanRunRequest, context: Context) -> pb.PlanRunResponse:
        preview = await self._previews.preview(
            request.workflow,
            run_requests.params(request.params),
            run_requests.selection(request),
            caller=caller(),
        )
        steps = [run_messages.planned_step(step) for step in preview.steps]
        count = pages.fitting(steps)
        return pb.PlanRunResponse(
            workflow=preview.run.workflow,
            workflow_title=preview.title[:MAX_TITLE_CHARS],
            version=preview.run.version,
            scope=preview.run.scope,
            definition_scope=preview.definition_scope,
            steps=steps[:count],
            left_out=len(steps) - count,
        )

    @unary
    async def RetryRun(self, request: pb.RetryRunRequest, context: Context) -> pb.RetryRunResponse:
        run = await self._intake.retry(
            request.id,
            selection=run_requests.retry_selection(request, caller()),
            newest=request.newest_version,
            params=run_requests.params(request.params),
            caller=caller(),
            request=request_of("RetryRun", request, request.request_id),
            origin=origin_of(context),
        )
        newer = await self._factory.newer_version(run)
        return pb.RetryRunResponse(run=await self.shown(run.id), newer_version=newer)

    @unary
    async def PauseRun(self, request: pb.PauseRunRequest, context: Context) -> pb.PauseRunResponse:
        await self._control.pause(request.id)
        return pb.PauseRunResponse(run=await self.shown(request.id))

    @unary
    async def ResumeRun(self, request: pb.ResumeRunRequest, context: Context) -> pb.ResumeRunResponse:
        await self._control.resume(request.id)
        return pb.ResumeRunResponse(run=await self.shown(request.id))

    @unary
    async def DecideApproval(self, request: pb.DecideApprovalRequest, context: Context) -> pb.DecideApprovalResponse:
        approved = run_requests.approved(request.decision)
        note = run_requests.short(request.note, "note")
        by = identity()
        try:
            await self._approvals.decide(request.run_id, request.step, approved=approved, note=note, by=by)
        except (NotWaitingError, RunTerminalError):
            if not await self._was_decided(request, approved, by.name):
                raise
        return pb.DecideApprovalResponse(run=await self.shown(request.run_id))

    async def _was_decided(self, request: pb.DecideApprovalRequest, approved: bool, by: str) -> bool:
        """Whether the step was decided in exactly this way before: the client may repeat a call after a lost answer."""
        run = await self._store.get_run(request.run_id)
        step = run.steps.get(request.step) if run is not None else None
        decision = step.result if step is not None else None
        return (
            isinstance(decision, dict)
            and decision.get("approved") is approved
            and (decision.get("by"), decision.get("note")) == (by, request.note)
        )

    @unary
    async def DeleteRun(self, request: pb.DeleteRunRequest, context: Context) -> pb.DeleteRunResponse:
        await self._control.delete(request.id)
        return pb.DeleteRunResponse()

    @unary
    async def PinRun(self, request: pb.PinRunRequest, context: Context) -> pb.PinRunResponse:
        await self._control.pin(request.id, by=caller(), note=run_requests.short(request.note, "note"))
        return pb.PinRunResponse(run=await self.shown(request.id))

    @unary
    async def UnpinRun(self, request: pb.UnpinRunRequest, context: Context) -> pb.UnpinRunResponse:
        await self._control.unpin(request.id)
        return pb.UnpinRunResponse(run=await self.shown(request.id))

    @unary
    async def GetRun(self, request: pb.GetRunRequest, context: Context) -> pb.GetRunResponse:
        limit = pages.size(request.step_page_size, STEPS, "step_page_size")
        given = request.step_page_token
        after = pages.number(given, "step_page_token") if given else -1
        page, more = await next_run_page(self._store, request.id, after, limit)
        run = await self._whole(await self._progress.of(page), summarised=not given)
        given_steps = list(page.steps.values())[: len(run.steps)]
        more = more or len(given_steps) < len(page.steps)
        return pb.GetRunResponse(
            run=run,
            next_step_page_token=pages.token(str(given_steps[-1].position)) if more else "",
        )

    @unary
    async def GetCurrentRun(self, request: pb.GetCurrentRunRequest, context: Context) -> pb.GetCurrentRunResponse:
        run = await self._store.current_run(request.workflow)
        if run is None:
            if await self._store.get_workflow(request.workflow) is None:
                raise WorkflowNotFoundError(request.workflow)
            raise NeverRunError(request.workflow)
        return pb.GetCurrentRunResponse(run=await self._whole(await self._progress.of(run), summarised=True))

    @unary
    async def ListRuns(self, request: pb.ListRunsRequest, context: Context) -> pb.ListRunsResponse:
        conditions = run_requests.run_conditions(request)
        first = pages.last(request.page_token) or conditions.before
        titles: dict[str, str] = {}

        async def read_before(before: str, count: int) -> Sequence[Run]:
            return await self._search.read(conditions, before, count, visible())

        async def read(last: Run | None, count: int) -> Sequence[Run]:
            found = await read_before(last.id if last is not None else first, count)
            titles.update(await self._store.workflow_titles({run.workflow for run in found} - titles.keys()))
            return found

        async def make(run: Run) -> pb.Run:
            # Only the definition tells whether a run that has not started is in the queue.
            if run.current_step or run.state is RunState.PENDING:
                return await self._whole(await self._progress.of(run))
            return self._idle(run, titles.get(run.workflow, ""))

        limit = pages.size(request.page_size, 50)
        if (wanted := run_requests.run_filter(request)) is not None:
            found, before = await self._search.page(wanted, read_before, first, limit)
            titles.update(await self._store.workflow_titles({run.workflow for run in found}))
            parts = [await make(run) for run in found]
            count = pages.fitting(parts, pages.LIST_ROOM)
            if count < len(parts):
                before = parts[count - 1].id
            return pb.ListRunsResponse(runs=parts[:count], next_page_token=pages.token(before) if before else "")
        page = await pages.filled(limit, read, make)
        return pb.ListRunsResponse(runs=page.parts, next_page_token=page.token(attrgetter("id")))

    @unary
    async def FindIds(self, request: pb.FindIdsRequest, context: Context) -> pb.FindIdsResponse:
        kind, part = run_requests.id_kind(request.kind), run_requests.id_part(request)
        return pb.FindIdsResponse(ids=await self._store.find_ids(kind, part, limit=_IDS, visible=visible()))

    @unary
    async def CancelRun(self, request: pb.CancelRunRequest, context: Context) -> pb.CancelRunResponse:
        reason = run_requests.short(request.reason, "reason")
        run = await self._control.cancel(request.id, reason, ends_finally=not request.is_retry)
        return pb.CancelRunResponse(run=await self.shown(run.id))

    @streaming
    async def WatchRun(self, request: pb.WatchRunRequest, context: Context) -> AsyncIterator[pb.WatchRunResponse]:
        async for message in self._watch.watch(request):
            yield message

    @streaming
    async def WatchRuns(self, request: pb.WatchRunsRequest, context: Context) -> AsyncIterator[pb.WatchRunsResponse]:
        async for message in self._watch_all.watch(request):
            yield message

    @streaming
    async def StreamLogs(self, request: pb.StreamLogsRequest, context: Context) -> AsyncIterator[pb.StreamLogsResponse]:
        query = run_requests.query(request)
        if request.process_execution_id:
            query = run_requests.of_process(query, await self._attempt(request.process_execution_id))
        plan: Plan | None = None
        async for item in self._logs.stream(query):
            match item:
                case LogChunk():
                    plan = plan or await self.plan_of(query.run_id)
                    yield _chunk(item, plan)
                case LogEnd():
                    state = pb.RunState.Value(f"RUN_STATE_{item.state.value}")
                    end = pb.LogEnd(run_state=state, complete=item.complete)
                    yield pb.StreamLogsResponse(end=end, position=item.position)

    @unary
    async def ReadLog(self, request: pb.ReadLogRequest, context: Context) -> pb.ReadLogResponse:
        return await self._lines.read(request)

    @unary
    async def SearchLogs(self, request: pb.SearchLogsRequest, context: Context) -> pb.SearchLogsResponse:
        return await self._lines.search(request)

    @unary
    async def ListProcessExecutions(
        self, request: pb.ListProcessExecutionsRequest, context: Context
    ) -> pb.ListProcessExecutionsResponse:
        limit = pages.size(request.page_size, 100)
        if request.run_id:
            await run_page(self._store, request.run_id, limit=0)
        after, before = run_requests.launched_between(request)
        found = await self._store.list_attempts(
            run_id=request.run_id,
            step=request.step,
            workflow=request.workflow,
            job=request.job,
            states=[run_requests.process_state(state) for state in request.states],
            after=after,
            before=pages.last(request.page_token) or before,
            limit=limit + 1,
            visible=visible(),
        )
        plans = {run_id: await self.plan_of(run_id) for run_id in {a.run_id for a in found}}
        usage = await self._sampler.of([attempt.id for attempt in found[:limit]])
        attempts = [
            run_messages.process_execution(attempt, usage.get(attempt.id), plan=plans[attempt.run_id], only_latest=True)
            for attempt in found[:limit]
        ]
        count = pages.fitting(attempts)
        return pb.ListProcessExecutionsResponse(
            process_executions=attempts[:count],
            next_page_token=pages.token(found[count - 1].id) if len(found) > count else "",
        )

    @unary
    async def GetProcessExecution(
        self, request: pb.GetProcessExecutionRequest, context: Context
    ) -> pb.GetProcessExecutionResponse:
        attempt = await self._attempt(request.id)
        usage = (await self._sampler.of([attempt.id])).get(attempt.id)
        made = run_messages.process_execution(attempt, usage, plan=await self.plan_of(attempt.run_id))
        if not request.without_output:
            run_messages.add_output(made, await self._logs.ends(attempt))
        return pb.GetProcessExecutionResponse(process_execution=made)

    @unary
    async def ListArtifacts(self, request: pb.ListArtifactsRequest, context: Context) -> pb.ListArtifactsResponse:
        return await self._artifacts.page(request, await self.plan_of(request.run_id))

    @streaming
    async def DownloadArtifact(
        self, request: pb.DownloadArtifactRequest, context: Context
    ) -> AsyncIterator[pb.DownloadArtifactResponse]:
        async for message in self._artifacts.download(request):
            yield message

    async def shown(self, run_id: str) -> pb.Run:
        """The message of a run as it is now, with its first page of steps. Raises RunNotFoundError."""
        return await self._whole(await run_page(self._store, run_id), summarised=True)

    async def _whole(self, run: Run, *, summarised: bool = False) -> pb.Run:
        """The message of a run with facts of its definition, and with as many steps as fit."""
        made = run_messages.run(run, await self._plans.plan_of(run))
        if summarised:
            await run_summary.add_steps(made, run, self._store)
        if self._queue.lacks_slot(run):
            made.waiting_for = pb.WAITING_FOR_EVENT_SLOT
        self._add_locks(made, run)
        waiting = [step for step in made.steps if self._waits(run.steps[step.id])]
        for step in waiting:
            step.waiting_for = step.waiting_for or pb.WAITING_FOR_SLOT
        locked = [step for step in made.steps if self._waits_for_locks(run.id, step)]
        if waiting and not made.waiting_for:
            made.waiting_for = pb.WAITING_FOR_SLOT
            made.waiting_steps.extend(step.id for step in waiting[: run_messages.WAITING_STEPS])
        elif locked and not made.waiting_for:
            run_messages.add_held_up(made, run)
        del made.steps[pages.fitting(made.steps, pages.ROOM - made.params.ByteSize()) :]
        return made

    def _idle(self, run: Run, title: str) -> pb.Run:
        """The message of a run in a list, without steps: none of them has a process."""
        made = run_messages.run(run, title=title)
        self._add_locks(made, run)
        active = self._control.active_run(run.id) if run.state is RunState.RUNNING else None
        if active is not None and not made.waiting_for:
            run_messages.add_waiting_steps(made, active)
        return made

    def _add_locks(self, made: pb.Run, run: Run) -> None:
        """The locks that a run waits for before it starts."""
        if run.state is RunState.PENDING and (locks := self._locks.waits(run.id)):
            made.waiting_for = pb.WAITING_FOR_LOCK
            made.waiting_for_locks.extend(locks)

    def _waits_for_locks(self, run_id: str, step: pb.Step) -> bool:
        """Whether the step waits for locks of its own; then it says so."""
        locks = self._locks.waits(run_id, step.id)
        if locks:
            step.waiting_for = pb.WAITING_FOR_LOCK
            step.waiting_for_locks.extend(locks)
        return bool(locks)

    def _waits(self, step: StepRun) -> bool:
        """Whether the step waits for a slot of its own."""
        return step.attempt is not None and self._launches.waits(step.attempt.token)

    async def plan_of(self, run_id: str) -> Plan | None:
        """The plan of a run; None if the run was deleted."""
        run = await self._store.get_run_page(run_id, limit=0)
        return None if run is None else await self._plans.plan_of(run)

    async def _attempt(self, attempt_id: str) -> Attempt:
        """Raises AttemptNotFoundError."""
        attempt = await self._store.get_attempt(attempt_id)
        if attempt is None:
            raise AttemptNotFoundError(attempt_id)
        return attempt


def _chunk(item: LogChunk, plan: Plan | None) -> pb.StreamLogsResponse:
    made = pb.StreamLogsResponse(position=item.position)
    made.chunk.step = item.attempt.step
    made.chunk.step_title = plan.title(item.attempt.step) if plan is not None else ""
    made.chunk.attempt = item.attempt.number
    made.chunk.process_execution_id = item.attempt.id
    for at, kind, data, level, message in item.records:
        record = made.chunk.records.add(stream=pb.LogStream.ValueType(kind), data=data, message=message)
        if level is not None:
            record.level = pb.LogLevel.ValueType(level)
        record.at.FromMicroseconds(at)
    return made
