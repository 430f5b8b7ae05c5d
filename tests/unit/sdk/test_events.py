from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest

from doubles.daemon.fake_daemon import DEADLINE, FakeDaemon
from toban.sdk import Client, InvalidArgument, NotFound, SyncClient, Unreachable
from toban.sdk.address import parse
from toban.sdk.origin import Origin, step_origin
from toban.v1 import event_pb2, run_pb2, schedule_pb2

AT = datetime(2099, 2, 1, 3, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def outside_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOBAN_RUN_ID", "TOBAN_ATTEMPT_TOKEN", "TOBAN_SERVER"):
        monkeypatch.delenv(name, raising=False)


def seen(daemon: FakeDaemon) -> Any:
    return daemon.seen[-1]


async def test_an_event_is_emitted_once_and_tells_what_it_started(daemon: FakeDaemon) -> None:
    daemon.listeners["DATA_CHANGED"] = ["index", "notify"]
    daemon.lose["EmitEvent"] = 1
    async with Client(daemon.address) as client:
        event, created = await client.emit_event("DATA_CHANGED", {"entity": "課題", "n": 2**60})
        assert created
        assert [each.workflow for each in event.runs] == ["index", "notify"]
        assert seen(daemon).payload_json == '{"entity": "課題", "n": 1152921504606846976}'
        assert not seen(daemon).HasField("origin")
        found = await client.get_event(event.id)
        assert not found.all_ended
        assert {each.run_state for each in found.event.runs} == {run_pb2.RUN_STATE_RUNNING}
        for record in daemon.runs.values():
            daemon.finish(record, run_pb2.RUN_STATE_SUCCEEDED)
        assert (await client.get_event(event.id)).all_ended
        with pytest.raises(NotFound):
            await client.get_event("none")
    assert len(daemon.events) == 1
    assert daemon.calls["EmitEvent"] == 2


async def test_a_dedupe_key_answers_the_earlier_event(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        first, new = await client.emit_event("A", dedupe_key="k")
        again, also_new = await client.emit_event("A", [1], dedupe_key="k")
    assert (new, also_new, first.id) == (True, False, again.id)
    assert (first.payload_json, len(daemon.events)) == ("{}", 1)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"at": AT}, "payload.at: datetime is no JSON value"),
        ([1, float("nan")], "a number in it is not finite"),
        ({"a": ["\ud800"]}, "not valid Unicode"),
        ({"a": {1: 2}}, "payload.a: the key 1 is no string"),
    ],
)
async def test_what_is_no_json_is_not_sent(daemon: FakeDaemon, payload: Any, text: str) -> None:
    async with Client(daemon.address) as client:
        for call in (client.emit_event, client.resolve_event):
            with pytest.raises(InvalidArgument, match=text):
                await call("A", payload)
    assert daemon.seen == []


async def test_a_payload_without_an_end_is_not_sent(daemon: FakeDaemon) -> None:
    endless: list[Any] = []
    endless.append(endless)
    async with Client(daemon.address) as client:
        with pytest.raises(InvalidArgument, match="nested too deep"):
            await client.emit_event("A", endless)


@pytest.mark.parametrize(
    ("payload", "sent"),
    [
        (None, ""),
        (0, "0"),
        (False, "false"),
        ("", '""'),
        ([], "[]"),
        (MappingProxyType({"a": (1, 2)}), '{"a": [1, 2]}'),
    ],
)
async def test_any_json_value_is_a_payload(daemon: FakeDaemon, payload: Any, sent: str) -> None:
    async with Client(daemon.address) as client:
        await client.emit_event("A", payload)
    assert seen(daemon).payload_json == sent


