"""What the machine does for Toban now: running steps by their use of CPU and memory, slots and queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from toban.cli.human_text import enum_word, local, span, zone_name
from toban.cli.render.output import Column, paint, table
from toban.quantity_text import counted, size_text
from toban.v1 import run_pb2, system_pb2

if TYPE_CHECKING:
    from toban.cli.session import Session
    from toban.v1 import workflow_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`processes` are the running ones; those that use most come first."""

    info: system_pb2.GetInfoResponse
    overview: workflow_pb2.GetOverviewResponse
    processes: Sequence[run_pb2.ProcessExecution]


def cores(process: run_pb2.ProcessExecution) -> float:
    """CPU cores in use at the last sample; 0 before the first one."""
    samples = process.resources.samples
    return samples[-1].cpu if samples else 0.0


def resident(process: run_pb2.ProcessExecution) -> int:
    """Bytes of memory at the last sample; 0 before the first one."""
    samples = process.resources.samples
    return samples[-1].rss_bytes if samples else 0


def report_load(here: Session, load: Load, limit: int) -> None:
    """Writes the whole report, with at most `limit` steps."""
    now = datetime.now(UTC)
    info, overview, found = load.info, load.overview, load.processes
    health = enum_word(system_pb2.HealthStatus, info.health.status)
    print(f"toband {info.version}, health {health}, up {span(info.started_at, None, now)}, {_clock(now)}")
    print(
        f"runs: {overview.running} running, {overview.waiting} waiting; "
        f"slots: {info.running_processes} of {info.max_attempts_running} in use, {info.waiting_attempts} waiting"
        + (f"; events: {info.pending_events} pending" if info.pending_events else "")
    )
    used = sum(map(cores, found))
    own = info.load
    print(f"daemon: {own.cpu:.2f} CPU cores, {size_text(own.rss_bytes)} of memory")
    print(f"steps: {used:.2f} CPU cores, {size_text(sum(map(resident, found)))} of memory")
    print()
    if not found:
        print("no steps are running")
        return
    columns: list[Column[run_pb2.ProcessExecution]] = [
        Column("WORKFLOW", lambda each: each.workflow, lambda _: "bold"),
        Column("STEP", lambda each: each.step),
        Column("CPU", _cpu),
        Column("MEMORY", lambda each: size_text(resident(each)) if each.resources.samples else "-"),
        Column("PROCESSES", lambda each: _last(each, "processes"), optional=True),
        Column("TIME", lambda each: span(each.started_at, None, now)),
        Column("PID", lambda each: str(each.pid or "-"), optional=True),
        Column("COMMAND", lambda each: each.command[:60], optional=True),
    ]
    table(here, found[:limit], columns)
    if len(found) > limit:
        print(paint(here, f"… and {counted(len(found) - limit, 'more step')} with less", "dim"))


def _clock(now: datetime) -> str:
    now = local(now)
    return f"{now:%H:%M:%S} {zone_name(now)}"


def _cpu(process: run_pb2.ProcessExecution) -> str:
    return f"{cores(process):.2f}" if process.resources.samples else "-"


def _last(process: run_pb2.ProcessExecution, name: str) -> str:
    samples = process.resources.samples
    return str(getattr(samples[-1], name)) if samples else "-"
