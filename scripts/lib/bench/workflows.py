"""The measured workflows."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

CONCURRENCY = 8


def chain(program: str, steps: int) -> str:
    lines = [f"  - {{name: s{number}, {_exec(program)}}}" for number in range(steps)]
    return _workflow("chain", "one after the other", lines)


def fanout(program: str, steps: int) -> str:
    lines = [f"  s{number}: {{{_exec(program)}}}" for number in range(steps)]
    return _workflow("fanout", "side by side", lines, f"concurrency: {CONCURRENCY}")


def layers(program: str, name: str, steps: int, width: int) -> str:
    """Layers of `width` steps; each step waits for two of the layer before."""
    lines = []
    for number in range(steps):
        layer, place = divmod(number, width)
        before = (layer - 1) * width
        needed = [f"s{before + place}", f"s{before + (place + 1) % width}"] if layer else []
        waits = f", depends_on: {json.dumps(needed)}" if needed else ""
        lines.append(f"  s{number}: {{{_exec(program)}{waits}}}")
    return _workflow(name, f"{steps} steps, {width} wide", lines)


def items(program: str, name: str, count: int) -> str:
    """One step for many items, eight at a time."""
    many = f"for_each: {json.dumps(list(range(count)))}, max_parallel: {CONCURRENCY}"
    return _workflow(name, f"{count} items", [f"  - {{name: each, {_exec(program)}, {many}}}"])


def log(source: Path) -> str:
    return _workflow("log", "prints a file", [f"  - {{name: print, {_exec('cat', str(source))}}}"])


def printing(name: str, source: Path, secrets: int) -> str:
    """Prints a file, with that many secrets in its environment."""
    env = {f"SECRET_{number}": f"{{{{ secrets.{secret_name(number)} }}}}" for number in range(secrets)}
    return _workflow(
        name, "prints a file", [f"  - {{name: print, {_exec('cat', str(source))}, env: {json.dumps(env)}}}"]
    )


def secret_name(number: int) -> str:
    return f"bench_{number}"


def single(program: str) -> str:
    return _workflow("single", "one step", [f"  - {{name: only, {_exec(program)}}}"])


def listening(program: str, event_type: str) -> str:
    lines = [f"  - {{name: only, {_exec(program)}}}"]
    on = f"on: {{event: {event_type}, condition: event.payload.number >= 0}}"
    return _workflow("listening", "one step", lines, on)


def scheduled(program: str, number: int, schedule: str) -> str:
    """One of many that differ only by name; `schedule` is written as in a definition."""
    lines = [f"  - {{name: only, {_exec(program)}}}"]
    return _workflow(scheduled_name(number), "one step", lines, f"schedule: {schedule}")


def scheduled_name(number: int) -> str:
    return f"scheduled-{number:05}"


def far(number: int, today: date) -> str:
    """A crontab expression that is not due within the next two months, at another minute for each."""
    day = today + timedelta(days=60 + number % 240)
    minute, hour = number % 60, number // 60 % 24
    # Every month has a 28th.
    return json.dumps(f"{minute} {hour} {min(day.day, 28)} {day.month} *")


def _exec(program: str, *arguments: str) -> str:
    return f"job_type: exec, target: {json.dumps(program)}, args: {json.dumps(arguments)}"


def _workflow(name: str, description: str, steps: list[str], *more: str) -> str:
    return "\n".join([f"name: {name}", f"description: {description}", *more, "steps:", *steps, ""])
