"""Subject schedules over the API: due, repeated, and cancelled in time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import grpc
from google.protobuf import duration_pb2, timestamp_pb2

from helpers.daemon import Daemon, run_state
from toban.v1 import event_pb2, run_pb2
from toban.v1 import schedule_pb2 as pb


def create(daemon: Daemon, subject: str, **fields: Any) -> pb.CreateScheduleResponse:
    known: dict[str, Any] = {
        "rule": pb.ScheduleRule(words="3日後の朝9時"),
        "action": pb.SCHEDULE_ACTION_REMINDER,
    }
    request = pb.CreateScheduleRequest(subject=subject, **{**known, **fields})
    return daemon.schedules.CreateSchedule(request, timeout=20)


def get(daemon: Daemon, schedule_id: str) -> pb.Schedule:
    request = pb.GetScheduleRequest(id=schedule_id)
    return daemon.schedules.GetSchedule(request, timeout=20).schedule


def soon(seconds: float) -> pb.ScheduleRule:
    at = timestamp_pb2.Timestamp()
    at.FromDatetime(datetime.now(UTC) + timedelta(seconds=seconds))
    return pb.ScheduleRule(at=at)


def create_soon(daemon: Daemon, subject: str, seconds: float, **fields: Any) -> pb.Schedule:
    """Due in so many seconds, or in more if the daemon is so slow that they had passed when it looked."""
    while True:
        rule = soon(seconds)
        try:
            return create(daemon, subject, rule=rule, **fields).schedule
        except grpc.RpcError:
            if rule.at.ToDatetime(UTC) > datetime.now(UTC) or seconds > 30:
                raise
            seconds *= 3


def triggered(daemon: Daemon, after: int) -> Any:
    """The stream of what schedules emit from there on."""
    request = event_pb2.WatchEventsRequest(types=["SCHEDULE_TRIGGERED"], after_sequence=after)
    return daemon.events.WatchEvents(request, timeout=120)


def last_event(daemon: Daemon) -> int:
    found = daemon.events.ListEvents(event_pb2.ListEventsRequest(page_size=1), timeout=20).events
    return found[0].sequence if found else 0


def test_a_reminder_is_told_and_starts_its_workflow(daemon: Daemon) -> None:
    steps = [{"name": "only", "run": "echo {{ event.payload.issueId }} {{ params.n }}"}]
    definition = {
        "name": "reminds",
        "description": "for a test",
        "params": {"n": {"type": "integer", "default": 1}},
        "steps": steps,
    }
    daemon.apply(json.dumps(definition))
    before = last_event(daemon)
    stream = triggered(daemon, before)
    next(stream)
    made = create_soon(daemon, "issue-1", 0.3, workflow="reminds", params={"n": 5})
    assert made.state == pb.SCHEDULE_STATE_ACTIVE
    event = next(stream).event
    cast(Any, stream).cancel()
    assert json.loads(event.payload_json) == {
        "issueId": "issue-1",
        "scheduleId": made.id,
        "action": "reminder",
        "originalRequest": made.request,
        "metadata": {"occurrences": 1},
    }
    assert event.source == event_pb2.EVENT_SOURCE_DAEMON
    (started,) = event.runs
    run = daemon.wait_run(started.run_id)
    assert run_state(run) == "SUCCEEDED"
    assert (run.triggered_by, run.schedule_id) == (run_pb2.TRIGGER_SCHEDULE, made.id)
    assert (run.event_id, run.event_type) == (event.id, "SCHEDULE_TRIGGERED")
    assert daemon.log_of(run.id)[run_pb2.LOG_STREAM_STDOUT] == b"issue-1 5\n"
    after = get(daemon, made.id)
    assert (after.state, after.occurrences) == (pb.SCHEDULE_STATE_ENDED, 1)
    assert not after.HasField("next_due")


def test_one_that_repeats_ends_after_so_many_times(daemon: Daemon) -> None:
    stream = triggered(daemon, last_event(daemon))
    next(stream)

    def told(seconds: int) -> list[Any]:
        rule = pb.ScheduleRule(every=duration_pb2.Duration(seconds=seconds))
        made = create(daemon, "issue-2", rule=rule, max_occurrences=2).schedule
        found: list[Any] = []
        while not found or found[-1]["occurrences"] < 2:
            payload = json.loads(next(stream).event.payload_json)
            if payload["scheduleId"] == made.id:
                found.append(payload["metadata"])
        assert get(daemon, made.id).state == pb.SCHEDULE_STATE_ENDED
        return found

    # One that was missed because the daemon was held up is told with the next; then there is more time between them.
    found = next(each for each in map(told, (1, 5, 20)) if len(each) > 1)
    cast(Any, stream).cancel()
    assert [each["occurrences"] for each in found] == [1, 2]
    assert ["nextRun" in each for each in found] == [True, False]


def test_what_is_cancelled_is_not_due(daemon: Daemon) -> None:
    stream = triggered(daemon, last_event(daemon))
    next(stream)
    too_late: list[str] = []

    def cancelled(seconds: float) -> pb.Schedule | None:
        """One that would be due soon; None if it was before it could be cancelled."""
        made = create_soon(daemon, "issue-9", seconds)
        request = pb.CancelScheduleRequest(id=made.id)
        answer = daemon.schedules.CancelSchedule(request, timeout=20).schedule
        if answer.state == pb.SCHEDULE_STATE_CANCELLED:
            return made
        too_late.append(made.id)
        return None

    gone = next(filter(None, map(cancelled, (1.0, 5.0, 25.0))))
    left = (gone.next_due.ToDatetime(UTC) - datetime.now(UTC)).total_seconds()
    stays = create_soon(daemon, "issue-9", max(left, 0.2) + 0.1).id
    told = (json.loads(message.event.payload_json)["scheduleId"] for message in stream)
    due = next(each for each in told if each not in too_late)
    cast(Any, stream).cancel()
    assert due == stays