async def test_a_payload_that_is_a_text_already(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        await client.emit_event("A", payload_json="null")
        assert seen(daemon).payload_json == "null"
        await client.resolve_event("A", payload_json="null")
    assert daemon.seen[-1] == event_pb2.ResolveEventRequest(type="A", payload_json="null")


async def test_inside_of_a_step_the_event_says_which(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOBAN_RUN_ID", "r")
    monkeypatch.setenv("TOBAN_ATTEMPT_TOKEN", "t")
    monkeypatch.setenv("TOBAN_SERVER", daemon.address)
    async with Client() as client:
        event, _ = await client.emit_event("A")
    assert seen(daemon).origin == event_pb2.EventOrigin(run_id="r", attempt_token="t")
    assert (event.source, event.source_run) == (event_pb2.EVENT_SOURCE_STEP, "r")


def test_an_origin_is_of_the_daemon_that_started_the_step() -> None:
    inside = {
        "TOBAN_RUN_ID": "r",
        "TOBAN_ATTEMPT_TOKEN": "t",
        "TOBAN_SERVER": "unix:///run/toban/toban.sock",
    }
    own = parse("unix:///run/toban/toban.sock")
    assert step_origin(own, inside) == Origin(run_id="r", token="t")
    assert step_origin(parse("127.0.0.1:7070"), inside) is None
    for name in inside:
        assert step_origin(own, {**inside, name: ""}) is None
    assert step_origin(own, {**inside, "TOBAN_SERVER": "elsewhere"}) is None


async def test_inside_of_a_step_every_call_says_which(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.add_workflow("w")
    async with Client(daemon.address) as client:
        await client.get_workflow("w")
    assert "toban-origin" not in daemon.metadata
    monkeypatch.setenv("TOBAN_RUN_ID", "r")
    monkeypatch.setenv("TOBAN_ATTEMPT_TOKEN", "t")
    monkeypatch.setenv("TOBAN_SERVER", daemon.address)
    async with Client() as client:
        await client.get_workflow("w")
    assert daemon.metadata["toban-origin"] == "r/t"
    # What a header cannot carry is no reason to fail.
    monkeypatch.setenv("TOBAN_RUN_ID", "é\n")
    async with Client() as client:
        await client.get_workflow("w")
    assert "toban-origin" not in daemon.metadata


async def test_what_a_stored_event_would_start_is_asked_by_its_id(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        await client.resolve_event(event_id="e")
    assert seen(daemon) == event_pb2.ResolveEventRequest(event_id="e")


async def test_lists_page_by_themselves(daemon: FakeDaemon) -> None:
    for number in range(5):
        daemon.add_event("A" if number % 2 else "B")
    async with Client(daemon.address) as client:
        assert [e.sequence async for e in client.list_events(page_size=2)] == [5, 4, 3, 2, 1]
        assert [e.sequence async for e in client.list_events(types=["A"])] == [4, 2]


async def test_watching_goes_on_after_a_restart(daemon: FakeDaemon) -> None:
    daemon.add_event("BEFORE")
    async with Client(daemon.address) as client, asyncio.timeout(DEADLINE):
        messages = client.watch_events()
        begun = await anext(messages)
        assert (begun.HasField("event"), begun.sequence) == (False, 1)
        daemon.add_event("A")
        assert (await anext(messages)).event.type == "A"
        daemon.stop()
        daemon.add_event("AWAY")
        daemon.start()
        assert (await anext(messages)).event.type == "AWAY"
        daemon.add_event("BACK")
        last = await anext(messages)
        assert (last.event.type, last.sequence) == ("BACK", 4)
        await messages.aclose()
    assert daemon.calls["WatchEvents"] >= 2


async def test_nothing_is_lost_before_the_first_event(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client, asyncio.timeout(DEADLINE):
        messages = client.watch_events(types=["A"])
        assert (await anext(messages)).sequence == 0
        daemon.stop()
        daemon.add_event("B")
        daemon.add_event("A")
        daemon.start()
        assert (await anext(messages)).sequence == 2
        await messages.aclose()


async def test_watching_from_the_oldest(daemon: FakeDaemon) -> None:
    daemon.add_event("A")
    daemon.add_event("B")
    async with Client(daemon.address) as client, asyncio.timeout(DEADLINE):
        messages = client.watch_events(after_sequence=0)
        found = [await anext(messages) for _ in range(3)]
        await messages.aclose()
    assert [message.sequence for message in found] == [0, 1, 2]


async def test_a_daemon_that_stays_away_ends_the_watch(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        messages = client.watch_events(reconnect=0.2)
        await anext(messages)
        daemon.stop()
        with pytest.raises(Unreachable):
            await anext(messages)


async def test_what_an_event_would_start(daemon: FakeDaemon) -> None:
    daemon.resolution.candidates.add(workflow="w", matches=True)
    async with Client(daemon.address) as client:
        assert (await client.resolve_event("A", {"x": 1})).candidates[0].workflow == "w"
    assert (seen(daemon).type, seen(daemon).payload_json) == ("A", '{"x": 1}')
    assert daemon.events == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"words": "明日の15時"}, schedule_pb2.ScheduleRule(words="明日の15時")),
        ({"cron": "0 9 * * *"}, schedule_pb2.ScheduleRule(cron="0 9 * * *")),
    ],
)
async def test_a_schedule_in_words_or_by_rule(
    daemon: FakeDaemon, given: dict[str, Any], expected: schedule_pb2.ScheduleRule
) -> None:
    daemon.lose["CreateSchedule"] = 1
    async with Client(daemon.address) as client:
        schedule, created = await client.create_schedule(
            "issue-42", **given, action="check_progress", params={"a": 1}, max_occurrences=7
        )
    assert created
    assert schedule.understood
    assert seen(daemon).rule == expected
    assert seen(daemon).params["a"] == 1
    assert schedule.action == schedule_pb2.SCHEDULE_ACTION_CHECK_PROGRESS
    assert len(daemon.schedules) == 1


async def test_spans_and_moments(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        await client.create_schedule("s", every=90.5, workflow="w")
        assert seen(daemon).rule.every.ToTimedelta() == timedelta(seconds=90.5)
        await client.create_schedule("s", every=timedelta(hours=2), workflow="w")
        assert seen(daemon).rule.every.ToTimedelta() == timedelta(hours=2)
        assert seen(daemon).action == schedule_pb2.SCHEDULE_ACTION_UNSPECIFIED
        await client.create_schedule("s", at=AT, action=schedule_pb2.SCHEDULE_ACTION_REMINDER)
        assert seen(daemon).rule.at.ToDatetime(tzinfo=UTC) == AT
        assert seen(daemon).action == schedule_pb2.SCHEDULE_ACTION_REMINDER


@pytest.mark.parametrize("action", ["follow_up", "follow-up", "Follow-Up"])
async def test_an_action_is_written_as_on_the_command_line(daemon: FakeDaemon, action: str) -> None:
    async with Client(daemon.address) as client:
        await client.create_schedule("s", "tomorrow", action=action)
    assert seen(daemon).action == schedule_pb2.SCHEDULE_ACTION_FOLLOW_UP


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "expected one of words, cron, every and at"),
        ({"words": "tomorrow", "at": AT}, "found words and at"),
        ({"at": AT.replace(tzinfo=None)}, "has no time zone"),
        ({"every": float("inf")}, "not a span of time"),
        ({"every": 1e30}, "not a span of time"),
        ({"words": "tomorrow", "action": "dance"}, "found 'dance', expected one of reminder"),
        ({"words": "NONSENSE", "action": "reminder"}, "examples: "),
    ],
)
async def test_schedules_that_cannot_be(daemon: FakeDaemon, given: dict[str, Any], text: str) -> None:
    async with Client(daemon.address) as client:
        with pytest.raises(InvalidArgument, match=text):
            await client.create_schedule("s", **given)
    assert daemon.schedules == {}


