"""ScheduleService: see proto/toban/v1/schedule.proto."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter

from google.protobuf.timestamp_pb2 import Timestamp

from toban.v1 import schedule_pb2 as pb
from toban.v1 import schedule_pb2_grpc
from toband.api import event_messages, pages, run_messages, schedule_requests
from toband.api.common_requests import caller, request_of
from toband.api.event_requests import key
from toband.api.handler import Context, unary
from toband.api.request_errors import UnclearTimeError
from toband.domain.schedule_model import ScheduleEntry
from toband.engine.access.call_scope import visible, visible_among
from toband.engine.errors import NotPermittedError, PermissionReason, ScheduleNotFoundError, TimeNotUnderstoodError
from toband.engine.schedules.subject_schedules import SubjectSchedules
from toband.ports import Store


class ScheduleService(schedule_pb2_grpc.ScheduleServiceServicer):
    def __init__(self, subjects: SubjectSchedules, store: Store) -> None:
        self._subjects = subjects
        self._store = store

    @unary
    async def CreateSchedule(self, request: pb.CreateScheduleRequest, context: Context) -> pb.CreateScheduleResponse:
        new = schedule_requests.new_schedule(request)
        entry, created = await self._subjects.create(
            subject=new.subject,
            rule=new.rule,
            zone=new.zone,
            action=new.action,
            workflow=new.workflow,
            dedupe_key=new.dedupe_key,
            caller=caller(),
            request=request_of("CreateSchedule", request, request.request_id),
        )
        if not created and entry.workflow not in await visible_among([entry.workflow], self._store):
            raise NotPermittedError(
                f"another schedule of {new.subject!r} has this dedupe key, and {caller()} may not see it",
                PermissionReason.WORKFLOW,
            )
        return pb.CreateScheduleResponse(schedule=await self._message(entry), created=created)

    @unary
    async def GetSchedule(self, request: pb.GetScheduleRequest, context: Context) -> pb.GetScheduleResponse:
        entry = await self._subjects.get(_id(request.id))
        return pb.GetScheduleResponse(schedule=await self._message(entry))

    @unary
    async def ListSchedules(self, request: pb.ListSchedulesRequest, context: Context) -> pb.ListSchedulesResponse:
        subject, workflow = key(request.subject, "subject"), key(request.workflow, "workflow")
        first = key(pages.last(request.page_token), "page_token")
        titles: dict[str, str] = {}

        async def read(last: ScheduleEntry | None, count: int) -> Sequence[ScheduleEntry]:
            found = await self._store.list_schedules(
                subject=subject,
                workflow=workflow,
                after=last.id if last is not None else first,
                limit=count,
                active_only=not request.include_ended,
                of_subjects=True,
                visible=visible(),
            )
            titles.update(await self._titles(found, known=titles))
            return found

        async def make(entry: ScheduleEntry) -> pb.Schedule:
            return event_messages.schedule(entry, self._subjects, titles)

        page = await pages.filled(pages.size(request.page_size, 100), read, make)
        return pb.ListSchedulesResponse(schedules=page.parts, next_page_token=page.token(attrgetter("id")))

    @unary
    async def CancelSchedule(self, request: pb.CancelScheduleRequest, context: Context) -> pb.CancelScheduleResponse:
        entry = await self._subjects.cancel(_id(request.id))
        return pb.CancelScheduleResponse(schedule=await self._message(entry))

    @unary
    async def CancelBySubject(self, request: pb.CancelBySubjectRequest, context: Context) -> pb.CancelBySubjectResponse:
        subject = key(request.subject, "subject", required=True)
        return pb.CancelBySubjectResponse(cancelled=await self._subjects.cancel_subject(subject))

    @unary
    async def InterpretTime(self, request: pb.InterpretTimeRequest, context: Context) -> pb.InterpretTimeResponse:
        zone = schedule_requests.zone(request.timezone)
        try:
            read = self._subjects.interpret(request.words, zone)
        except TimeNotUnderstoodError as error:
            raise UnclearTimeError("words", str(error)) from None
        return pb.InterpretTimeResponse(
            understood=read.understood,
            recurring=read.recurring,
            due_times=_times(read.due),
            timezone=read.zone,
            action=schedule_requests.action_of(read.action),
        )

    async def _titles(self, entries: Iterable[ScheduleEntry], known: Collection[str] = ()) -> Mapping[str, str]:
        """The titles of the workflows that they start, without those that are known."""
        names = {each.workflow for each in entries if each.workflow}.difference(known)
        return await self._store.workflow_titles(names) if names else {}

    async def _message(self, entry: ScheduleEntry) -> pb.Schedule:
        """The message of a single schedule, with its next due times."""
        made = event_messages.schedule(entry, self._subjects, await self._titles([entry]))
        made.due_times.extend(_times(self._subjects.upcoming(entry)))
        return made


def _times(due: Iterable[datetime]) -> list[Timestamp]:
    return [made for at in due if (made := run_messages.timestamp(at)) is not None]


def _id(text: str) -> str:
    """Raises ScheduleNotFoundError for a text that cannot be an id, and that some databases refuse."""
    if not text.isprintable():
        raise ScheduleNotFoundError(repr(text))
    return text
