"""Measures deciding which of many workflows an event starts, without a daemon: event_resolution DATABASE COMMAND …

    fill COUNT CANDIDATES      stores that many workflows, each of which listens to one event type
    measure CANDIDATES EVENTS  decides EVENTS events, alternating with the bare evaluation of the same conditions

Every type has CANDIDATES listening workflows, each with its own condition. Prints JSON; times are in seconds, and
those of many events are lists.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cel_expr_python import cel

from toban.definition import EventTrigger
from toband.domain.emitted_events import Emitted, EventSource
from toband.engine.events.event_matching import Candidate, EventMatcher
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.ports import WorkflowText
from toband.sandbox.worker_pool import ProcessSandbox
from toband.store import SqlStore

_STORED_AT_ONCE = 500
_TEXT = WorkflowText(
    name="", title="", description="one step", labels={}, enabled=True, source="", parsed={}, base_dir="/"
)


def event_type(number: int) -> str:
    return f"BENCH_{number}"


def condition(number: int) -> str:
    """The condition of the workflow with that number among the listeners of a type: all differ."""
    amount = 40 * number
    shapes = (
        f"event.payload.amount > {amount}",
        f'event.payload.kind == "kind{number % 4}" && event.payload.amount >= {amount}',
        f'"tag{number}" in event.payload.tags',
        f'event.payload.customer.region.startsWith("r{number}") || event.payload.score < {number}.5',
        f'event.payload.urgent && event.payload.attempts < {number} && event.payload.owner != ""',
    )
    return shapes[number % len(shapes)]


def payload(number: int) -> dict[str, Any]:
    """The payload of an event: ten fields, different for each event."""
    return {
        "id": f"order-{number}",
        "kind": f"kind{number % 4}",
        "amount": number * 37 % 4000,
        "score": number % 100 / 2,
        "urgent": number % 3 == 0,
        "attempts": number % 100,
        "owner": f"owner-{number % 7}",
        "tags": [f"tag{number % 100}", f"tag{(number + 2) % 100}", "all"],
        "customer": {"name": f"customer {number}", "region": f"r{number % 100}"},
        "at": "2026-11-16T09:00:00+09:00",
    }


def workflow(number: int, candidates: int) -> WorkflowText:
    kind, place = divmod(number, candidates)
    trigger = EventTrigger(events=(event_type(kind),), condition=condition(place), priority=_priority(place))
    name = _name(place)
    return replace(_TEXT, name=f"{name}-{kind}", source=f"# {name}", triggers=(trigger,))


def emitted(kind: int, number: int) -> Emitted:
    return Emitted(
        id=f"event-{number}",
        type=event_type(kind),
        payload=payload(number),
        at=datetime.now(UTC),
        source=EventSource.CLIENT,
    )


async def fill(store: SqlStore, count: int, candidates: int) -> dict[str, Any]:
    now, began = datetime.now(UTC), time.perf_counter()
    for first in range(0, count, _STORED_AT_ONCE):
        numbers = range(first, min(first + _STORED_AT_ONCE, count))
        texts = (workflow(number, candidates) for number in numbers)
        await asyncio.gather(*(store.create_workflow(text, at=now) for text in texts))
    return {"seconds": time.perf_counter() - began}


async def measure(store: SqlStore, candidates: int, events: int) -> dict[str, Any]:
    # None of the conditions is costly: no process is started.
    matching = EventMatcher(store, ExpressionEvaluator(ProcessSandbox()))
    first = await _timed(matching, emitted(0, 0))
    another = await _timed(matching, emitted(1, 0))
    bare = _Bare(candidates)
    ours, floor = [], []
    for number in range(events):
        event = emitted(0, number)
        took, found = bare.evaluate(event)
        floor.append(took)
        began = time.perf_counter()
        answer = await matching.judge(event)
        ours.append(time.perf_counter() - began)
        _check(answer, found)
    # Skip the first sample of each: it includes one-time costs.
    return {
        "first": first,
        "first_of_type": another,
        "ours": ours[1:] or ours,
        "floor": floor[1:] or floor,
    }


async def _timed(matching: EventMatcher, event: Emitted) -> float:
    began = time.perf_counter()
    await matching.judge(event)
    return time.perf_counter() - began


class _Bare:
    """The floor: compiled programs, and data that was converted before the measurement."""

    def __init__(self, candidates: int) -> None:
        self._environment = cel.NewEnv(variables={"event": cel.Type.DYN})
        texts = map(condition, range(candidates))
        self._programs = [self._environment.compile(text) for text in texts]

    def evaluate(self, event: Emitted) -> tuple[float, Sequence[bool]]:
        """Seconds, and the result of each condition."""
        prepared = self._environment.Activation({"event": event.seen()})
        programs = self._programs
        began = time.perf_counter()
        found = [program.eval(prepared).value() for program in programs]
        return time.perf_counter() - began, found


def _check(answer: Sequence[Candidate], found: Sequence[bool]) -> None:
    """Checks that the started workflows and their order match the bare conditions."""
    true = [place for place, value in enumerate(found) if value]
    expected = sorted(map(_name, true), key=lambda name: (-_priority(_place(name)), name))
    started = [candidate.workflow for candidate in answer if candidate.matches]
    if len(answer) != len(found) or list(map(_unnumbered, started)) != expected:
        raise SystemExit(f"what was decided is not what the conditions say: {started}")


def _priority(place: int) -> int:
    """Several share a priority, so that names decide too."""
    return place // 3 % 201 - 100


def _name(place: int) -> str:
    return f"listens-{place:05}"


def _place(name: str) -> int:
    return int(name.rsplit("-", 1)[1])


def _unnumbered(workflow: str) -> str:
    """The name without its event type."""
    return workflow.rsplit("-", 1)[0]


async def main(database: str, command: str, *arguments: str) -> dict[str, Any]:
    store = SqlStore(f"sqlite:///{database}")
    await store.open()
    try:
        numbers = [int(argument) for argument in arguments]
        work = {"fill": fill, "measure": measure}[command]
        return await work(store, *numbers)
    finally:
        await store.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
