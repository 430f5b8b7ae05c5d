"""The checker of events finds each defect that is forged into a true outcome, and none in that itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from faults.event_checker import DEPTH_MOST
from faults.event_world import INBOX, MS, T0, World
from faults.listeners import (
    CHAIN,
    DEFINITION_CHANGED,
    FILE_CHANGED,
    LOOP,
    NOTE,
    ORDER,
    RUN_FAILED,
    RUN_SUCCEEDED,
    SCHEDULE_TRIGGERED,
    STEP_FAILED,
)
from toban.v1 import event_pb2, run_pb2, workflow_pb2


def lose_event(world: World) -> None:
    world.outcome.events.remove(world.event(NOTE))


def answer_a_key_twice(world: World) -> None:
    (again,) = (asked for asked in world.told.asked if not asked.created)
    world.told.asked.remove(again)
    world.told.asked.append(replace(again, event_id=world.event(ORDER, 1).id))


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
    row.outcome, row.reason = event_pb2.EVENT_RUN_OUTCOME_SKIPPED, workflow_pb2.NOT_STARTED_REASON_OVERLAP


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
    world.outcome.fires[2].event_id = "elsewhere"


def count_wrong(world: World) -> None:
    event = world.event(SCHEDULE_TRIGGERED, 1)
    event.payload_json = event.payload_json.replace('"occurrences": 3', '"occurrences": 2')


def promise_more(world: World) -> None:
    event = world.event(SCHEDULE_TRIGGERED, 2)
    event.payload_json = event.payload_json.replace("4}", '4, "nextRun": "later"}')


def decide_while_it_drains(world: World) -> None:
    (drained,) = world.drains
    world.drains = [replace(drained, ended=drained.ended + 0.002)]


def lose_version(world: World) -> None:
    del world.outcome.versions["all-orders"][-1]


def store_version_twice(world: World) -> None:
    world.outcome.versions["all-orders"].append(world.outcome.versions["all-orders"][-1])


def store_another_text(world: World) -> None:
    world.outcome.versions["loop"] = ["another"]


def acknowledge_another_version(world: World) -> None:
    world.told.applied[-1] = replace(world.told.applied[-1], version=2)


def tell_no_version(world: World) -> None:
    event = world.event(DEFINITION_CHANGED)
    event.payload_json = event.payload_json.replace("updated", "created")


def tell_a_version_twice(world: World) -> None:
    world.outcome.events.append(world.event(DEFINITION_CHANGED))


def start_an_old_version(world: World) -> None:
    world.run("all-orders", -1).version = 2


def start_a_version_to_come(world: World) -> None:
    world.run("all-orders").version = 2


def make_up_file(world: World) -> None:
    del world.inbox.came[f"{INBOX}/0"]


def tell_of_a_file_to_come(world: World) -> None:
    world.inbox.came[f"{INBOX}/0"] += 1


def tell_of_another_change(world: World) -> None:
    event = world.event(FILE_CHANGED)
    event.payload_json = event.payload_json.replace("added", "modified")


def tell_a_file_twice(world: World) -> None:
    world.event(FILE_CHANGED).payload_json = world.event(FILE_CHANGED, 1).payload_json


def tell_no_file(world: World) -> None:
    world.outcome.events.remove(world.event(FILE_CHANGED, 2))


def row_of(world: World, event: event_pb2.Event, workflow: str) -> event_pb2.EventRun:
    return next(row for row in event.runs if row.workflow == workflow)


def end_a_burst_early(world: World) -> None:
    world.run("settled").created_at.FromMicroseconds(T0)


def lose_a_burst(world: World) -> None:
    row = row_of(world, world.event(ORDER, -1), "settled")
    world.outcome.runs.pop(row.run_id)
    row.outcome, row.run_id = event_pb2.EVENT_RUN_OUTCOME_SKIPPED, ""
    row.reason = workflow_pb2.NOT_STARTED_REASON_DEBOUNCED


def leave_an_event_out_of_its_burst(world: World) -> None:
    row = row_of(world, world.event(ORDER, 1), "settled")
    row.later_event_id = world.event(ORDER, -1).id


def refuse_a_burst(world: World) -> None:
    row = row_of(world, world.event(ORDER, 1), "settled")
    row.reason = workflow_pb2.NOT_STARTED_REASON_OVERLAP


def split_a_burst(world: World) -> None:
    event = world.event(ORDER, 1)
    row = row_of(world, event, "settled")
    again = run_pb2.Run()
    again.CopyFrom(world.run("settled"))
    again.id, again.event_id = "again", event.id
    row.outcome, row.run_id, row.later_event_id = event_pb2.EVENT_RUN_OUTCOME_STARTED, again.id, ""
    world.outcome.runs[again.id] = again


def count_a_burst_wrong(world: World) -> None:
    world.outcome.coalesced[world.run("settled").id] = [7]


def execute_a_burst_twice(world: World) -> None:
    world.outcome.coalesced[world.run("settled").id] *= 2


def end_a_burst_while_it_drains(world: World) -> None:
    ended = world.run("settled").created_at.ToMicroseconds() / 1e6
    world.drains.append(replace(world.drains[0], begun=ended - 0.001, ended=ended + 0.001))


def start_too_often(world: World) -> None:
    rows = [row_of(world, event, "seldom") for event in world.outcome.of(NOTE, ORDER)]
    held = next(row for row in rows if row.reason == workflow_pb2.NOT_STARTED_REASON_THROTTLED)
    held.outcome, held.run_id = event_pb2.EVENT_RUN_OUTCOME_STARTED, "more"


def hold_back_too_early(world: World) -> None:
    row = row_of(world, world.event(ORDER), "seldom")
    row.outcome, row.run_id = event_pb2.EVENT_RUN_OUTCOME_SKIPPED, ""
    row.reason = workflow_pb2.NOT_STARTED_REASON_THROTTLED


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
    (decide_while_it_drains, "was decided while the daemon drained"),
    (lose_version, "has 2 versions, which are not the 3"),
    (store_version_twice, "has 4 versions, which are not the 3"),
    (store_another_text, "has 1 versions, which are not the 1"),
    (acknowledge_another_version, "version 3 of all-orders was acknowledged as 2"),
    (tell_no_version, "a new version is not told: ('all-orders', 2)"),
    (tell_a_version_twice, "a version is told too often: ('all-orders', 2)"),
    (start_an_old_version, "has version 2, not 3 to 3"),
    (start_a_version_to_come, "has version 2, not 1 to 1"),
    (make_up_file, "tells of what did not happen"),
    (tell_of_a_file_to_come, "tells of what did not happen"),
    (tell_of_another_change, "tells it wrong"),
    (tell_a_file_twice, "is told 2 times"),
    (tell_no_file, "came and is not told"),
    (end_a_burst_early, "s too early"),
    (lose_a_burst, "leaves its burst to event  instead of "),
    (leave_an_event_out_of_its_burst, "leaves its burst to event"),
    (refuse_a_burst, "came to no run"),
    (split_a_burst, "and is not part of it"),
    (count_a_burst_wrong, "of how many events it is: [7]"),
    (execute_a_burst_twice, "of how many events it is: "),
    (end_a_burst_while_it_drains, "ended while the daemon drained"),
    (start_too_often, "started seldom after 2 others"),
    (hold_back_too_early, "was held back from seldom after 0 others"),
]


def test_finds_nothing_in_what_is_true() -> None:
    world = World()
    assert world.defects() == []
    depths = {event.depth for event in world.outcome.events}
    assert max(depths) == DEPTH_MOST, "there is a chain that is cut"


@pytest.mark.parametrize(("forge", "found"), FORGERIES, ids=lambda each: getattr(each, "__name__", ""))
def test_finds_what_is_forged(forge: Callable[[World], None], found: str) -> None:
    world = World()
    forge(world)
    assert any(found in defect for defect in world.defects()), world.defects()
