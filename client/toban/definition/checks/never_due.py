"""Warns about schedules that will never be due after a given time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from toban.definition.model.workflow import DefinitionKind
from toban.definition.source.problem_collector import join
from toban.definition.source.problems import Document, Problem
from toban.definition.timing.cron import REBOOT
from toban.definition.timing.due import next_due
from toban.definition.timing.schedule_spec import Schedule

# Replaces a zone that only the daemon knows; the leeway covers the difference between any two zones.
_ANY_ZONE = "UTC"
_LEEWAY = timedelta(days=1)


def run_out(document: Document, file: str, now: datetime) -> list[Problem]:
    """A warning for each schedule that is not due at `now` or later; no error, since an old definition may be stored
    again.
    """
    workflow = document.workflow
    if workflow is None:
        return []
    is_job = document.kind is DefinitionKind.JOB
    path = join("jobs", document.name, "schedule") if is_job else "schedule"
    several = len(workflow.schedules) > 1
    return [
        Problem(
            message=why,
            path=join(path, index) if several else path,
            line=document.line,
            column=1,
            file=file,
            warning=True,
        )
        for index, schedule in enumerate(workflow.schedules)
        if (why := _why_never(schedule, now))
    ]


def _why_never(schedule: Schedule, now: datetime) -> str:
    """Empty: it will be due, or that is unknown."""
    if schedule.at is not None:
        return f"{_shown(schedule.at)} is in the past: the schedule will never run" if schedule.at < now else ""
    if schedule.end is None:
        return ""
    if schedule.end < now:
        return f"its end {_shown(schedule.end)} is in the past: the schedule will never run"
    if schedule.cron == REBOOT or not (schedule.cron or schedule.every):
        return ""
    if "file" in schedule.calendar:
        return ""  # only the daemon reads it
    leeway = timedelta() if schedule.timezone else _LEEWAY
    zone = ZoneInfo(schedule.timezone or _ANY_ZONE)
    since = max(now, schedule.start or now) - leeway - timedelta(microseconds=1)
    found = next_due(_open(schedule, leeway), zone=zone, after=since, stored_at=now)
    return "no due time is before its end: the schedule will never run" if found is None else ""


def _open(schedule: Schedule, leeway: timedelta) -> Schedule:
    """The schedule with a wider span. An interval counts from its start, in any zone."""
    if not leeway or schedule.every is not None or schedule.end is None:
        return schedule
    start = None if schedule.start is None else schedule.start - leeway
    return replace(schedule, start=start, end=schedule.end + leeway)


def _shown(at: datetime) -> str:
    return at.isoformat(sep=" ", timespec="seconds" if at.second else "minutes")
