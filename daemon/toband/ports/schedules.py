"""What the store keeps of schedules, and of what became of their due times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from toband.domain.schedule_model import Fire, ScheduleEntry
from toband.ports.records import Fired, Firing, Request


class ScheduleStore(Protocol):
    """The part of a store that knows when things are due.

    An entry is active as long as it is not cancelled and still has a due time to come; one that is due whenever the
    daemon starts always has. Those of definitions are stored and removed with them, see WorkflowText.
    """

    async def earliest_alarm(self, *, after: datetime | None = None) -> datetime | None:
        """When somebody has to look at a schedule next, later than `after`; None: there is nothing to come."""
        ...

    async def due_schedules(
        self,
        now: datetime,
        *,
        since: datetime | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 200,
    ) -> Sequence[ScheduleEntry]:
        """Those that somebody has to look at by now, by their alarm and id; none with an alarm before `since`.

        `after`: what follows on a page that ended with that alarm and id.
        """
        ...

    async def decided_ahead(self, now: datetime) -> tuple[int, datetime | None]:
        """How many of those that go on have a line for a due time after now, and the latest of these due times."""
        ...

    async def start_schedules(self, *, after: str = "", limit: int = 200) -> Sequence[ScheduleEntry]:
        """Those that are due whenever the daemon starts, in order of id, from behind `after` on."""
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
    ) -> Sequence[ScheduleEntry]:
        """In order of id (as text), those behind `after`. `workflow`: its own and those of subjects that start it.

        `of_subjects`: none that came with a definition.
        """
        ...

    async def get_schedule(self, schedule_id: str) -> ScheduleEntry | None: ...

    async def fire(self, firing: Firing) -> Fired | None:
        """Saves what was decided about due times, if the schedule is still as `before` says; else None, and nothing is.

        One transaction, which many share: the schedule moves on, the lines and the runs are written. A due time that
        has a line keeps it and gets no second run. Raises ValueError if not all of it is of one schedule; RunGoneError
        as `create_run` does.
        """
        ...

    async def create_schedule(
        self, entry: ScheduleEntry, *, request: Request | None = None
    ) -> tuple[ScheduleEntry, bool]:
        """Stores one that is bound to a subject; answers it, and whether it is new.

        If an active one of the subject has the same dedupe key, which is not empty, that one is the answer. A repeated
        request answers what the first one did: the schedule as it is now, and whether it was new then. Raises
        RequestReusedError; ValueError if it has no subject.
        """
        ...

    async def schedule_of_request(self, request: Request) -> tuple[ScheduleEntry, bool] | None:
        """What `create_schedule` answers to this request if it was made before. Raises RequestReusedError."""
        ...

    async def cancel_schedule(self, schedule_id: str, *, at: datetime) -> ScheduleEntry | None:
        """The entry as it is now; None if no subject has one with that id. One that is not active stays as it is."""
        ...

    async def cancel_by_subject(self, subject: str, *, at: datetime) -> int:
        """Cancels all of its active ones; answers how many."""
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
    ) -> Sequence[Fire]:
        """Lines of the ledger, those due last first, then by schedule; due strictly between `after` and `before`.

        With `before_schedule` also those due at `before` whose schedule has a lower id: what follows on a page that
        ended with that line.
        """
        ...

    async def forget_schedules(self, before: datetime) -> int:
        """Removes those of subjects that were cancelled before then, or had their last due time before; how many."""
        ...

    async def forget_fires(self, before: datetime, keep: int) -> int:
        """Removes lines that were due before then, and all but the newest `keep` of each schedule; answers how many.

        In several transactions, so that nobody has to wait long.
        """
        ...
