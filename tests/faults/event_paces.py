"""Bursts of events that start one run together, and triggers that start few runs in a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from faults.event_drains import Drained
from faults.event_outcome import Outcome, payload_of, shown
from faults.listeners import Listening, Pace
from toban.v1 import event_pb2, run_pb2, workflow_pb2

_STARTED = event_pb2.EVENT_RUN_OUTCOME_STARTED
_Row = tuple[event_pb2.Event, event_pb2.EventRun]


def coalesced(witness: Path) -> dict[str, list[int]]:
    """How many events each run of a burst stands for, as its step said, each time that it was executed."""
    found: dict[str, list[int]] = defaultdict(list)
    if witness.exists():
        for line in witness.read_text().splitlines():
            run, count = line.split()
            found[run].append(int(count))
    return dict(found)


def check_paces(workflows: Mapping[str, Listening], outcome: Outcome, drains: Sequence[Drained]) -> Iterator[str]:
    """Each event of a burst is in one run, of the last one, when its time has come; and no trigger starts too often."""
    for workflow in workflows.values():
        pace = workflow.pace
        if pace is None:
            continue
        by_key: dict[Any, list[_Row]] = defaultdict(list)
        for event in outcome.events:
            for row in event.runs:
                if row.workflow == workflow.name:
                    by_key[payload_of(event).get(pace.key)].append((event, row))
        for rows in by_key.values():
            yield from _check_bursts(pace, rows, outcome, drains) if pace.quiet else _check_throttle(pace, rows)


def _check_bursts(pace: Pace, rows: Sequence[_Row], outcome: Outcome, drains: Sequence[Drained]) -> Iterator[str]:
    burst: list[event_pb2.Event] = []
    for (event, row), (following, _) in pairwise([*rows, (event_pb2.Event(), event_pb2.EventRun())]):
        burst.append(event)
        if row.outcome != _STARTED:
            if row.reason != workflow_pb2.NOT_STARTED_REASON_DEBOUNCED:
                yield f"the burst of {shown(event)} came to no run"
            elif not following.id or row.later_event_id != following.id:
                yield f"{shown(event)} leaves its burst to event {row.later_event_id} instead of {following.id}"
            continue
        run = outcome.runs.get(row.run_id)
        if run is not None:
            yield from _check_end(pace, burst, following, run, drains)
            said = outcome.coalesced.get(run.id, [])
            if said != [len(burst)] and not outcome.cut_off(run):
                yield f"run {run.id} says of how many events it is: {said}, and it is of {len(burst)}"
        burst = []


def _check_end(
    pace: Pace,
    burst: Sequence[event_pb2.Event],
    following: event_pb2.Event,
    run: run_pb2.Run,
    drains: Sequence[Drained],
) -> Iterator[str]:
    first, last, made = _decided(burst[0]), _decided(burst[-1]), run.created_at.ToMicroseconds() / 1e6
    due = min(last + pace.quiet, first + pace.longest)
    # Of a burst that is over its time, events are still part until its run is made.
    if made < due:
        yield f"the burst of {shown(burst[-1])} ended {due - made:.3f} s too early"
    if following.id and _decided(following) < made:
        yield f"{shown(following)} came before the run of the burst of {shown(burst[-1])}, and is not part of it"
    for drained in drains:
        if drained.begun < made < drained.ended:
            yield f"the burst of {shown(burst[-1])} ended while the daemon drained"


def _check_throttle(pace: Pace, rows: Sequence[_Row]) -> Iterator[str]:
    started: list[float] = []
    for event, row in rows:
        at = _decided(event)
        count = sum(before > at - pace.per for before in started)
        if row.outcome == _STARTED:
            started.append(at)
            if count >= pace.limit:
                yield f"{shown(event)} started {row.workflow} after {count} others within {pace.per:g} s"
        elif row.reason == workflow_pb2.NOT_STARTED_REASON_THROTTLED and count < pace.limit:
            yield f"{shown(event)} was held back from {row.workflow} after {count} others within {pace.per:g} s"


def _decided(event: event_pb2.Event) -> float:
    return event.resolved_at.ToMicroseconds() / 1e6
