"""EventService: see proto/toban/v1/event.proto."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from operator import attrgetter

from toban.v1 import event_pb2 as pb
from toban.v1 import event_pb2_grpc
from toband.api import event_messages, event_requests, pages
from toband.api.common_requests import caller, identity, request_of
from toband.api.handler import Context, streaming, unary
from toband.api.request_errors import InvalidFieldError
from toband.domain.emitted_events import Emitted, EventState
from toband.engine.errors import StoppingError
from toband.engine.events.event_router import EventRouter
from toband.ports import Store

BATCH = 20
"""Events that a stream reads at once: they stay in memory while its reader does not take them."""


class EventService(event_pb2_grpc.EventServiceServicer):
    def __init__(self, events: EventRouter, store: Store) -> None:
        self._events = events
        self._store = store

    @unary
    async def EmitEvent(self, request: pb.EmitEventRequest, context: Context) -> pb.EmitEventResponse:
        event, created = await self._events.emit(
            event_requests.event_type(request.type),
            event_requests.payload(request.payload_json),
            caller=caller(),
            dedupe_key=event_requests.key(request.dedupe_key, "dedupe_key"),
            origin=event_requests.origin(request, context),
            request=request_of("EmitEvent", request, request.request_id),
        )
        step = identity().step
        if not created and step is not None and event.source_run != step.run_id:
            # A step may not read events of others.
            return pb.EmitEventResponse(event=pb.Event(id=event.id, type=event.type, dedupe_key=event.dedupe_key))
        return pb.EmitEventResponse(
            event=event_messages.event(event, pending=self._events.why_pending()), created=created
        )

    @unary
    async def GetEvent(self, request: pb.GetEventRequest, context: Context) -> pb.GetEventResponse:
        event = await self._events.get(event_requests.event_id(request.id))
        states = await self._store.known_runs({each.run_id for each in event.runs if each.run_id})
        # A deleted run had ended.
        ended = all(state.terminal for state in states.values()) and not any(each.awaits_events for each in event.runs)
        return pb.GetEventResponse(
            event=event_messages.event(event, pending=self._events.why_pending(), states=states),
            all_ended=ended and event.state is not EventState.PENDING,
        )

    @unary
    async def ListEvents(self, request: pb.ListEventsRequest, context: Context) -> pb.ListEventsResponse:
        types = event_requests.event_types(request.types)
        first = pages.number(request.page_token) if request.page_token else None
        pending = self._events.why_pending()

        async def read(last: Emitted | None, count: int) -> Sequence[Emitted]:
            before = last.sequence if last is not None else first
            return await self._store.list_events(types=types, before=before, limit=count)

        async def make(event: Emitted) -> pb.Event:
            return event_messages.event(event, pending=pending, listed=True)

        page = await pages.filled(pages.size(request.page_size, 100), read, make)
        return pb.ListEventsResponse(events=page.parts, next_page_token=page.token(attrgetter("sequence")))

    @streaming
    async def WatchEvents(
        self, request: pb.WatchEventsRequest, context: Context
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        types = event_requests.event_types(request.types)
        sequence = await self._begin(request)
        yield pb.WatchEventsResponse(sequence=sequence)
        while True:
            up_to = await self._events.wait_beyond(sequence)
            if up_to < 0:
                raise StoppingError("the daemon is stopping")
            while sequence < up_to:
                # A slow reader keeps these messages in memory, and nothing else.
                messages = await self._next(sequence, up_to, types)
                for message in messages:
                    yield message
                sequence = messages[-1].sequence if len(messages) == BATCH else up_to

    async def _begin(self, request: pb.WatchEventsRequest) -> int:
        """The sequence after which a stream begins. Raises InvalidFieldError."""
        last = await self._store.last_event()
        if not request.HasField("after_sequence"):
            # Events that are not resolved yet come too. A daemon that has just started has not read them yet.
            return self._events.resolved_to or last
        if not 0 <= request.after_sequence <= last:
            raise InvalidFieldError("after_sequence", f"must be from 0 to {last}, found {request.after_sequence}")
        return request.after_sequence

    async def _next(self, after: int, up_to: int, types: tuple[str, ...]) -> list[pb.WatchEventsResponse]:
        found = await self._store.events_after(after, up_to=up_to, types=types, limit=BATCH)
        return [
            pb.WatchEventsResponse(event=event_messages.event(each, listed=True), sequence=each.sequence)
            for each in found
        ]

    @unary
    async def ResolveEvent(self, request: pb.ResolveEventRequest, context: Context) -> pb.ResolveEventResponse:
        event_id = event_requests.stored_event(request)
        if event_id:
            found, others = await self._events.explain_stored(event_id)
        else:
            found, others = await self._events.explain(
                event_requests.event_type(request.type),
                event_requests.payload(request.payload_json),
            )
        candidates = [event_messages.candidate(each) for each in found]
        # Workflows that would be started come first.
        return pb.ResolveEventResponse(
            candidates=candidates[: pages.fitting(candidates)],
            others=others,
            pending=self._events.why_pending(),
        )
