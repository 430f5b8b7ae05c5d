"""The checker of events finds each defect that is forged into a true outcome, and none in that itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from faults.emitters import Asked, Bound, Told
from faults.event_checker import DEPTH_MOST, Outcome, check_events
from faults.listeners import (
    BOUND,
    CHAIN,
    DAEMON_STARTED,
    LOOP,
    NOTE,
    ORDER,
    RUN_FAILED,
    RUN_SUCCEEDED,
    SCHEDULE_TRIGGERED,
    STEP,
    STEP_FAILED,
    listeners,
)
from toban.v1 import event_pb2, run_pb2, schedule_pb2, workflow_pb2

WORKFLOWS = listeners()
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

    def defects(self) -> list[str]:
        return list(check_events(WORKFLOWS, self.told, self.outcome))

    def event(self, event_type: str, place: int = 0) -> event_pb2.Event:
        return self.outcome.of(event_type)[place]

    def run(self, workflow: str, place: int = 0) -> run_pb2.Run:
        return [run for run in self.outcome.runs.values() if run.workflow == workflow][place]

    def _tick(self) -> int:
        self._now += MS
        return self._now

    def _client(self, event_type: str, payload: dict[str, Any], key: str) -> None:
        source = event_pb2.EVENT_SOURCE_CLIENT
        event = self._emit(event_type, payload, source=source, dedupe_key=key)
        self.told.asked.append(
            Asked(type=event_type, payload=payload, key=key, event_id=event.id, created=True)
        )

    def _emit(
        self,
        event_type: str,
        payload: dict[str, Any],
        *,
        source: event_pb2.EventSource.ValueType = event_pb2.EVENT_SOURCE_DAEMON,
        bound: str = "",
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
            self._carry_out(event, row)
        return event

    def _carry_out(self, event: event_pb2.Event, row: event_pb2.EventRun) -> None:
        model = WORKFLOWS[row.workflow]
        run = run_pb2.Run(
            id=row.run_id,
            workflow=row.workflow,
            event_id=event.id,
            event_type=event.type,
            depth=event.depth,
            state=run_pb2.RUN_STATE_FAILED if model.fails else run_pb2.RUN_STATE_SUCCEEDED,
        )
        run.started_at.FromMicroseconds(self._tick())
        run.finished_at.FromMicroseconds(self._tick())
        self.outcome.runs[run.id] = run
        about = {"run_id": run.id, "workflow": run.workflow}
        after: dict[str, Any] = {"source_run": run.id, "depth": run.depth + 1}
        if model.emits:
            hops = json.loads(event.payload_json)["hops"] - 1
            source = event_pb2.EVENT_SOURCE_STEP
            self._emit(
                CHAIN, {"hops": hops}, source=source, source_step=STEP, dedupe_key=run.id, **after
            )
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
                fire = workflow_pb2.Fire(schedule_id=schedule.id, reason=f"event {event.id}")
                fire.due_at.FromMicroseconds(T0 + number * SECOND)
                self.outcome.fires.append(fire)


def lose_event(world: World) -> None:
    world.outcome.events.remove(world.event(NOTE))


def answer_a_key_twice(world: World) -> None:
    asked = world.told.asked[-1]
    world.told.asked[-1] = Asked(
        type=asked.type,
        payload=asked.payload,
        key=asked.key,
        event_id=world.event(ORDER, 1).id,
        created=False,
    )


def store_a_key_twice(world: World) -> None:
    world.event(ORDER, 1).dedupe_key = "first"


def change_payload(world: World) -> None:
    world.event(ORDER).payload_json = '{"n": 45, "tag": "x"}'


def make_up_event(world: World) -> None:
    del world.told.asked[2]


def tell_starts_too_often(world: World) -> None:
    world.outcome.lives = 0


def leave_pending(world: World) -> None:
    world.event(NOTE).state = event_pb2.EVENT_STATE_PENDING


def cut_early(world: World) -> None:
    world.event(RUN_SUCCEEDED).state = event_pb2.EVENT_STATE_CUT


def start_behind_a_cut(world: World) -> None:
    cut = next(each for each in world.outcome.events if each.depth == DEPTH_MOST)
    cut.runs.add(workflow="loop", outcome=event_pb2.EVENT_RUN_OUTCOME_STARTED, run_id="more")


def miss_a_listener(world: World) -> None:
    event = world.event(ORDER)
    gone = next(row for row in event.runs if row.workflow == "third-orders")
    event.runs.remove(gone)


def take_a_false_condition(world: World) -> None:
    world.event(ORDER, 1).payload_json = '{"n": 15, "tag": "x"}'


def take_the_lower_priority(world: World) -> None:
    next(row for row in world.event(ORDER).runs if row.workflow == "odd-or-tagged").priority = -7


def start_in_another_order(world: World) -> None:
    rows = list(world.event(ORDER).runs)
    del world.event(ORDER).runs[:]
    world.event(ORDER).runs.extend(rows[::-1])


def skip_what_queues(world: World) -> None:
    row = next(row for row in world.event(ORDER).runs if row.workflow == "all-orders")
    row.outcome, row.reason = event_pb2.EVENT_RUN_OUTCOME_SKIPPED, "overlap: run 1"


def resolve_out_of_order(world: World) -> None:
    world.event(NOTE).resolved_at.FromMicroseconds(T0)


def run_twice(world: World) -> None:
    again = run_pb2.Run()
    again.CopyFrom(world.run("all-orders"))
    again.id = "again"
    world.outcome.runs["again"] = again


def lose_run(world: World) -> None:
    del world.outcome.runs[world.run("alone").id]


def name_another_event(world: World) -> None:
    world.run("alone").event_id = world.event(LOOP).id


def forget_depth(world: World) -> None:
    world.run("loop", 5).depth = 0


def leave_running(world: World) -> None:
    world.run("all-orders").state = run_pb2.RUN_STATE_RUNNING


def tell_an_end_twice(world: World) -> None:
    again = event_pb2.Event()
    again.CopyFrom(world.event(RUN_FAILED))
    again.id = "again"
    world.outcome.events.append(again)


def tell_no_end(world: World) -> None:
    world.outcome.events.remove(world.event(STEP_FAILED))


def tell_of_another_run(world: World) -> None:
    event = world.event(RUN_SUCCEEDED)
    payload = json.loads(event.payload_json) | {"run_id": "another"}
    event.payload_json = json.dumps(payload)


def forget_the_step(world: World) -> None:
    world.event(CHAIN, 1).source = event_pb2.EVENT_SOURCE_DAEMON


def follow_on_nothing(world: World) -> None:
    world.event(CHAIN, 2).payload_json = '{"hops": -1}'


def run_side_by_side(world: World) -> None:
    world.run("all-orders", 1).started_at.CopyFrom(world.run("all-orders").started_at)


def lose_schedule(world: World) -> None:
    del world.outcome.schedules[1]


def lose_due_time(world: World) -> None:
    del world.outcome.fires[1]


def double_due_time(world: World) -> None:
    world.outcome.fires.append(world.outcome.fires[0])


def fire_what_was_cancelled(world: World) -> None:
    fire = world.outcome.fires[-1]
    world.outcome.schedules[-1].cancelled_at.FromMicroseconds(fire.due_at.ToMicroseconds() - MS)


def tell_a_due_time_twice(world: World) -> None:
    world.outcome.fires[2].reason = "event elsewhere"


def count_wrong(world: World) -> None:
    event = world.event(SCHEDULE_TRIGGERED, 1)
    event.payload_json = event.payload_json.replace('"occurrences": 3', '"occurrences": 2')


def promise_more(world: World) -> None:
    event = world.event(SCHEDULE_TRIGGERED, 2)
    event.payload_json = event.payload_json.replace("4}", '4, "nextRun": "later"}')


FORGERIES: list[tuple[Callable[[World], None], str]] = [
    (lose_event, "an acknowledged event is missing"),
    (answer_a_key_twice, "2 events of the key"),
    (store_a_key_twice, "2 events have ('ORDER', 'first')"),
    (change_payload, "was stored as"),
    (make_up_event, "an event that nobody asked for"),
    (tell_starts_too_often, "1 starts were told"),
    (leave_pending, "EVENT_STATE_PENDING instead of EVENT_STATE_RESOLVED"),
    (cut_early, "EVENT_STATE_CUT instead of EVENT_STATE_RESOLVED"),
    (start_behind_a_cut, "instead of {}"),
    (miss_a_listener, "was started by 0 events"),
    (take_a_false_condition, "instead of {'all-orders': 0, 'third-orders': 50"),
    (take_the_lower_priority, "('odd-or-tagged', -7)"),
    (start_in_another_order, "in another order"),
    (skip_what_queues, "did not start all-orders: overlap"),
    (resolve_out_of_order, "was resolved before an earlier one"),
    (run_twice, "run again of all-orders was started by 0 events"),
    (lose_run, "is missing"),
    (name_another_event, "says ('alone', "),
    (forget_depth, "says ('loop', "),
    (leave_running, "is RUN_STATE_RUNNING"),
    (tell_an_end_twice, "it is told too often"),
    (tell_no_end, "it is not told"),
    (tell_of_another_run, "tells of another run"),
    (forget_the_step, "is from EVENT_SOURCE_DAEMON"),
    (follow_on_nothing, "does not follow on the event of its run"),
    (run_side_by_side, "were under way at once"),
    (lose_schedule, "was acknowledged, and there are []"),
    (lose_due_time, "has lines for"),
    (double_due_time, "has lines for"),
    (fire_what_was_cancelled, "was due after it was cancelled"),
    (tell_a_due_time_twice, "lines name the events"),
    (count_wrong, "tells ('subject-0', 'reminder', 2)"),
    (promise_more, "and says otherwise"),
]


def test_finds_nothing_in_what_is_true() -> None:
    world = World()
    assert world.defects() == []
    depths = {event.depth for event in world.outcome.events}
    assert max(depths) == DEPTH_MOST, "there is a chain that is cut"


@pytest.mark.parametrize(
    ("forge", "found"), FORGERIES, ids=lambda each: getattr(each, "__name__", "")
)
def test_finds_what_is_forged(forge: Callable[[World], None], found: str) -> None:
    world = World()
    forge(world)
    assert any(found in defect for defect in world.defects()), world.defects()
