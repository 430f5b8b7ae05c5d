"""Schedules and their ledger, as the port has them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from toband.domain.schedule_model import Fire, ScheduleEntry
from toband.ports import Fired, Firing, Request
from toband.store.rows import fire_ledger, schedules
from toband.store.sql.open_database import SqlAccess


class SqlSchedules(SqlAccess):
    """`toband.ports.ScheduleStore`."""

    async def earliest_alarm(self, *, after: datetime | None = None) -> datetime | None:
        return await self._read(schedules.read_earliest, after)

    async def due_schedules(
        self,
        now: datetime,
        *,
        since: datetime | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 200,
    ) -> Sequence[ScheduleEntry]:
        return await self._read(schedules.read_due, now, since, after, limit)

    async def decided_ahead(self, now: datetime) -> tuple[int, datetime | None]:
        return await self._read(schedules.read_decided_ahead, now)

    async def start_schedules(self, *, after: str = "", limit: int = 200) -> Sequence[ScheduleEntry]:
        return await self._read(schedules.read_at_start, after, limit)

    async def list_schedules(
        self,
        *,
        workflow: str = "",
        subject: str = "",
        after: str = "",
        limit: int = 100,
        active_only: bool = True,
        of_subjects: bool = False,
    ) -> Sequence[ScheduleEntry]:
        return await self._read(schedules.read_all, workflow, subject, after, limit, active_only, of_subjects)

    async def get_schedule(self, schedule_id: str) -> ScheduleEntry | None:
        return await self._read(schedules.read, schedule_id)

    async def fire(self, firing: Firing) -> Fired | None:
        return await self._write.do(fire_ledger.fire(self._sql, firing))

    async def create_schedule(
        self, entry: ScheduleEntry, *, request: Request | None = None
    ) -> tuple[ScheduleEntry, bool]:
        return await self._write.do(schedules.create(entry, request))

    async def schedule_of_request(self, request: Request) -> tuple[ScheduleEntry, bool] | None:
        return await self._read(schedules.read_made, request)

    async def cancel_schedule(self, schedule_id: str, *, at: datetime) -> ScheduleEntry | None:
        return await self._write.do(schedules.cancel(schedule_id, at))

    async def cancel_by_subject(self, subject: str, *, at: datetime) -> int:
        return await self._write.do(schedules.cancel_subject(subject, at))

    async def fires(
        self,
        *,
        schedule_id: str = "",
        workflow: str = "",
        before: datetime | None = None,
        before_schedule: str = "",
        after: datetime | None = None,
        limit: int = 100,
    ) -> Sequence[Fire]:
        return await self._read(fire_ledger.read, schedule_id, workflow, before, before_schedule, after, limit)

    async def forget_schedules(self, before: datetime) -> int:
        gone = 0
        while await self._read(schedules.read_over, before):
            gone += await self._write.do(schedules.forget(before))
        return gone

    async def forget_fires(self, before: datetime, keep: int) -> int:
        gone = 0
        while keys := await self._read(fire_ledger.read_old, before):
            await self._write.do(fire_ledger.remove(keys))
            gone += len(keys)
        for schedule_id in await self._read(fire_ledger.read_crowded, keep):
            while keys := await self._read(fire_ledger.read_surplus, schedule_id, keep):
                await self._write.do(fire_ledger.remove(keys))
                gone += len(keys)
        return gone
