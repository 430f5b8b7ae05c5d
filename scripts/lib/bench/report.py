"""Formats the results for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scripts.lib.bench.durability import Proof
from scripts.lib.bench.results import Result, Series
from scripts.lib.bench.step_times import Line, StepTimes

_HEAD = ("", "floor", "ours", "ratio", "target", "")


def table(machine: Mapping[str, Any], proof: Proof, results: Sequence[Result], *, judged: bool) -> str:
    rows = [_HEAD, *(_row(result, judged) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [_machine(machine), _proof(proof), ""]
    for row in rows:
        cells = [
            cell.ljust(width) if column in (0, len(_HEAD) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.append("")
    for result in results:
        lines.append(f"{result.name}: {result.what}")
        if result.floor is not None:
            lines.append(f"    floor {_spread(result.floor)}, ours {_spread(result.ours)}")
        else:
            lines.append(f"    {_spread(result.ours)}")
        for name, series in result.more.items():
            lines.append(f"    {name}: {_figure(series.median, series.unit)}{_against(result, series)}")
    return "\n".join(lines)


def step_times(machine: Mapping[str, Any], times: StepTimes) -> str:
    lines = [
        _machine(machine),
        "",
        f"chain of {times.steps} steps, {times.runs} runs: {times.per_step:.2f} ms per step",
        "",
        "from one decision to the next, ms   median    p90   mean",
        *map(_line, times.phases),
        "",
        "syncs, each; they were looked at and took a little longer for it",
        *map(_line, times.syncs),
        "",
        "processor time per step, ms",
        *(f"  {name:32}  {used:7.2f}" for name, used in times.processor.items()),
    ]
    return "\n".join(lines)


def _line(line: Line) -> str:
    return f"  {line.name:32}  {line.median:6.2f} {line.p90:6.2f} {line.mean:6.2f}   {line.what}"


def _row(result: Result, judged: bool) -> tuple[str, ...]:
    holds = {True: "holds", False: "MISSED", None: ""}[result.holds] if judged else ""
    return (
        result.name,
        _figure(result.floor.median, result.floor.unit) if result.floor is not None else "",
        _figure(result.ours.median, result.ours.unit),
        f"{result.ratio:.3g}" if result.ratio is not None else "",
        str(result.target) if result.target is not None else "",
        holds,
    )


def _machine(machine: Mapping[str, Any]) -> str:
    text = (
        f"{machine['cpus']} processors ({machine['cpu']}), {machine['kernel']}, "
        f"Python {machine['python']}, {machine['filesystem']}, {machine['sync_ms']} ms per sync"
    )
    if machine["load"] > machine["cpus"] / 4:
        text += f"\nthe machine was busy with something else: its load was {machine['load']}"
    return text


def _proof(proof: Proof) -> str:
    counts = ", ".join(f"{count.counted} {count.what}" for count in proof.counts)
    return f"synced in a chain of {proof.steps}: {counts}"


def _figure(value: float, unit: str) -> str:
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} {unit}"


def _spread(series: Series) -> str:
    lowest, highest = min(series.samples), max(series.samples)
    if len(series.samples) == 1:
        return _figure(lowest, series.unit)
    return f"{_figure(lowest, series.unit)} to {_figure(highest, series.unit)}"


def _against(result: Result, series: Series) -> str:
    """Ours compared with another floor."""
    if not result.compared or result.floor is None or series.unit != result.ours.unit:
        return ""
    return f" (ours is {result.ours.median / series.median:.3g} of it)"
