"""`/stream`: every change that a caller may see, of runs and of events, in one stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from toban.gateway.daemon_calls import DaemonCalls
from toban.gateway.log_events import RECONNECT
from toban.gateway.problem_details import RefusedRequestError
from toban.gateway.server_sent_events import event, merged
from toban.message_json.message_data import to_dict
from toban.sdk.connection import Metadata
from toban.sdk.errors import Refused, Unauthenticated
from toban.v1 import event_pb2, run_pb2


class ChangeStream:
    """One caller's stream. Each event's `id` is the position in both streams of the daemon."""

    def __init__(self, calls: DaemonCalls, token: str, position: Mapping[str, Any] | None, workflow: str) -> None:
        found = position or {}
        self._runs, self._events = found.get("r", ""), found.get("e")
        known = self._events is None or (isinstance(self._events, int) and 0 <= self._events < 2**63)
        if not isinstance(self._runs, str) or not known:
            text = "Last-Event-ID must be the id of an event of this stream"
            raise RefusedRequestError(422, "INVALID_POSITION", text)
        self._calls = calls
        self._token = token
        self._workflow = workflow
        self._begun = position is not None

    async def begin(self) -> None:
        """Notes where the stream of events is, so that none is lost before the first one. Raises a TobanError."""
        if self._begun or self._workflow:
            return
        request = event_pb2.ListEventsRequest(page_size=1)
        try:
            page: event_pb2.ListEventsResponse = await self._calls.call("EventService/ListEvents", request, self._token)
        except Unauthenticated:
            raise
        except Refused:
            # A caller that is limited to some workflows may not see events: it has the changes of its runs.
            return
        self._events = page.events[0].sequence if page.events else 0

    def changes(self) -> AsyncGenerator[bytes, None]:
        """Raises a TobanError."""
        if self._events is None:
            return merged(self._run_changes())
        return merged(self._run_changes(), self._event_changes())

    @property
    def _position(self) -> dict[str, Any]:
        return {"r": self._runs, "e": self._events}

    async def _run_changes(self) -> AsyncGenerator[bytes, None]:
        request = run_pb2.WatchRunsRequest(workflow=self._workflow, position=self._runs, only_changes=not self._runs)

        def opened(metadata: Metadata) -> Any:
            request.position = self._runs
            return self._calls.open_stream("RunService/WatchRuns", request)(metadata)

        messages = self._calls.connection(self._token).stream(opened, ended=lambda _: False, reconnect=RECONNECT)
        async with aclosing(messages):
            async for message in messages:
                self._runs = message.position or self._runs
                if message.HasField("run"):
                    yield event(to_dict(message), name="run", position=self._position)
                else:
                    # Also the first one: from here on nothing is missed.
                    yield event({}, name="position", position=self._position)

    async def _event_changes(self) -> AsyncGenerator[bytes, None]:
        request = event_pb2.WatchEventsRequest(after_sequence=self._events)

        def opened(metadata: Metadata) -> Any:
            return self._calls.open_stream("EventService/WatchEvents", request)(metadata)

        messages = self._calls.connection(self._token).stream(opened, ended=lambda _: False, reconnect=RECONNECT)
        async with aclosing(messages):
            async for message in messages:
                self._events = request.after_sequence = message.sequence
                if message.HasField("event"):
                    yield event(to_dict(message), name="event", position=self._position)
