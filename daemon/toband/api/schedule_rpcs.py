"""Schedule RPCs of the WorkflowService: PreviewSchedule, BackfillSchedule, ExplainSchedule and ListFires."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from toban.v1 import job_pb2
from toban.v1 import workflow_pb2 as pb
from toband.api import definition_messages, pages, run_messages, run_requests
from toband.api.common_requests import moment
from toband.api.request_errors import InvalidFieldError
from toband.domain.schedule_model import Fire, ScheduleEntry
from toband.engine.access.call_scope import visible, visible_among
from toband.engine.errors import WorkflowNotFoundError
from toband.engine.schedules.backfill import MOST, Backfill, BackfillRequest
from toband.engine.schedules.schedule_queries import ScheduleQueries
from toband.ports import Request, Store, StoredWorkflow

PREVIEW = 10
PREVIEW_MOST = 100
# More than a definition can have.
_SCHEDULES_MOST = 1000


class ScheduleRpcs:
    def __init__(self, outlook: ScheduleQueries, backfill: Backfill, store: Store) -> None:
        self._outlook = outlook
        self._backfill = backfill
        self._store = store

    async def workflow(self, stored: StoredWorkflow) -> pb.Workflow:
        """The message of a workflow with all of its schedules, also those that are never due again."""
        return definition_messages.workflow(stored, await self._schedules(stored))

    async def job(self, stored: StoredWorkflow, used_by: Sequence[str] = ()) -> job_pb2.Job:
        """The message of a job, as `workflow`, with the workflows that use it."""
        return definition_messages.job(stored, used_by, await self._schedules(stored))

    async def _schedules(self, stored: StoredWorkflow) -> list[ScheduleEntry]:
        found = await self._store.list_schedules(
            workflow=stored.name,
            # The prefix of their ids. Schedules of subjects are not part of the definition.
            after=f"{stored.name}/",
            limit=_SCHEDULES_MOST,
            active_only=False,
        )
        return [each for each in found if not each.subject]

    async def preview(self, request: pb.PreviewScheduleRequest) -> pb.PreviewScheduleResponse:
        """Raises InvalidFieldError, WorkflowNotFoundError and ZoneGoneError."""
        count = min(pages.size(request.count, PREVIEW, "count"), PREVIEW_MOST)
        start = moment(request.from_time, "from_time") if request.HasField("from_time") else None
        found = await self._outlook.preview(request.workflow, count, start)
        return pb.PreviewScheduleResponse(due_times=[definition_messages.due_time(each) for each in found])

    async def backfill(
        self, request: pb.BackfillScheduleRequest, by: str, key: Request | None
    ) -> pb.BackfillScheduleResponse:
        """Raises InvalidFieldError, and as `Backfill.start`."""
        wanted = BackfillRequest(
            workflow=request.workflow,
            first=_required(request, "from_time"),
            last=_required(request, "to_time"),
            index=request.schedule_index if request.HasField("schedule_index") else None,
            scope=request.scope,
            params=run_requests.params(request.params),
            again=request.again,
            limit=_backfill_limit(request.limit),
        )
        if wanted.last < wanted.first:
            raise InvalidFieldError("to_time", "must not be before `from_time`")
        if request.validate_only:
            found = await self._backfill.preview(wanted, caller=by)
        else:
            found = await self._backfill.start(wanted, caller=by, request=key)
        return pb.BackfillScheduleResponse(times=[definition_messages.backfilled(each) for each in found])

    async def explain(self, request: pb.ExplainScheduleRequest) -> pb.ExplainScheduleResponse:
        """Raises InvalidFieldError and WorkflowNotFoundError."""
        at = moment(request.at, "at") if request.HasField("at") else None
        found = await self._outlook.explain(request.workflow, at)
        return pb.ExplainScheduleResponse(
            sentences=found.sentences,
            fires=[definition_messages.fire(each) for each in found.fires],
            due_before=run_messages.timestamp(found.before),
            due_after=run_messages.timestamp(found.after),
        )

    async def fires(self, request: pb.ListFiresRequest) -> pb.ListFiresResponse:
        """Raises InvalidFieldError and WorkflowNotFoundError."""
        limit = pages.size(request.page_size, 100)
        before, schedule_id = _position(request.page_token) if request.page_token else (None, "")
        found = await self._store.fires(
            workflow=request.workflow,
            before=before,
            before_schedule=schedule_id,
            limit=limit + 1,
            visible=visible(),
        )
        if not found and request.workflow and before is None:
            await self._check(request.workflow)
        fires = [definition_messages.fire(each) for each in found[:limit]]
        count = pages.fitting(fires)
        more = len(found) > count
        return pb.ListFiresResponse(fires=fires[:count], next_page_token=_token(found[count - 1]) if more else "")

    async def _check(self, name: str) -> None:
        known = await self._store.list_versions(name, before=None, limit=1)
        if not known or name not in await visible_among([name], self._store):
            raise WorkflowNotFoundError(name)


def _required(request: pb.BackfillScheduleRequest, field: Literal["from_time", "to_time"]) -> datetime:
    if not request.HasField(field):
        raise InvalidFieldError(field, "is required")
    return moment(getattr(request, field), field)


def _backfill_limit(given: int) -> int:
    if not 0 <= given <= MOST:
        raise InvalidFieldError("limit", f"must be 0 to {MOST:,}, found {given:,}")
    return given or MOST


def _token(last: Fire) -> str:
    """The end of a page is a line of one schedule: several schedules may be due at the same time."""
    return pages.token(f"{last.due_at.astimezone(UTC).isoformat()} {last.schedule_id}")


def _position(token: str) -> tuple[datetime, str]:
    """The due time and the schedule in a token. Raises InvalidFieldError."""
    text, _, schedule_id = pages.last(token).partition(" ")
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or not schedule_id:
        raise InvalidFieldError("page_token", "must be a token of this list")
    return at, schedule_id
