"""Schedules and the fire ledger, as the engine uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from toband.domain.identity import Visible
from toband.domain.run_model import Run
from toband.domain.schedule_model import Fire, ScheduleEntry
from toband.ports.records import Fired, Firing, Request


class ScheduleStore(Protocol):
    """Schedules of definitions and of subjects.

    A schedule is active until it is cancelled or has no due time left; a schedule that is due at every start of the
    daemon always has one. Schedules of definitions are stored and removed with them: see WorkflowText.
    """

    async def earliest_alarm(self, *, after: datetime | None = None) -> datetime | None:
        """The next alarm of any schedule, later than `after`; None if there is none."""
        ...

    async def due_schedules(
        self,
        now: datetime,
        *,
        since: datetime | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 200,
    ) -> Sequence[ScheduleEntry]:
        """Schedules with an alarm up to `now` and not before `since`, by alarm and id.

        `after` continues a page that ended with that alarm and id.
        """
        ...

    async def decided_ahead(self, now: datetime) -> tuple[int, datetime | None]:
        """The number of active schedules with a ledger line for a due time after `now`, and the latest such time."""
        ...

    async def start_schedules(self, *, after: str = "", limit: int = 200) -> Sequence[ScheduleEntry]:
        """Schedules that are due at every start of the daemon, by id, behind `after`."""
        ...

    async def list_schedules(
        self,
        *,
        workflow: str = "",
        subject: str = "",
        after: str = "",
        limit: int = 100,
        active_only: bool = True,
        of_subjects: bool = False,
        with_calendar: bool = False,
        visible: Visible = None,
    ) -> Sequence[ScheduleEntry]:
        """By id (as text), behind `after`. `workflow`: its own, and those of subjects that start it.

        `of_subjects`: without those of definitions. `with_calendar`: only those whose due times follow a calendar.
        """
        ...

    async def get_schedule(self, schedule_id: str) -> ScheduleEntry | None: ...

    async def create_schedule(
        self, entry: ScheduleEntry, *, request: Request | None = None
    ) -> tuple[ScheduleEntry, bool]:
        """Stores a schedule of a subject; returns it, and whether it is new.

        If an active schedule of the subject has the same dedupe key, which is not empty, returns that one. A repeated
        request returns the same schedule, as it is now, and the same flag. Raises RequestReusedError; ValueError for a
        schedule without a subject.
        """
        ...

    async def schedule_of_request(self, request: Request) -> tuple[ScheduleEntry, bool] | None:
        """The result of `create_schedule` if this request was made before. Raises RequestReusedError."""
        ...

    async def renew_schedule(self, before: ScheduleEntry, after: ScheduleEntry) -> bool:
        """Replaces the rule and the next due time of a schedule if it still equals `before`; whether it did."""
        ...

    async def cancel_schedule(self, schedule_id: str, *, at: datetime) -> ScheduleEntry | None:
        """The schedule as it is now; None if no subject has it. A schedule that is not active stays as it is."""
        ...

    async def cancel_by_subject(self, subject: str, *, at: datetime) -> int:
        """Cancels the active schedules of the subject; returns their number."""
        ...

    async def forget_schedules(self, before: datetime) -> int:
        """Removes schedules of subjects that ended or were cancelled before then; returns their number."""
        ...


class FireLedger(Protocol):
    """One line for each due time that was decided."""

    async def fire(self, firing: Firing) -> Fired | None:
        """Saves the decision on due times if the schedule still equals `before`; else saves nothing and returns None.

        One transaction, which may share its commit: it advances the schedule, and writes the lines and the runs. A due
        time that has a line keeps it and gets no second run. Raises ValueError if parts are of different schedules;
        RunGoneError as `create_run` does.
        """
        ...

    async def backfill(
        self, line: Fire, run: Run, *, again: bool, request: Request | None = None
    ) -> tuple[str, Run | None]:
        """Stores the run of a due time of the past; returns the id of the run that the due time has, and the new run.

        One transaction. If the due time has a run of its own, which it does not only share with a later one, nothing is
        stored, unless `again`. The line of a due time without a run of its own is replaced by `line`. A repeated
        request returns the run that it made, as not new. Raises RequestReusedError; RunGoneError as `create_run` does.
        """
        ...

    async def own_runs(self, schedule_id: str, first: datetime, last: datetime) -> Mapping[datetime, str]:
        """The due times from `first` to `last`, both included, that have a run of their own, each with its id.

        A due time counts while its run or its line is kept.
        """
        ...

    async def fires(
        self,
        *,
        schedule_id: str = "",
        workflow: str = "",
        before: datetime | None = None,
        before_schedule: str = "",
        after: datetime | None = None,
        limit: int = 100,
        visible: Visible = None,
    ) -> Sequence[Fire]:
        """Ledger lines, latest due time first, then by schedule; due strictly between `after` and `before`.

        `before_schedule` also includes lines due at `before` whose schedule has a lower id: it continues a page that
        ended with that line.
        """
        ...

    async def forget_fires(self, before: datetime, keep: int) -> int:
        """Removes lines due and written before then, and all but the newest `keep` of each schedule.

        Returns their number.

        Runs several transactions, so that other writers do not wait long.
        """
        ...
