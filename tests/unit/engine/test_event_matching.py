"""Which workflows an event starts, without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

import pytest

from doubles.sandbox import InlineSandbox
from toband.domain.emitted_events import Emitted, EventSource, Listener
from toband.engine.events import event_matching
from toband.engine.events.event_matching import EventMatcher
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.ports import Store


class Listening:
    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    async def listeners(self, event_type: str) -> Sequence[Listener]:
        return self._listeners


def listener(workflow: str, condition: str = "", priority: int = 0) -> Listener:
    return Listener(workflow=workflow, position=0, condition=condition, priority=priority, enabled=True)


async def test_others_have_their_turn_between_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_matching, "AT_ONCE", -1.0)
    false = [listener(f"w{number}", f"event.payload.n == {number}") for number in range(1, 11)]
    store = cast(Store, Listening(*false, listener("last", "event.payload.n == 0", 5)))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    at = datetime(2026, 1, 1, tzinfo=UTC)
    event = Emitted(id="e", type="A", payload={"n": 0}, at=at, source=EventSource.CLIENT)
    found = await EventMatcher(store, ExpressionEvaluator(InlineSandbox())).judge(event)
    counting.cancel()
    assert [each.workflow for each in found if each.matches] == ["last"]
    assert len(found) == 11
    assert turns >= 11
