"""HistoryService: see proto/toban/v1/history.proto."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from toban.definition.timing.zones import check_zone
from toban.v1 import history_pb2 as pb
from toban.v1 import history_pb2_grpc, run_pb2
from toband.api import event_messages, event_requests, pages, run_messages
from toband.api.handler import Context, unary
from toband.api.request_errors import InvalidFieldError
from toband.engine.access.call_scope import visible
from toband.engine.errors import WorkflowNotFoundError
from toband.engine.events.event_chains import EventChains
from toband.ports import Clock, GridRow, Store

DAYS_MOST = 371
GRID_MOST = 200
_DAYS = 365
_GRID = 25
_CELLS_MOST = 20_000
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class HistoryService(history_pb2_grpc.HistoryServiceServicer):
    def __init__(self, store: Store, chains: EventChains, clock: Clock, zone: str) -> None:
        """`zone` is that of the daemon."""
        self._store = store
        self._chains = chains
        self._clock = clock
        self._zone = zone

    @unary
    async def CountRunsByDay(self, request: pb.CountRunsByDayRequest, context: Context) -> pb.CountRunsByDayResponse:
        try:
            name = check_zone(request.timezone) if request.timezone else self._zone
        except ValueError as error:
            raise InvalidFieldError("timezone", str(error)) from None
        days = self._days(request, ZoneInfo(name))
        bounds = [_midnight(day, ZoneInfo(name)) for day in (*days, days[-1] + timedelta(days=1))]
        found = await self._store.count_created(bounds, workflow=request.workflow, visible=visible())
        answer = pb.CountRunsByDayResponse(timezone=name, first_day=days[0].isoformat(), last_day=days[-1].isoformat())
        for day, counts in zip(days, found, strict=True):
            if counts:
                made = answer.days.add(day=day.isoformat())
                for state, count in counts.items():
                    made.counts.add(state=run_pb2.RunState.Value(f"RUN_STATE_{state.value}"), runs=count)
        return answer

    def _days(self, request: pb.CountRunsByDayRequest, zone: ZoneInfo) -> Sequence[date]:
        """Raises InvalidFieldError."""
        if not 0 <= request.days <= DAYS_MOST:
            raise InvalidFieldError("days", f"must be 0 to {DAYS_MOST}, found {request.days}")
        count = request.days or _DAYS
        try:
            if request.first_day and not _DAY.fullmatch(request.first_day):
                raise ValueError
            today = self._clock.now().astimezone(zone).date()
            given = date.fromisoformat(request.first_day) if request.first_day else None
            first = given or today - timedelta(days=count - 1)
            if not 1971 <= first.year <= 9990:
                raise ValueError
        except ValueError:
            raise InvalidFieldError("first_day", "must be a day such as 2026-01-01") from None
        return [first + timedelta(days=number) for number in range(count)]

    @unary
    async def ListRunGrid(self, request: pb.ListRunGridRequest, context: Context) -> pb.ListRunGridResponse:
        if not 0 <= request.page_size <= GRID_MOST:
            raise InvalidFieldError("page_size", f"must be 0 to {GRID_MOST}, found {request.page_size}")
        limit = request.page_size or _GRID
        before = pages.last(request.page_token)
        rows, more = await self._store.run_grid(request.workflow, before=before, limit=limit, most_cells=_CELLS_MOST)
        if not rows and not before and await self._store.get_workflow(request.workflow) is None:
            raise WorkflowNotFoundError(request.workflow)
        columns: dict[str, int] = {}
        for row in rows:
            for cell in row.cells:
                columns.setdefault(cell.step, len(columns))
        made = [_grid_run(row, columns) for row in rows]
        count = pages.fitting(made)
        token = pages.token(rows[count - 1].run.id) if more or count < len(rows) else ""
        return pb.ListRunGridResponse(steps=list(columns), runs=made[:count], next_page_token=token)

    @unary
    async def GetEventChain(self, request: pb.GetEventChainRequest, context: Context) -> pb.GetEventChainResponse:
        chain = await self._chains.of(event_requests.event_id(request.id))
        answer = pb.GetEventChainResponse(truncated=chain.truncated)
        found = [event_messages.event(event, listed=True) for event in chain.events]
        count = pages.fitting(found)
        answer.events.extend(found[:count])
        answer.truncated = chain.truncated or count < len(found)
        for event_id, run in chain.runs:
            answer.runs.add(
                run_id=run.id,
                workflow=run.workflow,
                number=run.number,
                state=run_pb2.RunState.Value(f"RUN_STATE_{run.state.value}"),
                event_id=event_id,
                created_at=run_messages.timestamp(run.created_at),
                finished_at=run_messages.timestamp(run.finished_at),
            )
        return answer


def _grid_run(row: GridRow, columns: dict[str, int]) -> pb.GridRun:
    run = row.run
    made = pb.GridRun(
        run_id=run.id,
        number=run.number,
        version=run.version,
        state=run_pb2.RunState.Value(f"RUN_STATE_{run.state.value}"),
        triggered_by=run_pb2.Trigger.Value(f"TRIGGER_{run.trigger.value}"),
        created_at=run_messages.timestamp(run.created_at),
        started_at=run_messages.timestamp(run.started_at),
        finished_at=run_messages.timestamp(run.finished_at),
    )
    for cell in row.cells:
        made.steps.add(
            index=columns[cell.step],
            state=run_pb2.StepState.Value(f"STEP_STATE_{cell.state.value}"),
            started_at=run_messages.timestamp(cell.started_at),
            finished_at=run_messages.timestamp(cell.finished_at),
            attempts=cell.attempts,
        )
    return made


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
