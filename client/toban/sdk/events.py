"""Calls of the EventService, and a stream of events that survives a lost connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from functools import cached_property
from typing import Any

import grpc.aio

from toban.sdk.address import Address
from toban.sdk.base import Calls, new_request_id, paged
from toban.sdk.connection import Metadata
from toban.sdk.message_values import to_json
from toban.sdk.origin import step_origin
from toban.sdk.runs import RECONNECT
from toban.v1 import event_pb2, event_pb2_grpc


class EventCalls(Calls):
    """Emits events, and reads events and their outcome."""

    @cached_property
    def _events(self) -> event_pb2_grpc.EventServiceAsyncStub:
        return event_pb2_grpc.EventServiceStub(self._connection.channel)

    async def emit_event(
        self,
        event_type: str,
        payload: Any = None,
        *,
        payload_json: str = "",
        dedupe_key: str = "",
        request_id: str | None = None,
    ) -> tuple[event_pb2.Event, bool]:
        """Stores an event, which starts the workflows that listen to it; returns the event, and whether it is new.

        If a stored event of this type has the same `dedupe_key`, nothing is stored and that event is returned.
        `payload` is any JSON value; None means {}. `payload_json` replaces it with JSON text, which may be `null` too.
        Inside a step of this daemon, the event names that step as its source. Raises InvalidArgument, NotFound
        `EVENT_SOURCE_NOT_FOUND`, and others as `start_run`.
        """
        answer = await self._connection.call(
            self._events.EmitEvent,
            event_pb2.EmitEventRequest(
                type=event_type,
                payload_json=payload_json or _payload(payload),
                dedupe_key=dedupe_key,
                request_id=new_request_id(request_id),
                origin=_origin(self._connection.address),
            ),
        )
        return answer.event, answer.created

    async def get_event(self, event_id: str) -> event_pb2.GetEventResponse:
        """One event, its runs with their states, and whether all of them have ended. Raises NotFound."""
        return await self._connection.call(self._events.GetEvent, event_pb2.GetEventRequest(id=event_id))

    def list_events(self, *, types: Iterable[str] = (), page_size: int = 0) -> AsyncGenerator[event_pb2.Event, None]:
        """Events, newest first; of these types, if any is given. Payloads over 4 KiB are omitted."""
        wanted = list(types)

        async def fetch(token: str) -> tuple[list[event_pb2.Event], str]:
            answer = await self._connection.call(
                self._events.ListEvents,
                event_pb2.ListEventsRequest(types=wanted, page_size=page_size, page_token=token),
            )
            return list(answer.events), answer.next_page_token

        return paged(fetch)

    async def watch_events(
        self,
        *,
        types: Iterable[str] = (),
        after_sequence: int | None = None,
        reconnect: float = RECONNECT,
    ) -> AsyncGenerator[event_pb2.WatchEventsResponse, None]:
        """Events in order, each when it is resolved; the first message has no event and confirms that the stream is set
        up.

        `after_sequence` resumes after that event, or with 0 at the oldest stored one; without it the stream has only
        new events. Resumes after a restart of the daemon, without loss or repetition, and never ends on its own. Raises
        InvalidArgument, and Unreachable when the daemon is unavailable for `reconnect` seconds.
        """
        request = event_pb2.WatchEventsRequest(types=list(types), after_sequence=after_sequence)
        told = False

        def open_stream(metadata: Metadata) -> grpc.aio.UnaryStreamCall[Any, event_pb2.WatchEventsResponse]:
            return self._events.WatchEvents(request, metadata=metadata)

        messages = self._connection.stream(open_stream, ended=lambda _: False, reconnect=reconnect)
        async with aclosing(messages):
            async for message in messages:
                if message.HasField("event"):
                    if message.sequence <= request.after_sequence:
                        continue
                elif told:
                    # The confirmation of a resumed stream is not for the caller.
                    request.after_sequence = max(request.after_sequence, message.sequence)
                    continue
                told = True
                request.after_sequence = message.sequence
                yield message

    async def resolve_event(
        self,
        event_type: str = "",
        payload: Any = None,
        *,
        payload_json: str = "",
        event_id: str = "",
    ) -> event_pb2.ResolveEventResponse:
        """The workflows that such an event would start now, in order, and why others would not start; emits nothing.

        Pass the payload as to `emit_event`, or the `event_id` of a stored event to use that event unchanged. Raises
        InvalidArgument, and NotFound for an unknown event.
        """
        return await self._connection.call(
            self._events.ResolveEvent,
            event_pb2.ResolveEventRequest(
                type=event_type,
                payload_json=payload_json or _payload(payload),
                event_id=event_id,
            ),
        )


def _origin(address: Address) -> event_pb2.EventOrigin | None:
    origin = step_origin(address)
    if origin is None:
        return None
    return event_pb2.EventOrigin(run_id=origin.run_id, attempt_token=origin.token)


def _payload(value: Any) -> str:
    return "" if value is None else to_json(value, "payload")
