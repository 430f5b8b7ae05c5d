"""The daemon for people: version, load, recovery, definition files and health."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from toban.cli.human_text import clock, enum_word, span
from toban.cli.render.output import fields
from toban.quantity_text import counted
from toban.v1 import system_pb2

if TYPE_CHECKING:
    from toban.cli.session import Session

_MOST_WARNINGS: Final = 10


def report_daemon(here: Session, info: system_pb2.GetInfoResponse, address: str) -> None:
    """Writes the whole report."""
    fields(
        here,
        [
            ("address", address),
            ("version", info.version),
            ("pid", str(info.pid)),
            ("started", clock(info.started_at)),
            ("uptime", span(info.started_at, None, datetime.now(UTC))),
            ("state directory", info.state_dir),
            ("database", enum_word(system_pb2.DatabaseKind, info.database)),
            ("listening on", ", ".join(info.listen)),
            ("workflows", str(info.workflows)),
            ("jobs", str(info.jobs) if info.jobs else ""),
            ("schedules", _schedules(info)),
            ("pending events", str(info.pending_events or "")),
            ("active runs", str(info.active_runs)),
            ("event runs", _event_runs(info)),
            ("running processes", _running(info)),
            ("cgroup", info.cgroup),
            ("recovery", _recovery(info.recovery) if info.HasField("recovery") else ""),
            *_definition_files(info),
            *_health(info),
        ],
    )


def _schedules(info: system_pb2.GetInfoResponse) -> str:
    if info.draining:
        return f"{info.schedules}, draining: they start no runs"
    if not info.schedules:
        return ""
    due = f", next due {clock(info.next_due)}" if info.HasField("next_due") else ""
    return f"{info.schedules}{due}"


def _event_runs(info: system_pb2.GetInfoResponse) -> str:
    """Active and waiting runs of events; empty for a daemon that has no events."""
    if not info.event_concurrency:
        return ""
    waiting = f", {info.event_runs_waiting} waiting" if info.event_runs_waiting else ""
    return f"{info.event_runs} of at most {info.event_concurrency}{waiting}"


def _running(info: system_pb2.GetInfoResponse) -> str:
    most = f" of at most {info.max_attempts_running}" if info.max_attempts_running else ""
    waiting = f", {info.waiting_attempts} waiting" if info.waiting_attempts else ""
    return f"{info.running_processes}{most}{waiting}"


def _recovery(recovery: system_pb2.Recovery) -> str:
    parts = [
        (recovery.reattached, "reattached"),
        (recovery.finished_meanwhile, "ended while the daemon was down"),
        (recovery.relaunched, "restarted"),
        (recovery.lost, "lost"),
        (recovery.cleaned_up, "cleaned up"),
    ]
    processes = [f"{number} {outcome}" for number, outcome in parts if number]
    text = counted(recovery.runs, "unfinished run")
    if processes:
        text += f"; processes: {', '.join(processes)}"
    return text if recovery.HasField("finished_at") else f"{text}; in progress"


def _definition_files(info: system_pb2.GetInfoResponse) -> list[tuple[str, str]]:
    """A line for the count, one for each problem of a broken file, and the first warnings."""
    if not info.definition_file_count:
        return []
    bad = system_pb2.DEFINITION_FILE_STATE_BROKEN
    broken = [file for file in info.definition_files if file.state == bad]
    warned = [file for file in info.definition_files if file.state != bad and file.problems]
    summary = str(info.definition_file_count)
    summary += f", {len(broken)} broken" if broken else ""
    summary += f", {len(warned)} with warnings" if warned else ""
    lines = [("definition files", summary)]
    for file in broken:
        lines += [("  broken", problem) for problem in file.problems]
    warnings = [problem for file in warned for problem in file.problems]
    lines += [("  warning", problem.replace(": warning: ", ": ", 1)) for problem in warnings[:_MOST_WARNINGS]]
    if len(warnings) > _MOST_WARNINGS:
        lines.append(("  warnings", f"{len(warnings) - _MOST_WARNINGS} more: see `toban system info -o json`"))
    return lines


def _health(info: system_pb2.GetInfoResponse) -> list[tuple[str, str]]:
    """A line for the overall health, and one for each unhealthy condition, worst first."""
    if not info.HasField("health"):
        return []
    lines = [("health", enum_word(system_pb2.HealthStatus, info.health.status))]
    for each in info.health.conditions:
        status = enum_word(system_pb2.HealthStatus, each.status)
        lines.append((f"  {each.name}", f"{status} since {clock(each.since)}: {each.detail}"))
    return lines