async def test_schedules_are_listed_and_cancelled(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        made = [(await client.create_schedule("a", "tomorrow", action="reminder"))[0].id for _ in range(3)]
        other, _ = await client.create_schedule("b", "tomorrow", workflow="w", dedupe_key="k")
        again, created = await client.create_schedule("b", "tomorrow", workflow="w", dedupe_key="k")
        assert (again.id, created) == (other.id, False)
        assert [s.id async for s in client.list_schedules(subject="a", page_size=2)] == made
        assert [s.id async for s in client.list_schedules(workflow="w")] == [other.id]
        cancelled = await client.cancel_schedule(made[0])
        assert cancelled.state == schedule_pb2.SCHEDULE_STATE_CANCELLED
        assert await client.cancel_by_subject("a") == 2
        assert await client.cancel_by_subject("a") == 0
        assert [s.id async for s in client.list_schedules()] == [other.id]
        assert len([s async for s in client.list_schedules(include_ended=True)]) == 4
        assert (await client.get_schedule(made[0])).HasField("cancelled_at")
        for call in (client.get_schedule, client.cancel_schedule):
            with pytest.raises(NotFound):
                await call("none")


def test_the_blocking_client_has_them_too(daemon: FakeDaemon) -> None:
    with SyncClient(daemon.address) as client:
        event, created = client.emit_event("A", {"x": 1})
        assert created
        messages = client.watch_events(after_sequence=0)
        assert [next(messages).sequence, next(messages).event.id] == [0, event.id]
        messages.close()
        assert [each.id for each in client.list_events()] == [event.id]
        assert client.interpret_time("tomorrow").timezone == "Asia/Tokyo"
        with pytest.raises(InvalidArgument) as caught:
            client.interpret_time("NONSENSE")
    assert caught.value.reason == "TIME_NOT_UNDERSTOOD"
