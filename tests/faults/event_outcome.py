"""The daemon's final report on events, runs, schedules and definitions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from helpers.daemon import Daemon
from helpers.wait import wait_until
from toban.v1 import event_pb2, run_pb2, schedule_pb2, workflow_pb2

_ACTIVE = (run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the daemon says at the end. Events are in order."""

    events: list[event_pb2.Event]
    runs: dict[str, run_pb2.Run]
    schedules: list[schedule_pb2.Schedule] = field(default_factory=list)
    fires: list[workflow_pb2.Fire] = field(default_factory=list)
    versions: dict[str, list[str]] = field(default_factory=dict)
    """Digests of the texts that a workflow had, in order."""
    lives: int = 1
    """How often a daemon was started."""
    coalesced: dict[str, list[int]] = field(default_factory=dict)
    """Of runs of bursts: how many events each stands for, as its step says."""
    cuts: list[float] = field(default_factory=list)
    """When the power was cut: what was under way then has failed, and may not have emitted what it was to."""

    def of(self, *types: str) -> list[event_pb2.Event]:
        return [event for event in self.events if event.type in types]

    def cut_off(self, run: run_pb2.Run) -> bool:
        """Whether it failed because the machine went down."""
        began, ended = (at.ToMicroseconds() / 1e6 for at in (run.started_at, run.finished_at))
        went_down = any(began <= cut <= ended for cut in self.cuts)
        return run.state == run_pb2.RUN_STATE_FAILED and went_down


def payload_of(event: event_pb2.Event) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event.payload_json)
    return found


def ends_burst(event: event_pb2.Event) -> bool:
    """Whether it is the last one of a burst that has not ended."""
    waits = workflow_pb2.NOT_STARTED_REASON_DEBOUNCED
    return any(row.reason == waits and not row.later_event_id for row in event.runs)


def shown(event: event_pb2.Event) -> str:
    return f"event {event.sequence} {event.type} {event.payload_json} ({event.id}, depth {event.depth})"


# -- reading it


def settled(daemon: Daemon, workflows: Iterable[str]) -> Outcome:
    """When no schedule will be due any more, every event is decided and every run has ended."""
    wait_until(lambda: not _schedules(daemon, ended=False), "schedules do not end", 60)
    outcome = wait_until(lambda: _at_rest(daemon), "events or runs do not come to an end", 120)
    outcome.versions = {name: _versions(daemon, name) for name in workflows}
    return outcome


def _at_rest(daemon: Daemon) -> Outcome | None:
    """None: something goes on. Ends of runs and decisions about events make events and runs in one transaction each:

    if no event was pending before all runs were seen to have ended, and none has come since, nothing goes on.
    """
    before = events_of(daemon)
    if any(event.state == event_pb2.EVENT_STATE_PENDING or ends_burst(event) for event in before):
        return None
    runs = _runs(daemon)
    if any(run.state in _ACTIVE for run in runs.values()):
        return None
    events = events_of(daemon)
    if len(events) != len(before):
        return None
    return Outcome(
        events=events,
        runs=runs,
        schedules=_schedules(daemon, ended=True),
        fires=_fires(daemon),
    )


def events_of(daemon: Daemon, *types: str) -> list[event_pb2.Event]:
    """In order."""
    request = event_pb2.ListEventsRequest(types=types, page_size=1000)
    found: list[event_pb2.Event] = []
    while True:
        answer = daemon.events.ListEvents(request, timeout=20)
        found += answer.events
        if not answer.next_page_token:
            return found[::-1]
        request.page_token = answer.next_page_token


def _runs(daemon: Daemon) -> dict[str, run_pb2.Run]:
    request = run_pb2.ListRunsRequest(page_size=1000)
    found: dict[str, run_pb2.Run] = {}
    while True:
        answer = daemon.runs.ListRuns(request, timeout=20)
        found |= {run.id: run for run in answer.runs}
        if not answer.next_page_token:
            return found
        request.page_token = answer.next_page_token


def _schedules(daemon: Daemon, *, ended: bool) -> list[schedule_pb2.Schedule]:
    request = schedule_pb2.ListSchedulesRequest(page_size=1000, include_ended=ended)
    return list(daemon.schedules.ListSchedules(request, timeout=20).schedules)


def _fires(daemon: Daemon) -> list[workflow_pb2.Fire]:
    request = workflow_pb2.ListFiresRequest(page_size=1000)
    return list(daemon.workflows.ListFires(request, timeout=20).fires)


def _versions(daemon: Daemon, workflow: str) -> list[str]:
    request = workflow_pb2.ListWorkflowVersionsRequest(workflow=workflow, page_size=1000)
    found = daemon.workflows.ListWorkflowVersions(request, timeout=20).versions
    return [each.digest for each in sorted(found, key=lambda each: each.version)]
