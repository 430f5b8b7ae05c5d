"""Events and subject schedules of the fake daemon."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc

from doubles.daemon.fake_errors import Context, abort, info, violation
from doubles.daemon.fake_workflows import TERMINAL
from toban.v1 import event_pb2, event_pb2_grpc, schedule_pb2, schedule_pb2_grpc

if TYPE_CHECKING:
    from doubles.daemon.fake_daemon import FakeDaemon


class Events(event_pb2_grpc.EventServiceServicer):
    """Workflows of `listeners` are started; everything is resolved at once."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon

    async def EmitEvent(self, request: event_pb2.EmitEventRequest, context: Context) -> event_pb2.EmitEventResponse:
        async def work() -> event_pb2.EmitEventResponse:
            for event in self._daemon.events:
                if request.dedupe_key and event.dedupe_key == request.dedupe_key:
                    return event_pb2.EmitEventResponse(event=event, created=False)
            event = self._daemon.add_event(request.type, request.payload_json, dedupe_key=request.dedupe_key)
            if request.HasField("origin"):
                event.source = event_pb2.EVENT_SOURCE_STEP
                event.source_run = request.origin.run_id
            return event_pb2.EmitEventResponse(event=event, created=True)

        return await self._daemon.answer("EmitEvent", context, request, work)

    async def GetEvent(self, request: event_pb2.GetEventRequest, context: Context) -> event_pb2.GetEventResponse:
        async def work() -> event_pb2.GetEventResponse:
            found = [event for event in self._daemon.events if event.id == request.id]
            if not found:
                await abort(
                    context,
                    grpc.StatusCode.NOT_FOUND,
                    f"there is no event {request.id}",
                    info("EVENT_NOT_FOUND", {"event_id": request.id}),
                )
            return self._with_states(found[0])

        return await self._daemon.answer("GetEvent", context, request, work)

    def _with_states(self, event: event_pb2.Event) -> event_pb2.GetEventResponse:
        answer = event_pb2.GetEventResponse(event=event)
        answer.all_ended = event.state != event_pb2.EVENT_STATE_PENDING
        for each in answer.event.runs:
            if record := self._daemon.runs.get(each.run_id):
                each.run_state = record.run.state
                answer.all_ended = answer.all_ended and record.run.state in TERMINAL
        return answer

    async def ListEvents(self, request: event_pb2.ListEventsRequest, context: Context) -> event_pb2.ListEventsResponse:
        async def work() -> event_pb2.ListEventsResponse:
            found = [
                event for event in reversed(self._daemon.events) if not request.types or event.type in request.types
            ]
            begin, size = int(request.page_token or 0), request.page_size or 100
            response = event_pb2.ListEventsResponse(events=found[begin : begin + size])
            if begin + size < len(found):
                response.next_page_token = str(begin + size)
            return response

        return await self._daemon.answer("ListEvents", context, request, work)

    async def WatchEvents(
        self, request: event_pb2.WatchEventsRequest, context: Context
    ) -> AsyncIterator[event_pb2.WatchEventsResponse]:
        await self._daemon.begin("WatchEvents", context, request)
        given = request.HasField("after_sequence")
        sequence = request.after_sequence if given else len(self._daemon.events)
        yield event_pb2.WatchEventsResponse(sequence=sequence)
        sent = 0
        while True:
            for event in self._daemon.events[sequence:]:
                if self._daemon.hold_after is not None and sent >= self._daemon.hold_after:
                    break
                sequence = event.sequence
                if not request.types or event.type in request.types:
                    sent += 1
                    yield event_pb2.WatchEventsResponse(event=event, sequence=sequence)
            async with self._daemon.changed:
                # What came since the last look is not waited for.
                if len(self._daemon.events) == sequence or self._daemon.hold_after is not None:
                    await self._daemon.changed.wait()

    async def ResolveEvent(
        self, request: event_pb2.ResolveEventRequest, context: Context
    ) -> event_pb2.ResolveEventResponse:
        async def work() -> event_pb2.ResolveEventResponse:
            return self._daemon.resolution

        return await self._daemon.answer("ResolveEvent", context, request, work)


