"""EventService: its requests and its answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import grpc
import pytest

from toban.v1 import event_pb2 as pb
from toban.v1 import run_pb2, workflow_pb2
from toband.api import event_messages, event_service
from toband.api.event_service import EventService
from toband.api.handler import Context
from toband.domain.emitted_events import Emitted, EventRun, EventRunOutcome, EventSource, EventState
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.run_model import RunState
from toband.engine.caller import CallOrigin
from toband.engine.errors import EventNotFoundError, EventSourceNotFoundError
from toband.engine.events.event_matching import Candidate
from toband.engine.events.event_router import EventRouter
from toband.ports import Request, Store

from .called import CONTEXT, FakeContext, refused

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def event(sequence: int = 1, **more: Any) -> Emitted:
    known: dict[str, Any] = {
        "id": f"e{sequence}",
        "type": "A",
        "payload": {"n": sequence},
        "at": NOW,
        "source": EventSource.CLIENT,
        "sequence": sequence,
        "state": EventState.RESOLVED,
        "resolved_at": NOW,
    }
    return Emitted(**{**known, **more})


class FakeStore:
    def __init__(self) -> None:
        self.events: list[Emitted] = []
        self.states: dict[str, RunState] = {}
        self.last = 0

    async def known_runs(self, run_ids: set[str]) -> dict[str, RunState]:
        return {each: self.states[each] for each in run_ids if each in self.states}

    async def list_events(self, *, types: Sequence[str], before: int | None, limit: int) -> list[Emitted]:
        return [
            each
            for each in reversed(self.events)
            if (before is None or each.sequence < before) and (not types or each.type in types)
        ][:limit]

    async def events_after(self, sequence: int, *, up_to: int, types: Sequence[str], limit: int) -> list[Emitted]:
        return [
            each for each in self.events if sequence < each.sequence <= up_to and (not types or each.type in types)
        ][:limit]

    async def last_event(self) -> int:
        return self.last or max((each.sequence for each in self.events), default=0)


class FakeEvents:
    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.resolved_to = 0
        self.pending = ""
        self.emitted: list[tuple[Any, ...]] = []
        self.candidates: list[Candidate] = []
        self.advanced = asyncio.Event()

    async def emit(
        self,
        event_type: str,
        payload: Any,
        *,
        caller: str,
        dedupe_key: str,
        origin: CallOrigin | None,
        request: Request | None,
    ) -> tuple[Emitted, bool]:
        if origin is not None and origin.run_id == "none":
            raise EventSourceNotFoundError(origin.run_id)
        self.emitted.append((event_type, payload, caller, dedupe_key, origin, request))
        state = EventState.PENDING if self.pending else EventState.RESOLVED
        return event(type=event_type, payload=payload, state=state), True

    async def get(self, event_id: str) -> Emitted:
        for each in self.store.events:
            if each.id == event_id:
                return each
        raise EventNotFoundError(event_id)

    async def explain(self, event_type: str, payload: Any) -> tuple[list[Candidate], int]:
        return self.candidates, 7

    async def explain_stored(self, event_id: str) -> tuple[list[Candidate], int]:
        await self.get(event_id)
        return self.candidates[:1], 3

    async def wait_beyond(self, sequence: int) -> int:
        while 0 <= self.resolved_to <= sequence:
            await self.advanced.wait()
        return self.resolved_to

    def advance(self, sequence: int) -> None:
        self.resolved_to = sequence
        advanced, self.advanced = self.advanced, asyncio.Event()
        advanced.set()

    def why_pending(self) -> str:
        return self.pending


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def events(store: FakeStore) -> FakeEvents:
    return FakeEvents(store)


@pytest.fixture
def service(store: FakeStore, events: FakeEvents) -> EventService:
    return EventService(cast(EventRouter, events), cast(Store, store))


def emitted(service: EventService, **fields: Any) -> Any:
    return service.EmitEvent(pb.EmitEventRequest(**{"type": "A", **fields}), CONTEXT)


# -- emitting


async def test_an_event_is_taken_as_it_was_sent(service: EventService, events: FakeEvents) -> None:
    answer = await emitted(
        service,
        type="DATA_CHANGED",
        payload_json='{"entity": "課題", "n": 9007199254740993, "deep": [1.5, null, true]}',
        dedupe_key="k 1",
        request_id="r",
        origin=pb.EventOrigin(run_id="run", attempt_token="t"),
    )
    [(kind, payload, caller, key, origin, request)] = events.emitted
    assert (kind, caller, key) == ("DATA_CHANGED", "uid:1000 (aiko)", "k 1")
    assert payload == {"entity": "課題", "n": 9007199254740993, "deep": [1.5, None, True]}
    assert origin == CallOrigin(run_id="run", token="t", is_caller=False)
    assert (request.rpc, request.id) == ("EmitEvent", "r")
    assert answer.created
    assert json.loads(answer.event.payload_json) == payload
    assert answer.event.state == pb.EVENT_STATE_RESOLVED


async def test_the_metadata_of_a_call_may_say_where_it_is_from(service: EventService, events: FakeEvents) -> None:
    context = cast(Context, FakeContext(**{"toban-origin": "run/t"}))
    await service.EmitEvent(pb.EmitEventRequest(type="A"), context)
    assert events.emitted[0][4] == CallOrigin(run_id="run", token="t", is_caller=False)
    own = pb.EventOrigin(run_id="other", attempt_token="u")
    await service.EmitEvent(pb.EmitEventRequest(type="A", origin=own), context)
    assert events.emitted[1][4] == CallOrigin(run_id="other", token="u", is_caller=False)


@pytest.mark.parametrize("text", ["", "run", "/t", "run/"])
async def test_metadata_that_cannot_say_where_a_call_is_from(
    service: EventService, events: FakeEvents, text: str
) -> None:
    context = cast(Context, FakeContext(**{"toban-origin": text}))
    refusal = await refused(service.EmitEvent(pb.EmitEventRequest(type="A"), context))
    assert (refusal.reason, refusal.fields) == ("INVALID_ARGUMENT", ["toban-origin"])
    assert events.emitted == []


async def test_what_is_left_out(service: EventService, events: FakeEvents) -> None:
    await emitted(service)
    assert events.emitted == [("A", {}, "uid:1000 (aiko)", "", None, None)]


async def test_one_that_waits_says_for_what(service: EventService, events: FakeEvents) -> None:
    events.pending = "the daemon drains"
    answer = await emitted(service)
    assert (answer.event.state, answer.event.reason) == (
        pb.EVENT_STATE_PENDING,
        "the daemon drains",
    )


@pytest.mark.parametrize("payload", ["null", "3", '"x"', "[]", "false", '"\\ud83d\\ude00"'])
async def test_any_json_value_is_a_payload(service: EventService, events: FakeEvents, payload: str) -> None:
    await emitted(service, payload_json=payload)
    assert events.emitted[0][1] == json.loads(payload)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (
            "{",
            "invalid JSON: Expecting property name enclosed in double quotes (line 1, column 2",
        ),
        ('{"a": 1,\n "b" 2}', "(line 2, column 6)"),
        (" ", "invalid JSON"),
        ("NaN", "NaN is not a JSON value"),
        ("[-Infinity]", "-Infinity is not a JSON value"),
        ("1e999", "not finite"),
        ('"\\u0000"', "NUL"),
        ('{"a\\u0000": 1}', "NUL"),
        ('["\\ud800"]', "not valid Unicode"),
        (f'"{"x" * 65535}"', "must have at most 65536 bytes, found 65537"),
        ("課" * 30_000, "found 90000"),
        ("[" * 65 + "]" * 65, "nested more than 64 levels"),
        ("[" * 30_000, "nested too deep"),
        (str(2**63), "out of range"),
        ("9" * 5000, "invalid JSON"),
    ],
    ids=range(15),
)
async def test_payloads_that_cannot_be_kept(service: EventService, events: FakeEvents, payload: str, text: str) -> None:
    calls = [
        emitted(service, payload_json=payload),
        service.ResolveEvent(pb.ResolveEventRequest(type="A", payload_json=payload), CONTEXT),
    ]
    for call in calls:
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_ARGUMENT",
        )
        assert refusal.fields == ["payload_json"]
        assert text in refusal.text
    assert events.emitted == []


async def test_the_largest_payload(service: EventService, events: FakeEvents) -> None:
    answer = await emitted(service, payload_json=f'"{"x" * 65534}"')
    assert answer.event.payload_bytes == 65536


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"type": ""}, "type"),
        ({"type": "a b"}, "type"),
        ({"type": "a\0"}, "type"),
        ({"type": "x" * 129}, "type"),
        ({"dedupe_key": "x" * 257}, "dedupe_key"),
        ({"dedupe_key": "a\nb"}, "dedupe_key"),
        ({"dedupe_key": "\0"}, "dedupe_key"),
        ({"request_id": "x" * 129}, "request_id"),
        ({"origin": pb.EventOrigin()}, "origin.run_id"),
        ({"origin": pb.EventOrigin(run_id="r")}, "origin.attempt_token"),
        ({"origin": pb.EventOrigin(run_id="r\0", attempt_token="t")}, "origin.run_id"),
    ],
)
async def test_fields_that_cannot_be(
    service: EventService, events: FakeEvents, fields: dict[str, Any], wrong: str
) -> None:
    refusal = await refused(emitted(service, **fields))
    assert (refusal.reason, refusal.fields) == ("INVALID_ARGUMENT", [wrong])
    assert events.emitted == []


async def test_a_source_that_is_not_there(service: EventService) -> None:
    origin = pb.EventOrigin(run_id="none", attempt_token="t")
    refusal = await refused(emitted(service, origin=origin))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.NOT_FOUND,
        "EVENT_SOURCE_NOT_FOUND",
    )


# -- telling


async def test_an_event_with_its_runs(service: EventService, store: FakeStore) -> None:
    started, skipped = EventRunOutcome.STARTED, EventRunOutcome.SKIPPED
    runs = (
        EventRun(workflow="a", priority=5, outcome=started, run_id="r1"),
        EventRun(
            workflow="b", priority=0, outcome=skipped, reason=NotStarted(NotStartedReason.OVERLAP, "it is active")
        ),
        EventRun(workflow="c", priority=0, outcome=started, run_id="gone"),
    )
    store.events = [
        event(
            runs=runs,
            source=EventSource.STEP,
            source_run="r",
            source_step="s",
            depth=2,
            caller="uid:1000 (aiko)",
            dedupe_key="k",
        )
    ]
    store.states = {"r1": RunState.RUNNING}
    answer = await service.GetEvent(pb.GetEventRequest(id="e1"), CONTEXT)
    made = answer.event
    assert (made.source, made.source_run, made.source_step) == (pb.EVENT_SOURCE_STEP, "r", "s")
    assert (made.depth, made.dedupe_key, made.caller, made.sequence) == (2, "k", "uid:1000 (aiko)", 1)
    assert made.emitted_at.ToDatetime(tzinfo=UTC) == NOW
    assert made.resolved_at.ToDatetime(tzinfo=UTC) == NOW
    assert [(each.workflow, each.priority, each.run_id) for each in made.runs] == [
        ("a", 5, "r1"),
        ("b", 0, ""),
        ("c", 0, "gone"),
    ]
    assert made.runs[1].outcome == pb.EVENT_RUN_OUTCOME_SKIPPED
    assert (made.runs[1].reason, made.runs[1].detail) == (workflow_pb2.NOT_STARTED_REASON_OVERLAP, "it is active")
    assert [each.run_state for each in made.runs] == [run_pb2.RUN_STATE_RUNNING, 0, 0]
    assert not answer.all_ended
    store.states = {"r1": RunState.FAILED}
    assert (await service.GetEvent(pb.GetEventRequest(id="e1"), CONTEXT)).all_ended


async def test_nothing_has_ended_while_nothing_is_decided(service: EventService, store: FakeStore) -> None:
    store.events = [event(state=EventState.PENDING), event(2, state=EventState.CUT, reason="why")]
    assert not (await service.GetEvent(pb.GetEventRequest(id="e1"), CONTEXT)).all_ended
    cut = await service.GetEvent(pb.GetEventRequest(id="e2"), CONTEXT)
    assert (cut.all_ended, cut.event.reason, cut.event.state) == (True, "why", pb.EVENT_STATE_CUT)


@pytest.mark.parametrize("event_id", ["", "none", "a\0b", "日本", "x" * 100_000, "../.."])
async def test_an_event_that_is_not_there(service: EventService, event_id: str) -> None:
    refusal = await refused(service.GetEvent(pb.GetEventRequest(id=event_id), CONTEXT))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "EVENT_NOT_FOUND")


def test_halves_of_surrogate_pairs_are_told_escaped() -> None:
    made = event_messages.event(event(payload={"path": "a\udcff"}))
    assert made.payload_json == '{"path":"a\\udcff"}'


def test_every_value_has_its_name_in_the_api() -> None:
    for source in EventSource:
        pb.EventSource.Value(f"EVENT_SOURCE_{source.value.upper()}")
    for state in EventState:
        pb.EventState.Value(f"EVENT_STATE_{state.value}")
    for outcome in EventRunOutcome:
        pb.EventRunOutcome.Value(f"EVENT_RUN_OUTCOME_{outcome.value}")


async def test_pages(service: EventService, store: FakeStore) -> None:
    store.events = [event(n, type="A" if n % 2 else "B") for n in range(1, 8)]
    token, found = "", []
    while True:
        answer = await service.ListEvents(pb.ListEventsRequest(types=["A"], page_size=3, page_token=token), CONTEXT)
        found.append([each.sequence for each in answer.events])
        token = answer.next_page_token
        if not token:
            break
    assert found == [[7, 5, 3], [1]]


async def test_large_payloads_are_left_out_of_lists(service: EventService, store: FakeStore) -> None:
    store.events = [event(1, payload="x" * 4094), event(2, payload="x" * 4095)]
    answer = await service.ListEvents(pb.ListEventsRequest(), CONTEXT)
    assert [len(each.payload_json) for each in answer.events] == [0, 4096]
    assert [each.payload_bytes for each in answer.events] == [4097, 4096]
    whole = await service.GetEvent(pb.GetEventRequest(id="e2"), CONTEXT)
    assert len(whole.event.payload_json) == 4097


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"page_size": -1}, "page_size"),
        ({"page_token": "?"}, "page_token"),
        ({"types": [""]}, "types"),
        ({"types": ["a", "a\0"]}, "types"),
        ({"types": [f"T{n}" for n in range(101)]}, "types"),
    ],
)
async def test_lists_that_cannot_be(service: EventService, fields: dict[str, Any], wrong: str) -> None:
    refusal = await refused(service.ListEvents(pb.ListEventsRequest(**fields), CONTEXT))
    assert (refusal.reason, refusal.fields) == ("INVALID_ARGUMENT", [wrong])


async def test_what_would_be_started(service: EventService, events: FakeEvents) -> None:
    events.candidates = [
        Candidate(workflow="w", matches=True, priority=-3, condition="true", reason="it is true"),
        Candidate(workflow="x", matches=False, priority=0, condition="", reason="it is disabled"),
    ]
    answer = await service.ResolveEvent(pb.ResolveEventRequest(type="A"), CONTEXT)
    assert answer.others == 7
    assert answer.candidates[0] == pb.EventCandidate(
        workflow="w", matches=True, priority=-3, condition="true", reason="it is true"
    )
    assert answer.candidates[1].reason == "it is disabled"
    assert answer.pending == ""
    events.pending = "the daemon drains"
    answer = await service.ResolveEvent(pb.ResolveEventRequest(type="A"), CONTEXT)
    assert (len(answer.candidates), answer.pending) == (2, "the daemon drains")


async def test_what_a_stored_event_would_start(service: EventService, events: FakeEvents, store: FakeStore) -> None:
    store.events = [event(1)]
    events.candidates = [
        Candidate(workflow="w", matches=True, priority=0, condition="", reason="it listens"),
    ]
    answer = await service.ResolveEvent(pb.ResolveEventRequest(event_id="e1"), CONTEXT)
    assert ([each.workflow for each in answer.candidates], answer.others) == (["w"], 3)
    for unknown in ("e2", "a\0b"):
        refusal = await refused(service.ResolveEvent(pb.ResolveEventRequest(event_id=unknown), CONTEXT))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "EVENT_NOT_FOUND")
    refusal = await refused(service.ResolveEvent(pb.ResolveEventRequest(), CONTEXT))
    assert (refusal.reason, refusal.fields) == ("INVALID_ARGUMENT", ["type"])
    for more in ({"type": "A"}, {"payload_json": "{}"}):
        request = pb.ResolveEventRequest(event_id="e1", **more)
        refusal = await refused(service.ResolveEvent(request, CONTEXT))
        assert (refusal.reason, refusal.fields) == ("INVALID_ARGUMENT", ["event_id"])


# -- watching


def watch(service: EventService, **fields: Any) -> AsyncIterator[pb.WatchEventsResponse]:
    answers: Any = service.WatchEvents(pb.WatchEventsRequest(**fields), CONTEXT)
    found: AsyncIterator[pb.WatchEventsResponse] = answers
    return found


async def test_a_stream_begins_now(service: EventService, store: FakeStore, events: FakeEvents) -> None:
    store.events = [event(1), event(2), event(3, state=EventState.PENDING)]
    events.resolved_to = 2
    async with asyncio.timeout(30):
        stream = watch(service)
        begun = await anext(stream)
        assert (begun.HasField("event"), begun.sequence) == (False, 2)
        following = asyncio.ensure_future(anext(stream))
        store.events[2] = event(3)
        events.advance(3)
        assert (await following).event.id == "e3"


async def test_a_daemon_that_has_just_started_does_not_tell_of_old_events(
    service: EventService, store: FakeStore
) -> None:
    store.events = [event(1), event(2)]
    assert (await anext(watch(service))).sequence == 2


async def test_from_the_oldest_in_order_and_of_one_type(
    service: EventService,
    store: FakeStore,
    events: FakeEvents,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_service, "BATCH", 2)
    store.events = [event(n, type="A" if n % 3 else "B") for n in range(1, 11)]
    events.resolved_to = 10
    async with asyncio.timeout(30):
        stream = watch(service, after_sequence=0)
        assert (await anext(stream)).sequence == 0
        assert [(await anext(stream)).sequence for _ in range(10)] == list(range(1, 11))
        some = watch(service, after_sequence=3, types=["B"])
        assert [(await anext(some)).sequence for _ in range(3)] == [3, 6, 9]
        following = asyncio.ensure_future(anext(some))
        store.events.append(event(11, type="A"))
        events.advance(11)
        store.events.append(event(12, type="B", payload="x" * 5000))
        events.advance(12)
        last = await following
    assert (last.sequence, last.event.payload_json, last.event.payload_bytes) == (12, "", 5002)


async def test_a_stream_is_broken_off_when_the_daemon_stops(service: EventService, events: FakeEvents) -> None:
    stream = watch(service)
    await anext(stream)
    events.advance(-1)
    refusal = await refused(anext(stream))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STOPPING")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"after_sequence": -1}, "after_sequence"),
        ({"after_sequence": 2}, "after_sequence"),
        ({"after_sequence": 1 << 62}, "after_sequence"),
        ({"types": ["a b"]}, "types"),
    ],
)
async def test_streams_that_cannot_be(
    service: EventService, store: FakeStore, fields: dict[str, Any], wrong: str
) -> None:
    store.events = [event(1)]
    refusal = await refused(anext(watch(service, **fields)))
    assert (refusal.reason, refusal.fields) == ("INVALID_ARGUMENT", [wrong])


async def test_a_reader_who_waits_holds_only_what_was_read_for_it(
    service: EventService,
    store: FakeStore,
    events: FakeEvents,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    read = store.events_after

    async def counted(sequence: int, **how: Any) -> list[Emitted]:
        asked.append(sequence)
        return await read(sequence, **how)

    monkeypatch.setattr(store, "events_after", counted)
    monkeypatch.setattr(event_service, "BATCH", 2)
    store.events = [replace(event(n), payload="x") for n in range(1, 101)]
    events.resolved_to = 100
    stream = watch(service, after_sequence=0)
    for _ in range(3):
        await anext(stream)
    assert asked == [0]
