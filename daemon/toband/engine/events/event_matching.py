"""Which workflows an event starts: those that listen to its type, are enabled, and whose condition is true of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from toban.definition import CostlyError, EventView, RenderError
from toban.definition.model.event_triggers import NO_PACE, Pace
from toband.domain.emitted_events import Emitted, Listener
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.ports import TriggerStore

AT_ONCE = 0.02
TYPES_MOST = 10_000
"""Types whose listeners are kept in memory: clients choose the names of types."""
"""Seconds of evaluating conditions before other tasks get their turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A workflow that listens to an event type, and whether it would start. `condition` is the one that decided.

    `scope` is that of its run; empty if the workflow decides. `position` and `pace` are those of the trigger.
    """

    workflow: str
    matches: bool
    priority: int
    scope: str = ""
    position: int = 0
    pace: Pace = NO_PACE
    condition: str
    reason: str


class EventMatcher:
    """Belongs to the event loop. Caches the listeners until it is notified that definitions have changed."""

    def __init__(self, store: TriggerStore, evaluation: ExpressionEvaluator) -> None:
        self._store = store
        self._evaluation = evaluation
        self._known: dict[str, Sequence[Listener]] = {}
        self._generation = 0
        self._turn_taken = 0.0

    def forget(self) -> None:
        self._generation += 1
        self._known.clear()

    async def judge(self, event: Emitted) -> list[Candidate]:
        """All workflows that listen to its type: first those that it starts, in that order, then the others by name.

        If several triggers of a workflow match, the one with the highest priority counts. Raises StoreError, and
        OSError if the system has no process for a costly condition.
        """
        seen = event.seen()
        view = EventView(seen, cheap_only=True)
        best: dict[str, Candidate] = {}
        costly: list[Listener] = []

        def consider(found: Candidate) -> None:
            known = best.get(found.workflow)
            if known is None or _rank(found) < _rank(known):
                best[found.workflow] = found

        for listener in await self._listeners(event.type):
            if time.monotonic() - self._turn_taken > AT_ONCE:
                await asyncio.sleep(0)
                self._turn_taken = time.monotonic()
            try:
                consider(_judge(view, listener))
            except CostlyError:
                costly.append(listener)
        if costly:
            conditions = [listener.condition for listener in costly]
            found = await self._evaluation.conditions(seen, conditions)
            for listener in costly:
                consider(_candidate(listener, found[listener.condition]))
        return sorted(best.values(), key=_rank)

    async def _listeners(self, event_type: str) -> Sequence[Listener]:
        known = self._known.get(event_type)
        if known is None:
            generation = self._generation
            known = await self._store.listeners(event_type)
            if generation == self._generation:
                if len(self._known) >= TYPES_MOST:
                    self._known.clear()
                self._known[event_type] = known
        return known


def _judge(view: EventView, listener: Listener) -> Candidate:
    """Raises CostlyError if its condition must be evaluated in another process."""
    if not listener.enabled or not listener.condition:
        return _candidate(listener, None)
    try:
        return _candidate(listener, view.matches(listener.condition))
    except RenderError as error:
        return _candidate(listener, str(error))


def _candidate(listener: Listener, judged: bool | str | None) -> Candidate:
    """`judged` is the value of its condition, or why it has none; None if it was not evaluated."""
    matches = listener.enabled if judged is None else judged is True
    match judged:
        case None:
            reason = "it listens to the type" if listener.enabled else "it is disabled"
        case bool():
            reason = "its condition is true" if judged else "its condition is false"
        case _:
            reason = judged
    return Candidate(
        workflow=listener.workflow,
        matches=matches,
        priority=listener.priority,
        scope=listener.scope,
        position=listener.position,
        pace=listener.pace,
        condition=listener.condition,
        reason=reason,
    )


def _rank(found: Candidate) -> tuple[bool, int, str]:
    return (not found.matches, -found.priority if found.matches else 0, found.workflow)
