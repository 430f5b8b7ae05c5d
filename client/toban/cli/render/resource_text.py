"""Text for the resource use of processes: CPU, memory, I/O, and a curve of memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from toban.cli.render.output import Column, paint, table
from toban.cli.render.step_text import step_order
from toban.cli.render.title_text import title_column
from toban.cli.session import Session
from toban.quantity_text import duration_text, size_text
from toban.v1 import run_pb2

if TYPE_CHECKING:
    from toban.sdk import SyncClient

_BARS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_BARS: Final = "_.-:=+*#"
_CURVE_WIDTH: Final = 24
# Each takes a call.
_MOST: Final = 20


def sampled(client: SyncClient, run: run_pb2.Run) -> list[run_pb2.ProcessExecution]:
    """The last process of each step that has resource samples, with all its samples."""
    if not run.steps:
        return []
    attempts = {step.id: step.attempts for step in run.steps if not step.source_run}
    found = []
    for process in client.list_process_executions(run_id=run.id, page_size=1000):
        if process.attempt == attempts.get(process.step) and process.resources.peak_rss_bytes:
            found.append(client.get_process_execution(process.id, output=False))
            if len(found) == _MOST:
                break
    order = {step.id: step_order(step) for step in run.steps}
    return sorted(found, key=lambda process: order[process.step])


def show_resources(here: Session, processes: Sequence[run_pb2.ProcessExecution]) -> None:
    """Writes a table of resource use; nothing without processes."""
    if not processes:
        return
    print()
    print(paint(here, "Resource use:", "bold"))
    columns: list[Column[run_pb2.ProcessExecution]] = [
        Column("STEP", lambda process: process.step, lambda _: "bold"),
        *title_column(processes, lambda process: process.step, lambda process: process.step_title),
        Column("CPU", cpu),
        Column("MEMORY", memory),
        Column("PROCESSES", lambda process: f"{process.resources.peak_processes}"),
        Column("READ", lambda process: _last(process, "read_bytes"), optional=True),
        Column("WRITTEN", lambda process: _last(process, "written_bytes"), optional=True),
        Column("MEMORY OVER TIME", _curve),
    ]
    table(here, processes, columns)


def cpu(process: run_pb2.ProcessExecution) -> str:
    """The cores in use by a running process; the CPU time of an ended one."""
    if not process.HasField("finished_at"):
        samples = process.resources.samples
        return f"{samples[-1].cpu:.2f} cores" if samples else "-"
    used = process.resources
    return duration_text(used.user_time.ToTimedelta() + used.system_time.ToTimedelta())


def memory(process: run_pb2.ProcessExecution) -> str:
    """The peak memory, and the current memory of a running process."""
    used = process.resources
    peak = max(used.peak_rss_bytes, used.max_rss_bytes)
    if not peak:
        return "-"
    if not process.HasField("finished_at") and used.samples:
        return f"{size_text(used.samples[-1].rss_bytes)}, peak {size_text(peak)}"
    return f"peak {size_text(peak)}"


def _last(process: run_pb2.ProcessExecution, name: str) -> str:
    for sample in reversed(process.resources.samples):
        if sample.HasField(name):  # type: ignore[arg-type]
            return size_text(getattr(sample, name))
    return "-"


def _curve(process: run_pb2.ProcessExecution) -> str:
    return curve([sample.rss_bytes for sample in process.resources.samples])


def curve(values: Sequence[float]) -> str:
    """Bars from zero to the largest value; each bar shows the maximum of its share of the values."""
    most = max(values, default=0)
    if not most:
        return ""
    bars = _BARS if _unicode() else _PLAIN_BARS
    return "".join(bars[min(len(bars) - 1, int(value / most * len(bars)))] for value in _shares(values))


def _shares(values: Sequence[float]) -> Iterator[float]:
    width = min(_CURVE_WIDTH, len(values))
    for number in range(width):
        begin, end = number * len(values) // width, (number + 1) * len(values) // width
        yield max(values[begin:end])


def _unicode() -> bool:
    import sys

    try:
        _BARS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
