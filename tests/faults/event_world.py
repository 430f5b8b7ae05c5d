"""An outcome of events in which everything is right, to forge defects into."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from faults.emitters import Applied, Asked, Bound, Told
from faults.event_checker import DEPTH_MOST, check_events
from faults.event_drains import Drained
from faults.event_files import Inbox
from faults.event_outcome import Outcome
from faults.listeners import (
    BOUND,
    CHAIN,
    DAEMON_STARTED,
    DEFINITION_CHANGED,
    FILE_CHANGED,
    LOOP,
    NOTE,
    ORDER,
    RUN_FAILED,
    RUN_SUCCEEDED,
    SCHEDULE_TRIGGERED,
    STEP,
    STEP_FAILED,
    WATCHING,
    Pace,
    listeners,
)
from toban.v1 import event_pb2, run_pb2, schedule_pb2, workflow_pb2

INBOX = Path("/inbox")
WORKFLOWS = listeners(INBOX)
MS = 1000
SECOND = 1_000_000
T0 = 1_800_000_000 * SECOND
RECURRING, ONCE, GONE = "subject-0", "subject-1", "subject-2"


class World:
    """A daemon that does everything right, one thing after the other."""

    def __init__(self) -> None:
        self.told = Told()
        self.outcome = Outcome(events=[], runs={}, lives=2)
        self._now = T0
        self._bursts: dict[Any, tuple[event_pb2.Event, event_pb2.EventRun, int]] = {}
        """By key."""
        self._starts: list[int] = []
        """When the throttled trigger started runs."""
        self._client(ORDER, {"n": 15, "tag": "x"}, "first")
        self._client(ORDER, {"n": 2}, "")
        self._client(NOTE, {}, "")
        self._client(CHAIN, {"hops": 2}, "")
        self._client(LOOP, {}, "")
        again = self.told.asked[0]
        self.told.asked.append(
            Asked(
                type=ORDER,
                payload={"n": 7},
                key=again.key,
                event_id=again.event_id,
                created=False,
            )
        )
        self._emit(DAEMON_STARTED, {})
        self._bind(RECURRING, "reminder", "", every=1.0, times=4, events=[[1], [2, 3], [4]])
        self._bind(ONCE, "workflow", BOUND, every=0.0, times=1, events=[[1]])
        self._bind(GONE, "escalate", "", every=1.0, times=4, events=[[1]])
        self.told.cancelled.add(GONE)
        self.outcome.versions = {name: [_digest(name, 1)] for name in WORKFLOWS}
        self._apply("all-orders", 2)
        self._apply("all-orders", 3)
        self._client(ORDER, {"n": 4}, "")
        begun = self._now / SECOND
        self._client(ORDER, {"n": 8}, "held back", waits=5 * MS)
        self.drains = [Drained(begun, begun + 0.005)]
        self.inbox = Inbox(INBOX)
        for number in range(3):
            self._put(f"{INBOX}/{number}")
        self.inbox.watched = [f"{INBOX}/2"]
        for _ in range(2):
            self._client(NOTE, {}, "")
        for event, row, count in list(self._bursts.values()):
            self._end_burst(event, row, count)

    def defects(self) -> list[str]:
        found = check_events(WORKFLOWS, self.told, self.outcome, inbox=self.inbox, drains=self.drains)
        return list(found)

    def event(self, event_type: str, place: int = 0) -> event_pb2.Event:
        return self.outcome.of(event_type)[place]

    def run(self, workflow: str, place: int = 0) -> run_pb2.Run:
        return [run for run in self.outcome.runs.values() if run.workflow == workflow][place]

    def _tick(self) -> int:
        self._now += MS
        return self._now

    def _apply(self, workflow: str, edition: int) -> None:
        asked = self._tick()
        self.outcome.versions[workflow].append(_digest(workflow, edition))
        data = {"name": workflow, "version": edition, "owner": "api"}
        self._emit(DEFINITION_CHANGED, {"entity": "workflow", "action": "updated", "data": data})
        self.told.applied.append(
            Applied(
                workflow=workflow,
                source=WORKFLOWS[workflow].definition(edition),
                version=edition,
                changed=True,
                asked=asked / SECOND,
                answered=self._tick() / SECOND,
            )
        )

    def _put(self, path: str) -> None:
        self.inbox.came[path] = self._tick() / SECOND
        self._emit(
            FILE_CHANGED,
            {"path": path, "change": "added", "workflow": WATCHING, "watch": str(INBOX)},
        )

    def _client(self, event_type: str, payload: dict[str, Any], key: str, *, waits: int = 0) -> None:
        source = event_pb2.EVENT_SOURCE_CLIENT
        event = self._emit(event_type, payload, source=source, waits=waits, dedupe_key=key)
        self.told.asked.append(Asked(type=event_type, payload=payload, key=key, event_id=event.id, created=True))

    def _emit(
        self,
        event_type: str,
        payload: dict[str, Any],
        *,
        source: event_pb2.EventSource.ValueType = event_pb2.EVENT_SOURCE_DAEMON,
        bound: str = "",
        waits: int = 0,
        **fields: Any,
    ) -> event_pb2.Event:
        sequence = len(self.outcome.events) + 1
        event = event_pb2.Event(
            id=f"event-{sequence}",
            sequence=sequence,
            type=event_type,
            payload_json=json.dumps(payload),
            source=source,
            state=event_pb2.EVENT_STATE_RESOLVED,
            **fields,
        )
        event.emitted_at.FromMicroseconds(self._tick())
        self._now += waits
        event.resolved_at.FromMicroseconds(self._tick())
        self.outcome.events.append(event)
        if event.depth >= DEPTH_MOST:
            event.state = event_pb2.EVENT_STATE_CUT
            return event
        starts = {name: each.priority_of(event_type, payload) for name, each in WORKFLOWS.items()}
        if bound:
            starts[bound] = WORKFLOWS[bound].priority
        found = [(name, priority) for name, priority in starts.items() if priority is not None]
        for name, priority in sorted(found, key=lambda each: (-each[1], each[0])):
            event.runs.add(
                workflow=name,
                priority=priority,
                outcome=event_pb2.EVENT_RUN_OUTCOME_STARTED,
                run_id=f"run-{event.id}-{name}",
            )
        for row in event.runs:
            pace = WORKFLOWS[row.workflow].pace
            if pace is None or self._keeps_pace(pace, event, row):
                self._carry_out(event, row)
        return event

    def _keeps_pace(self, pace: Pace, event: event_pb2.Event, row: event_pb2.EventRun) -> bool:
        """Whether it starts its run now."""
        key = json.loads(event.payload_json).get(pace.key)
        if pace.quiet:
            count = 0
            if key in self._bursts:
                _, before, count = self._bursts[key]
                before.later_event_id = event.id
            self._bursts[key] = (event, row, count + 1)
            self._hold_back(row, workflow_pb2.NOT_STARTED_REASON_DEBOUNCED)
            return False
        if len(self._starts) < pace.limit:
            self._starts.append(self._now)
            return True
        self._hold_back(row, workflow_pb2.NOT_STARTED_REASON_THROTTLED)
        return False

    def _hold_back(self, row: event_pb2.EventRun, reason: workflow_pb2.NotStartedReason.ValueType) -> None:
        row.outcome, row.reason, row.run_id = event_pb2.EVENT_RUN_OUTCOME_SKIPPED, reason, ""

    def _end_burst(self, event: event_pb2.Event, row: event_pb2.EventRun, count: int) -> None:
        self._now += SECOND
        row.outcome, row.run_id = event_pb2.EVENT_RUN_OUTCOME_STARTED, f"run-{event.id}-{row.workflow}"
        row.reason = workflow_pb2.NOT_STARTED_REASON_UNSPECIFIED
        self.outcome.coalesced[row.run_id] = [count]
        self._carry_out(event, row)

    def _carry_out(self, event: event_pb2.Event, row: event_pb2.EventRun) -> None:
        model = WORKFLOWS[row.workflow]
        run = run_pb2.Run(
            id=row.run_id,
            workflow=row.workflow,
            version=len(self.outcome.versions.get(row.workflow, [""])),
            event_id=event.id,
            event_type=event.type,
            depth=event.depth,
            state=run_pb2.RUN_STATE_FAILED if model.fails else run_pb2.RUN_STATE_SUCCEEDED,
        )
        run.created_at.FromMicroseconds(self._tick())
        run.started_at.FromMicroseconds(self._tick())
        run.finished_at.FromMicroseconds(self._tick())
        self.outcome.runs[run.id] = run
        about = {"run_id": run.id, "workflow": run.workflow}
        after: dict[str, Any] = {"source_run": run.id, "depth": run.depth + 1}
        if model.emits:
            hops = json.loads(event.payload_json)["hops"] - 1
            source = event_pb2.EVENT_SOURCE_STEP
            self._emit(CHAIN, {"hops": hops}, source=source, source_step=STEP, dedupe_key=run.id, **after)
        if model.fails:
            self._emit(STEP_FAILED, about, source_step=STEP, **after)
        self._emit(RUN_FAILED if model.fails else RUN_SUCCEEDED, about, **after)

    def _bind(
        self,
        subject: str,
        action: str,
        workflow: str,
        *,
        every: float,
        times: int,
        events: list[list[int]],
    ) -> None:
        """`events` are the numbers of the due times that each of them is for."""
        states = schedule_pb2.ScheduleState
        cancelled = len(events) < times and events[-1][-1] < times
        schedule = schedule_pb2.Schedule(
            id=f"id of {subject}",
            subject=subject,
            state=states.SCHEDULE_STATE_CANCELLED if cancelled else states.SCHEDULE_STATE_ENDED,
        )
        schedule.created_at.FromMicroseconds(T0)
        if cancelled:
            schedule.cancelled_at.FromMicroseconds(T0 + events[-1][-1] * SECOND + MS)
        self.outcome.schedules.append(schedule)
        at = 0.0 if every else T0 / SECOND + 1
        self.told.bound.append(
            Bound(
                subject=subject,
                id=schedule.id,
                action=action,
                workflow=workflow,
                every=every,
                at=at,
                times=times,
            )
        )
        for numbers in events:
            metadata: dict[str, Any] = {"occurrences": numbers[-1]}
            if numbers[-1] < times:
                metadata["nextRun"] = "later"
            payload = {
                "issueId": subject,
                "scheduleId": schedule.id,
                "action": action,
                "metadata": metadata,
            }
            event = self._emit(SCHEDULE_TRIGGERED, payload, bound=workflow)
            for number in numbers:
                fire = workflow_pb2.Fire(schedule_id=schedule.id, event_id=event.id)
                fire.due_at.FromMicroseconds(T0 + number * SECOND)
                self.outcome.fires.append(fire)


def _digest(workflow: str, edition: int) -> str:
    return sha256(WORKFLOWS[workflow].definition(edition).encode()).hexdigest()