class SubjectSchedules(schedule_pb2_grpc.ScheduleServiceServicer):
    """Reads no times: `understood` says what everything means."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon

    async def CreateSchedule(
        self, request: schedule_pb2.CreateScheduleRequest, context: Context
    ) -> schedule_pb2.CreateScheduleResponse:
        async def work() -> schedule_pb2.CreateScheduleResponse:
            await self._check(request.rule.words, context)
            action = request.action or self._daemon.understood.action
            if not action and not request.workflow:
                wrong = "action: it is missing: expected one of reminder, or a workflow"
                await abort(
                    context,
                    grpc.StatusCode.INVALID_ARGUMENT,
                    wrong,
                    info("INVALID_ARGUMENT"),
                    violation("action", wrong.removeprefix("action: ")),
                )
            for known in self._daemon.schedules.values():
                same = (known.subject, known.dedupe_key) == (request.subject, request.dedupe_key)
                if request.dedupe_key and same:
                    return schedule_pb2.CreateScheduleResponse(schedule=known, created=False)
            schedule = schedule_pb2.Schedule(
                id=str(uuid.uuid4()),
                subject=request.subject,
                action=action,
                workflow=request.workflow,
                params=request.params,
                request=request.rule.words or request.rule.cron or str(request.rule),
                understood=self._daemon.understood.understood,
                timezone=request.timezone or self._daemon.understood.timezone,
                state=schedule_pb2.SCHEDULE_STATE_ACTIVE,
                next_due=next(iter(self._daemon.understood.due_times), None),
                max_occurrences=request.max_occurrences,
                dedupe_key=request.dedupe_key,
                caller="uid:1000",
            )
            most = request.max_occurrences or None
            schedule.due_times.extend(self._daemon.understood.due_times[:most])
            schedule.created_at.GetCurrentTime()
            self._daemon.schedules[schedule.id] = schedule
            return schedule_pb2.CreateScheduleResponse(schedule=schedule, created=True)

        return await self._daemon.answer("CreateSchedule", context, request, work)

    async def GetSchedule(
        self, request: schedule_pb2.GetScheduleRequest, context: Context
    ) -> schedule_pb2.GetScheduleResponse:
        async def work() -> schedule_pb2.GetScheduleResponse:
            return schedule_pb2.GetScheduleResponse(schedule=await self._existing(request.id, context))

        return await self._daemon.answer("GetSchedule", context, request, work)

    async def ListSchedules(
        self, request: schedule_pb2.ListSchedulesRequest, context: Context
    ) -> schedule_pb2.ListSchedulesResponse:
        async def work() -> schedule_pb2.ListSchedulesResponse:
            found = [
                each
                for each in self._daemon.schedules.values()
                if request.subject in ("", each.subject)
                and request.workflow in ("", each.workflow)
                and (request.include_ended or each.state == schedule_pb2.SCHEDULE_STATE_ACTIVE)
            ]
            begin, size = int(request.page_token or 0), request.page_size or 100
            response = schedule_pb2.ListSchedulesResponse(schedules=found[begin : begin + size])
            if begin + size < len(found):
                response.next_page_token = str(begin + size)
            return response

        return await self._daemon.answer("ListSchedules", context, request, work)

    async def CancelSchedule(
        self, request: schedule_pb2.CancelScheduleRequest, context: Context
    ) -> schedule_pb2.CancelScheduleResponse:
        async def work() -> schedule_pb2.CancelScheduleResponse:
            schedule = await self._existing(request.id, context)
            _cancel(schedule)
            return schedule_pb2.CancelScheduleResponse(schedule=schedule)

        return await self._daemon.answer("CancelSchedule", context, request, work)

    async def CancelBySubject(
        self, request: schedule_pb2.CancelBySubjectRequest, context: Context
    ) -> schedule_pb2.CancelBySubjectResponse:
        async def work() -> schedule_pb2.CancelBySubjectResponse:
            count = sum(_cancel(each) for each in self._daemon.schedules.values() if each.subject == request.subject)
            return schedule_pb2.CancelBySubjectResponse(cancelled=count)

        return await self._daemon.answer("CancelBySubject", context, request, work)

    async def InterpretTime(
        self, request: schedule_pb2.InterpretTimeRequest, context: Context
    ) -> schedule_pb2.InterpretTimeResponse:
        async def work() -> schedule_pb2.InterpretTimeResponse:
            await self._check(request.words, context)
            return self._daemon.understood

        return await self._daemon.answer("InterpretTime", context, request, work)

    async def _check(self, words: str, context: Context) -> None:
        if "NONSENSE" in words:
            await abort(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                f'cannot read the time "{words}": NONSENSE is none (examples: tomorrow)',
                info("TIME_NOT_UNDERSTOOD"),
            )

    async def _existing(self, schedule_id: str, context: Context) -> schedule_pb2.Schedule:
        if schedule_id not in self._daemon.schedules:
            await abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"there is no schedule {schedule_id}",
                info("SCHEDULE_NOT_FOUND", {"schedule_id": schedule_id}),
            )
        return self._daemon.schedules[schedule_id]


def _cancel(schedule: schedule_pb2.Schedule) -> bool:
    if schedule.state != schedule_pb2.SCHEDULE_STATE_ACTIVE:
        return False
    schedule.state = schedule_pb2.SCHEDULE_STATE_CANCELLED
    schedule.ClearField("next_due")
    schedule.ClearField("due_times")
    schedule.cancelled_at.GetCurrentTime()
    return True
