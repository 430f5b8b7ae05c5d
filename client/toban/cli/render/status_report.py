"""Everything in short for one screen: the daemon, the workflows, and the runs that failed lately."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from toban.cli.human_text import clock, enum_word, moment, one_line, span
from toban.cli.render.output import Column, paint, table
from toban.cli.render.run_text import run_name, run_state, run_style
from toban.cli.render.title_text import title_column
from toban.quantity_text import counted, duration_text
from toban.v1 import run_pb2, system_pb2, workflow_pb2

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from toban.cli.session import Session

_HEALTH: Final = {
    system_pb2.HEALTH_STATUS_OK: "green",
    system_pb2.HEALTH_STATUS_DEGRADED: "yellow",
    system_pb2.HEALTH_STATUS_REFUSING: "red",
}
_MOST_COUNTED: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """`summaries` are the chosen workflows; `chosen`: filters chose them. `more`: the list was cut."""

    info: system_pb2.GetInfoResponse
    overview: workflow_pb2.GetOverviewResponse
    summaries: Sequence[workflow_pb2.WorkflowSummary]
    chosen: bool
    more: bool


def report_status(here: Session, status: Status) -> None:
    """Writes the whole report."""
    now = datetime.now(UTC)
    _daemon(here, status.info, now)
    _totals(status.overview)
    if status.summaries:
        print()
        _workflows(here, status, now)
    elif status.chosen:
        print("\nno workflows match")
    else:
        print("\nno workflows yet: `toban apply FILE` stores one, then `toban run NAME` starts it")
    if not status.chosen:
        _failures(here, status.overview, now)


def _daemon(here: Session, info: system_pb2.GetInfoResponse, now: datetime) -> None:
    health = enum_word(system_pb2.HealthStatus, info.health.status)
    parts = [
        f"toband {one_line(info.version)}",
        paint(here, f"health {health}", _HEALTH.get(info.health.status, "")),
        f"up {span(info.started_at, None, now)}",
    ]
    if info.draining:
        parts.append(paint(here, "draining: schedules and events start no runs", "yellow"))
    print(", ".join(parts))
    for each in info.health.conditions:
        print(paint(here, one_line(f"  {each.name}: {each.detail}"), _HEALTH.get(each.status, "")))


def _totals(overview: workflow_pb2.GetOverviewResponse) -> None:
    workflows = counted(overview.workflow_count, "workflow")
    if overview.job_count:
        workflows += f", {counted(overview.job_count, 'job')}"
    if overview.disabled_count:
        workflows += f", {overview.disabled_count} disabled"
    failed = f"{overview.failure_count}{'+' if overview.failure_count >= _MOST_COUNTED else ''}"
    print(
        f"{workflows}; {counted(overview.running + overview.waiting, 'active run')}: {overview.running} running, "
        f"{overview.waiting} waiting; {failed} failed since {clock(overview.failed_since)}"
    )


def _workflows(here: Session, status: Status, now: datetime) -> None:
    titles = title_column(status.summaries, lambda each: each.name, lambda each: each.title)
    columns: list[Column[workflow_pb2.WorkflowSummary]] = [
        Column("WORKFLOW", lambda each: each.name, lambda _: "bold"),
        *(replace(column, optional=True) for column in titles),
        Column("LAST RUN", lambda each: f"#{each.last_run.number}" if _ran(each) else "-", optional=True),
        Column("STATE", _state, lambda each: run_style(each.last_run) if _ran(each) else "dim"),
        Column("AGE", lambda each: _age(each.last_run, now) if _ran(each) else "-"),
        Column("RUNNING", lambda each: str(each.running or "-"), optional=True),
        Column("WAITING", lambda each: str(each.waiting or "-"), optional=True),
        Column("SUCCESS", _rate, optional=True),
        Column("DUE", lambda each: _left(each, now), lambda each: "" if each.enabled else "yellow"),
        Column("DUE AT", _due, optional=True),
    ]
    table(here, status.summaries, columns)
    if status.more:
        left = status.overview.workflow_count + status.overview.job_count - len(status.summaries)
        count = f"{left} more" if left > 0 and not status.chosen else "more"
        print(f"… and {count}: `toban status NAME`, --label and --limit choose, `toban workflows list` lists all")


def _ran(each: workflow_pb2.WorkflowSummary) -> bool:
    return each.HasField("last_run")


def _state(each: workflow_pb2.WorkflowSummary) -> str:
    return enum_word(run_pb2.RunState, each.last_run.state) if _ran(each) else "never ran"


def _age(run: run_pb2.Run, now: datetime) -> str:
    """How long ago it ended, or for how long it has been active."""
    if run.HasField("finished_at"):
        return f"{span(run.finished_at, None, now)} ago"
    return f"for {span(run.started_at if run.HasField('started_at') else run.created_at, None, now)}"


def _rate(each: workflow_pb2.WorkflowSummary) -> str:
    return f"{each.succeeded_runs}/{each.rated_runs}" if each.rated_runs else "-"


def _left(each: workflow_pb2.WorkflowSummary, now: datetime) -> str:
    """The time until it is due."""
    due = moment(each.next_due)
    if not each.enabled:
        return "disabled"
    if due is None:
        return "-"
    return f"in {duration_text(due - now)}" if due > now else "now"


def _due(each: workflow_pb2.WorkflowSummary) -> str:
    return f"{_wall(each.next_due, each.next_due_zone)} {each.next_due_zone}" if each.HasField("next_due") else "-"


def _wall(at: Timestamp, zone: str) -> str:
    """Date and time on the clocks of the zone; in UTC if this machine does not know it."""
    here = at.ToDatetime(tzinfo=UTC)
    with suppress(OverflowError, ZoneInfoNotFoundError, ValueError, OSError):
        return f"{here.astimezone(ZoneInfo(zone)):%m-%d %H:%M}"
    return f"{here:%m-%d %H:%M} UTC of"


def _failures(here: Session, overview: workflow_pb2.GetOverviewResponse, now: datetime) -> None:
    if not overview.failures:
        return
    print()
    print(paint(here, f"Failed since {clock(overview.failed_since)}:", "bold"))
    columns: list[Column[run_pb2.Run]] = [
        Column("RUN", run_name, lambda _: "bold"),
        Column("STATE", run_state, run_style),
        Column("ENDED", lambda run: f"{span(run.finished_at, None, now)} ago"),
        Column("ERROR", lambda run: run.error_message, folds=True),
    ]
    table(here, overview.failures, columns)
    if overview.failure_count > len(overview.failures):
        print(f"… and {overview.failure_count - len(overview.failures)} more: `toban runs list --state failed`")
    print(f"`toban runs show {run_name(overview.failures[0])}` shows what failed")
