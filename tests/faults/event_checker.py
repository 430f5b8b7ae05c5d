"""Compares the outcome of events with the requests and with the triggers of workflows; see docs/faults.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from faults.emitters import Bound, Told
from faults.event_drains import Drained, check_drains
from faults.event_files import Inbox, check_files
from faults.event_outcome import Outcome, payload_of, shown
from faults.event_paces import check_paces
from faults.event_versions import check_versions
from faults.listeners import (
    CHAIN,
    CLIENT_TYPES,
    DAEMON_STARTED,
    RUN_FAILED,
    RUN_SUCCEEDED,
    SCHEDULE_TRIGGERED,
    STEP,
    STEP_FAILED,
    Listening,
)
from toban.cli.render.reason_text import not_started
from toban.v1 import event_pb2, run_pb2, schedule_pb2, workflow_pb2

DEPTH_MOST = 16
PACED = (workflow_pb2.NOT_STARTED_REASON_DEBOUNCED, workflow_pb2.NOT_STARTED_REASON_THROTTLED)
_CLIENT, _STEP, _DAEMON = (
    event_pb2.EVENT_SOURCE_CLIENT,
    event_pb2.EVENT_SOURCE_STEP,
    event_pb2.EVENT_SOURCE_DAEMON,
)


def check_events(
    workflows: Mapping[str, Listening],
    told: Told,
    outcome: Outcome,
    *,
    inbox: Inbox,
    drains: Sequence[Drained] = (),
) -> Iterator[str]:
    """All that is wrong."""
    yield from _check_asked(told, outcome)
    bound = {each.subject: each for each in told.bound}
    for event in outcome.events:
        yield from _check_resolved(workflows, event, bound)
    yield from _check_order(outcome)
    yield from _check_runs(workflows, outcome)
    yield from _check_announced(workflows, outcome)
    yield from _check_turns(workflows, outcome)
    yield from _check_schedules(told, outcome)
    yield from check_drains(drains, outcome)
    yield from check_versions(workflows, told, outcome)
    yield from check_files(inbox, outcome)
    yield from check_paces(workflows, outcome, drains)


# -- what was asked for


def _check_asked(told: Told, outcome: Outcome) -> Iterator[str]:
    known = {event.id: event for event in outcome.events}
    if len(known) != len(outcome.events):
        yield "two events have one id"
    by_key: dict[tuple[str, str], set[str]] = defaultdict(set)
    for asked in told.asked:
        event = known.get(asked.event_id)
        if event is None:
            yield f"an acknowledged event is missing: {asked}"
        elif (event.type, event.dedupe_key) != (asked.type, asked.key):
            yield f"{asked} was answered with another event: {shown(event)}"
        elif asked.created and payload_of(event) != asked.payload:
            yield f"{asked} was stored as {shown(event)}"
        if asked.key:
            by_key[asked.type, asked.key].add(asked.event_id)
    for key, ids in by_key.items():
        if len(ids) > 1:
            yield f"{len(ids)} events of the key {key}: {sorted(ids)}"
    made = Counter(asked.event_id for asked in told.asked if asked.created)
    yield from (f"event {one} was new {count} times" for one, count in made.items() if count > 1)
    without_key = Counter(asked.event_id for asked in told.asked if not asked.key)
    for one, count in without_key.items():
        if count > 1:
            yield f"{count} events without a key were answered with {one}"
    stored = Counter((e.type, e.dedupe_key) for e in outcome.events if e.dedupe_key)
    yield from (f"{count} events have {key}" for key, count in stored.items() if count > 1)
    acknowledged = {asked.event_id for asked in told.asked}
    for event in outcome.of(*CLIENT_TYPES):
        if event.source == _CLIENT and event.id not in acknowledged:
            yield f"an event that nobody asked for: {shown(event)}"
    if len(outcome.of(DAEMON_STARTED)) > outcome.lives:
        yield f"{len(outcome.of(DAEMON_STARTED))} starts were told, and there were {outcome.lives}"


# -- what each event started


def _check_resolved(
    workflows: Mapping[str, Listening], event: event_pb2.Event, bound: Mapping[str, Bound]
) -> Iterator[str]:
    expected: dict[str, int | None] = {}
    payload = payload_of(event)
    state = event_pb2.EVENT_STATE_CUT
    if event.depth < DEPTH_MOST:
        state = event_pb2.EVENT_STATE_RESOLVED
        for workflow in workflows.values():
            priority = workflow.priority_of(event.type, payload)
            if priority is not None:
                expected[workflow.name] = priority
        if event.type == SCHEDULE_TRIGGERED:
            schedule = bound.get(payload["issueId"])
            if schedule is not None and schedule.workflow:
                expected[schedule.workflow] = workflows[schedule.workflow].priority
    if event.state != state:
        name = event_pb2.EventState.Name
        yield f"{shown(event)} is {name(event.state)} instead of {name(state)}"
    found = [(run.workflow, run.priority) for run in event.runs]
    if sorted(found) != sorted(expected.items()):
        yield f"{shown(event)} started {found} instead of {expected}"
    elif found != sorted(found, key=lambda each: (-each[1], each[0])):
        yield f"{shown(event)} started them in another order: {found}"
    for run in event.runs:
        if run.outcome == event_pb2.EVENT_RUN_OUTCOME_STARTED:
            if not run.run_id:
                yield f"{shown(event)} started {run.workflow} without a run"
        elif workflows[run.workflow].pace and run.reason in PACED:
            if run.run_id:
                yield f"{shown(event)} held {run.workflow} back, which has run {run.run_id}"
        elif workflows[run.workflow].overlap != "skip" or run.reason != workflow_pb2.NOT_STARTED_REASON_OVERLAP:
            yield f"{shown(event)} did not start {run.workflow}: {not_started(run)}"
        elif run.run_id:
            yield f"{shown(event)} skipped {run.workflow}, which has run {run.run_id}"


def _check_order(outcome: Outcome) -> Iterator[str]:
    """What an event starts is decided in the order in which events were stored."""
    last = 0
    for event in outcome.events:
        at = event.resolved_at.ToMicroseconds()
        if at < last:
            yield f"{shown(event)} was resolved before an earlier one"
        last = at


def _check_runs(workflows: Mapping[str, Listening], outcome: Outcome) -> Iterator[str]:
    """Every run is that of one event, and each run of an event is there."""
    started: Counter[str] = Counter()
    for event in outcome.events:
        for row in event.runs:
            if not row.run_id:
                continue
            started[row.run_id] += 1
            run = outcome.runs.get(row.run_id)
            if run is None:
                yield f"the run {row.run_id} of {shown(event)} is missing"
                continue
            facts = (run.workflow, run.event_id, run.event_type, run.depth)
            if facts != (row.workflow, event.id, event.type, event.depth):
                yield f"run {run.id} says {facts}, and it is of {shown(event)}"
    for run in outcome.runs.values():
        if started[run.id] != 1:
            yield f"run {run.id} of {run.workflow} was started by {started[run.id]} events"
        fails = workflows[run.workflow].fails
        expected = run_pb2.RUN_STATE_FAILED if fails else run_pb2.RUN_STATE_SUCCEEDED
        if run.state != expected and not outcome.cut_off(run):
            name = run_pb2.RunState.Name(run.state)
            yield f"run {run.id} of {run.workflow} is {name}: {run.error_message}"


# -- what the runs made happen


def _check_announced(workflows: Mapping[str, Listening], outcome: Outcome) -> Iterator[str]:
    """Each end of a run has one event, as has each emitting step, and there are no others."""
    found = Counter(
        (event.type, event.source_run, event.source_step, event.depth) for event in outcome.events if event.source_run
    )
    expected: Counter[tuple[str, str, str, int]] = Counter()
    for run in outcome.runs.values():
        depth = run.depth + 1
        if run.state == run_pb2.RUN_STATE_SUCCEEDED:
            expected[RUN_SUCCEEDED, run.id, "", depth] += 1
        elif run.state == run_pb2.RUN_STATE_FAILED:
            expected[RUN_FAILED, run.id, "", depth] += 1
            expected[STEP_FAILED, run.id, STEP, depth] += 1
        emitted = (CHAIN, run.id, STEP, depth)
        if workflows[run.workflow].emits and (found[emitted] or not outcome.cut_off(run)):
            expected[emitted] += 1
    yield from (f"it is not told, or not often enough: {each}" for each in expected - found)
    yield from (f"it is told too often: {each}" for each in found - expected)
    for event in outcome.events:
        source = _STEP if event.type == CHAIN and event.source_run else _DAEMON
        if event.source_run and event.source != source:
            yield f"{shown(event)} is from {event_pb2.EventSource.Name(event.source)}"
        if event.source == _STEP:
            before = outcome.runs.get(event.source_run)
            caused = [e for e in outcome.of(CHAIN) if before is not None and e.id == before.event_id]
            if len(caused) != 1 or payload_of(event)["hops"] != payload_of(caused[0])["hops"] - 1:
                yield f"{shown(event)} does not follow on the event of its run"
        elif event.source_run and payload_of(event).get("run_id") != event.source_run:
            yield f"{shown(event)} tells of another run than {event.source_run}"


def _check_turns(workflows: Mapping[str, Listening], outcome: Outcome) -> Iterator[str]:
    """Runs that wait for each other were under way one at a time."""
    by_workflow: dict[str, list[run_pb2.Run]] = defaultdict(list)
    for run in outcome.runs.values():
        if workflows[run.workflow].takes_turns:
            by_workflow[run.workflow].append(run)
    for runs in by_workflow.values():
        runs.sort(key=lambda run: run.started_at.ToMicroseconds())
        for before, after in pairwise(runs):
            if before.finished_at.ToMicroseconds() > after.started_at.ToMicroseconds():
                yield f"runs {before.id} and {after.id} of {after.workflow} were under way at once"


# -- schedules of subjects


def _check_schedules(told: Told, outcome: Outcome) -> Iterator[str]:
    by_subject: dict[str, list[schedule_pb2.Schedule]] = defaultdict(list)
    for schedule in outcome.schedules:
        by_subject[schedule.subject].append(schedule)
    for bound in told.bound:
        found = by_subject.pop(bound.subject, [])
        if len(found) > 1 or (bound.id and [each.id for each in found] != [bound.id]):
            yield f"{bound} was acknowledged, and there are {[each.id for each in found]}"
        for schedule in found:
            cancelled = bound.subject in told.cancelled
            yield from _check_due(bound, schedule, outcome, cancelled=cancelled)
    yield from (f"a schedule that nobody asked for: {subject}" for subject in by_subject)
    known = {schedule.id for schedule in outcome.schedules}
    for event in outcome.of(SCHEDULE_TRIGGERED):
        if payload_of(event)["scheduleId"] not in known:
            yield f"{shown(event)} is of no schedule"


def _check_due(bound: Bound, schedule: schedule_pb2.Schedule, outcome: Outcome, *, cancelled: bool) -> Iterator[str]:
    """Each due time has one line, and each line names its event; times that were missed share one."""
    due = _due_times(bound, schedule)
    lines = sorted(
        (fire for fire in outcome.fires if fire.schedule_id == schedule.id),
        key=lambda fire: fire.due_at.ToMicroseconds(),
    )
    times = [line.due_at.ToMicroseconds() for line in lines]
    active = schedule.state == schedule_pb2.SCHEDULE_STATE_ACTIVE
    if active or (cancelled and times != due[: len(times)]) or (not cancelled and times != due):
        state = schedule_pb2.ScheduleState.Name(schedule.state)
        yield f"{bound} is {state} and has lines for {times} instead of {due}"
    was_cancelled = schedule.state == schedule_pb2.SCHEDULE_STATE_CANCELLED
    if was_cancelled and times and times[-1] > schedule.cancelled_at.ToMicroseconds():
        yield f"{bound} was due after it was cancelled"
    events = {
        event.id: event for event in outcome.of(SCHEDULE_TRIGGERED) if payload_of(event)["scheduleId"] == schedule.id
    }
    named: dict[str, list[int]] = defaultdict(list)
    for count, line in enumerate(lines, 1):
        named[line.event_id].append(count)
    if named.keys() != events.keys():
        yield f"{bound}: lines name the events {sorted(named)}, and there are {sorted(events)}"
    for event_id, counts in named.items():
        event = events.get(event_id)
        if counts != list(range(counts[0], counts[-1] + 1)):
            yield f"{bound}: the times {counts} share an event, and others between them do not"
        if event is not None:
            yield from _check_told(bound, schedule, event, counts[-1])


def _check_told(
    bound: Bound, schedule: schedule_pb2.Schedule, event: event_pb2.Event, occurrences: int
) -> Iterator[str]:
    payload = payload_of(event)
    told = (payload["issueId"], payload["action"], payload["metadata"]["occurrences"])
    if told != (schedule.subject, bound.action, occurrences):
        yield f"{shown(event)} tells {told}, and that is time {occurrences} of {bound}"
    more = occurrences < bound.times
    if ("nextRun" in payload["metadata"]) != more:
        yield f"{shown(event)} is time {occurrences} of {bound}, and says otherwise"


def _due_times(bound: Bound, schedule: schedule_pb2.Schedule) -> Sequence[int]:
    """In microseconds."""
    if not bound.every:
        return [int(bound.at) * 1_000_000]
    began, every = schedule.created_at.ToMicroseconds(), int(bound.every * 1_000_000)
    return [began + number * every for number in range(1, bound.times + 1)]
