"""Summaries of the WorkflowService: workflows and jobs in short, and the overview for one screen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from toban.definition import DefinitionKind
from toban.limits import MAX_KEY_CHARS, MAX_TITLE_CHARS
from toban.v1 import run_pb2
from toban.v1 import workflow_pb2 as pb
from toband.api import pages, run_messages
from toband.api.common_requests import moment
from toband.api.request_errors import InvalidFieldError
from toband.domain.run_model import Run
from toband.engine.access.call_scope import visible
from toband.ports import Clock, Store, WorkflowSummary

_DAY = timedelta(days=1)
_FAILURES_MOST = 100
_KINDS = {
    pb.DEFINITION_KIND_UNSPECIFIED: None,
    pb.DEFINITION_KIND_WORKFLOW: DefinitionKind.WORKFLOW,
    pb.DEFINITION_KIND_JOB: DefinitionKind.JOB,
}


class SummaryRpcs:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def list(self, request: pb.ListWorkflowSummariesRequest) -> pb.ListWorkflowSummariesResponse:
        """Raises InvalidFieldError."""
        if len(request.text) > MAX_KEY_CHARS:
            raise InvalidFieldError("text", f"must have at most {MAX_KEY_CHARS} characters")
        if request.kind not in _KINDS:
            raise InvalidFieldError("kind", f"unknown kind {request.kind}")
        first = pages.last(request.page_token)

        async def read(last: WorkflowSummary | None, count: int) -> Sequence[WorkflowSummary]:
            return await self._store.list_summaries(
                after=last.stored.name if last is not None else first,
                limit=count,
                labels=dict(request.labels),
                text=request.text,
                kind=_KINDS[request.kind],
                visible=visible(),
            )

        async def make(found: WorkflowSummary) -> pb.WorkflowSummary:
            return _summary(found)

        page = await pages.filled(pages.size(request.page_size, 100), read, make)
        token = page.token(lambda found: found.stored.name)
        return pb.ListWorkflowSummariesResponse(summaries=page.parts, next_page_token=token)

    async def overview(self, request: pb.GetOverviewRequest) -> pb.GetOverviewResponse:
        """Raises InvalidFieldError."""
        since = self._clock.now() - _DAY
        if request.HasField("failed_since"):
            since = moment(request.failed_since, "failed_since")
        workflows = pages.size(request.max_workflows, 100, "max_workflows")
        failures = min(pages.size(request.max_failures, 10, "max_failures"), _FAILURES_MOST)
        mine = visible()
        counts = await self._store.count_definitions(visible=mine)
        totals = await self._store.run_totals(failed_since=since, visible=mine)
        failed = await self._store.failed_runs(since=since, limit=failures, visible=mine)
        titles = await self._store.workflow_titles({run.workflow for run in failed})
        relevant = await self._store.relevant_summaries(failed_since=since, limit=workflows, visible=mine)
        summaries = [_summary(found) for found in relevant]
        return pb.GetOverviewResponse(
            workflow_count=counts.get(DefinitionKind.WORKFLOW, 0),
            job_count=counts.get(DefinitionKind.JOB, 0),
            disabled_count=totals.disabled,
            running=totals.running,
            waiting=totals.waiting,
            failure_count=totals.failures,
            failures=[_run(run, titles.get(run.workflow, "")) for run in failed],
            summaries=summaries[: pages.fitting(summaries)],
            failed_since=run_messages.timestamp(since),
        )


def _summary(found: WorkflowSummary) -> pb.WorkflowSummary:
    stored = found.stored
    return pb.WorkflowSummary(
        name=stored.name,
        kind=pb.DefinitionKind.Value(f"DEFINITION_KIND_{stored.kind.name}"),
        title=stored.title[:MAX_TITLE_CHARS],
        labels=dict(stored.labels),
        enabled=stored.enabled,
        version=stored.version,
        last_run=_run(found.last_run, stored.title) if found.last_run is not None else None,
        running=found.running,
        waiting=found.waiting,
        rated_runs=found.rated,
        succeeded_runs=found.succeeded,
        next_due=run_messages.timestamp(found.next_due),
        next_due_zone=found.zone if found.next_due is not None else "",
    )


def _run(run: Run, title: str) -> run_pb2.Run:
    """A run of a list, without its parameters."""
    made = run_messages.run(run, title=title)
    made.ClearField("params")
    made.ClearField("params_bytes")
    return made
