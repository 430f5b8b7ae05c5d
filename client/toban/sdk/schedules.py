"""Calls of the ScheduleService: schedules that belong to a subject."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from toban.sdk.base import Calls, new_request_id, paged
from toban.sdk.errors import InvalidArgument, Violation
from toban.sdk.message_values import to_duration, to_struct, to_timestamp
from toban.v1 import schedule_pb2, schedule_pb2_grpc

_PREFIX = "SCHEDULE_ACTION_"


class ScheduleCalls(Calls):
    """Manages schedules of subjects, and interprets times in words."""

    @cached_property
    def _schedules(self) -> schedule_pb2_grpc.ScheduleServiceAsyncStub:
        return schedule_pb2_grpc.ScheduleServiceStub(self._connection.channel)

    async def create_schedule(
        self,
        subject: str,
        words: str = "",
        *,
        cron: str = "",
        every: timedelta | float | None = None,
        at: datetime | None = None,
        timezone: str = "",
        action: schedule_pb2.ScheduleAction.ValueType | str = "",
        workflow: str = "",
        params: Mapping[str, Any] | None = None,
        dedupe_key: str = "",
        max_occurrences: int = 0,
        request_id: str | None = None,
    ) -> tuple[schedule_pb2.Schedule, bool]:
        """Stores a schedule of a subject; returns it with its interpretation, and whether it is new.

        If an active schedule of the subject has the same `dedupe_key`, that one is returned. One of `words`, `cron`,
        `every` (seconds, or a timedelta) and `at` (aware) says when it is due. `action` is a value of the enum or its
        name, such as `reminder` or `follow-up`; it is optional if the words name one, or with a `workflow`. Raises
        InvalidArgument, with the reason `TIME_NOT_UNDERSTOOD` for words that cannot be interpreted or a time in the
        past, and NotFound `WORKFLOW_NOT_FOUND`.
        """
        answer = await self._connection.call(
            self._schedules.CreateSchedule,
            schedule_pb2.CreateScheduleRequest(
                subject=subject,
                rule=_rule(words, cron, every, at),
                timezone=timezone,
                action=_action(action),
                workflow=workflow,
                params=to_struct(params or {}),
                dedupe_key=dedupe_key,
                max_occurrences=max_occurrences,
                request_id=new_request_id(request_id),
            ),
        )
        return answer.schedule, answer.created

    async def get_schedule(self, schedule_id: str) -> schedule_pb2.Schedule:
        """One schedule of a subject. Raises NotFound."""
        answer = await self._connection.call(
            self._schedules.GetSchedule, schedule_pb2.GetScheduleRequest(id=schedule_id)
        )
        return answer.schedule

    def list_schedules(
        self,
        *,
        subject: str = "",
        workflow: str = "",
        include_ended: bool = False,
        page_size: int = 0,
    ) -> AsyncGenerator[schedule_pb2.Schedule, None]:
        """Schedules of subjects in order of creation: the active ones, or all that are stored."""

        async def fetch(token: str) -> tuple[list[schedule_pb2.Schedule], str]:
            answer = await self._connection.call(
                self._schedules.ListSchedules,
                schedule_pb2.ListSchedulesRequest(
                    subject=subject,
                    workflow=workflow,
                    include_ended=include_ended,
                    page_size=page_size,
                    page_token=token,
                ),
            )
            return list(answer.schedules), answer.next_page_token

        return paged(fetch)

    async def cancel_schedule(self, schedule_id: str) -> schedule_pb2.Schedule:
        """Cancels a schedule: it is never due again. Raises NotFound; may be repeated, and does not change an ended
        one.
        """
        answer = await self._connection.call(
            self._schedules.CancelSchedule, schedule_pb2.CancelScheduleRequest(id=schedule_id)
        )
        return answer.schedule

    async def cancel_by_subject(self, subject: str) -> int:
        """Cancels all active schedules of a subject; returns their number. May be repeated."""
        answer = await self._connection.call(
            self._schedules.CancelBySubject, schedule_pb2.CancelBySubjectRequest(subject=subject)
        )
        return answer.cancelled

    async def interpret_time(self, words: str, timezone: str = "") -> schedule_pb2.InterpretTimeResponse:
        """The meaning of the words now, and their due times; stores nothing. Raises InvalidArgument."""
        return await self._connection.call(
            self._schedules.InterpretTime,
            schedule_pb2.InterpretTimeRequest(words=words, timezone=timezone),
        )


def _rule(words: str, cron: str, every: timedelta | float | None, at: datetime | None) -> schedule_pb2.ScheduleRule:
    given = [name for name, value in (("words", words), ("cron", cron)) if value]
    given += [name for name, value in (("every", every), ("at", at)) if value is not None]
    if len(given) != 1:
        found = f"found {' and '.join(given)}" if given else "found none"
        text = f"{found}, expected one of words, cron, every and at"
        raise InvalidArgument(
            f"cannot create the schedule: {text}",
            violations=[Violation(field="rule", description=text)],
        )
    if every is not None:
        return schedule_pb2.ScheduleRule(every=to_duration(every))
    if at is not None:
        return schedule_pb2.ScheduleRule(at=to_timestamp(at))
    return schedule_pb2.ScheduleRule(words=words) if words else schedule_pb2.ScheduleRule(cron=cron)


def _action(
    given: schedule_pb2.ScheduleAction.ValueType | str,
) -> schedule_pb2.ScheduleAction.ValueType:
    if not isinstance(given, str):
        return given
    known = {name.removeprefix(_PREFIX).lower(): value for name, value in schedule_pb2.ScheduleAction.items()}
    unset = known.pop("unspecified")
    found = known.get(given.lower().replace("-", "_")) if given else unset
    if found is None:
        text = f"found {given!r}, expected one of {', '.join(known)}"
        raise InvalidArgument(
            f"cannot create the schedule: action: {text}",
            violations=[Violation(field="action", description=text)],
        )
    return found
