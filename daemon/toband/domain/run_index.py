"""Index over all steps of a run, updated step by step, for the questions that a transition asks.

It answers how many steps run, which wait for their turn, and which began last. Searching all steps for these would cost
time proportional to the number of instances, for every event. The index is attached to the newest `StepMap` of a run. A
transition moves it to the map that it creates, and rebuilds it if there is none. It affects the cost of a transition,
and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from toband.domain.plan import Plan
from toband.domain.run_model import Phase, StepRun, StepState
from toband.domain.step_map import StepMap


class Steps(Protocol):
    def __getitem__(self, name: str, /) -> StepRun: ...


class Queue(NamedTuple):
    """Steps that wait together: a slot is free for all of them or for none.

    `parent` is the `for_each` step whose instances they are, or empty. A group waits in the queue of its instances.
    """

    slotless: bool
    parent: str


Turn = tuple[bool, int, int]


class RunIndex:
    __slots__ = ("_busy", "_held", "_latest", "_plan", "_queues", "moving", "tokens")

    def __init__(self, plan: Plan, steps: StepMap) -> None:
        self._plan = plan
        self.moving: set[str] = set()
        """Ids of the steps that neither wait for others nor have ended."""
        self.tokens: dict[str, str] = {}
        """Tokens of the attempts of those steps, with the id of the step."""
        self._held = 0
        self._busy: Counter[str] = Counter()
        # Heaps. Stale entries stay in them until they reach the top.
        self._queues: dict[Queue, list[tuple[Turn, str]]] = {}
        self._latest: list[tuple[int, str]] = []
        for step in steps.all():
            self.replace(None, step)

    @classmethod
    def take(cls, plan: Plan, steps: StepMap) -> RunIndex:
        """The index of these steps, to be changed with them and attached to the resulting map."""
        index: RunIndex | None = steps.index
        steps.index = None
        return index if index is not None and index._plan is plan else cls(plan, steps)

    def replace(self, before: StepRun | None, after: StepRun) -> None:
        """Replaces one step. `before` is None for a step that was added."""
        if before is not None and before.state.moving:
            self._count(before, -1)
            if before.attempt is not None:
                self.tokens.pop(before.attempt.token, None)
        if not after.state.moving:
            self.moving.discard(after.id)
            return
        self.moving.add(after.id)
        self._count(after, 1)
        if after.attempt is not None:
            self.tokens[after.attempt.token] = after.id
            if _runs(after) and not (before is not None and _same_attempt(before, after)):
                heappush(self._latest, (-after.attempt.ordinal, after.id))
        turn = self._turn(after)
        if turn is not None and (before is None or self._turn(before) != turn):
            heappush(self._queues.setdefault(self._queue(after), []), (turn, after.id))

    def _count(self, step: StepRun, by: int) -> None:
        if step.state is not StepState.READY:
            self._held += by * holds_a_slot(step)
            if step.parent:
                self._busy[step.parent] += by

    def _queue(self, step: StepRun) -> Queue:
        parent = step.id if step.phase is Phase.GROUP else step.parent
        return Queue(_defined_as(step) in self._plan.slotless, parent)

    def _turn(self, step: StepRun) -> Turn | None:
        """The order in which steps are started; None for a step that does not wait for its turn.

        A loop that has started goes first: it had its slot a moment ago, unless it gave that up for its interval. A
        group waits as long as it has instances that were not released.
        """
        if step.state is StepState.READY:
            if not step.evaluated or step.not_before is not None:
                return None
            looping = step.attempts > 0 and not step.retrying
            if looping and step.phase is Phase.NEXT and self._plan.step(step.id).interval:
                looping = False
            return not looping, step.index, step.instance or 0
        if step.phase is Phase.GROUP and _runs(step) and step.released < step.instances:
            return True, step.index, step.released
        return None

    # -- queries

    def turns(self, steps: Steps) -> list[tuple[Turn, str, Queue]]:
        """A heap with the first of every queue that has a free slot."""
        found = []
        for queue in list(self._queues):
            if self.has_slot(queue) and (first := self.first(queue, steps)) is not None:
                found.append(first)
        heapify(found)
        return found

    def first(self, queue: Queue, steps: Steps) -> tuple[Turn, str, Queue] | None:
        """The first in that queue."""
        waiting = self._queues.get(queue)
        while waiting:
            turn, name = waiting[0]
            if self._turn(steps[name]) == turn:
                return turn, name, queue
            heappop(waiting)
        self._queues.pop(queue, None)
        return None

    def has_slot(self, queue: Queue) -> bool:
        """An approval or a wait needs no slot of the run, but counts among the instances of its step."""
        limit = self._plan.workflow.concurrency
        if not queue.slotless and limit is not None and self._held >= limit:
            return False
        if not queue.parent:
            return True
        most = self._plan.steps[queue.parent].max_parallel
        return most is None or self._busy[queue.parent] < most

    def latest(self, steps: Steps) -> str:
        """The running step that began last; empty if none runs."""
        while self._latest:
            ordinal, name = self._latest[0]
            step = steps[name]
            if _runs(step) and step.attempt is not None and step.attempt.ordinal == -ordinal:
                return name
            heappop(self._latest)
        return ""


def moving(steps: Mapping[str, StepRun]) -> frozenset[str]:
    """Ids of the steps that neither wait for others nor have ended."""
    if isinstance(steps, StepMap) and steps.index is not None:
        return frozenset(steps.index.moving)
    return frozenset(step.id for step in steps.values() if step.state.moving)


def step_of(steps: Mapping[str, StepRun], token: str) -> StepRun | None:
    """The step whose live attempt has that token."""
    if isinstance(steps, StepMap) and steps.index is not None:
        name = steps.index.tokens.get(token)
        return None if name is None else steps[name]
    for step in steps.values():
        if step.state.moving and step.attempt is not None and step.attempt.token == token:
            return step
    return None


def _runs(step: StepRun) -> bool:
    return step.state is StepState.RUNNING or step.state is StepState.CHECKING


def _same_attempt(before: StepRun, after: StepRun) -> bool:
    """Whether the index already has the attempt as running."""
    return (
        _runs(before)
        and before.attempt is not None
        and after.attempt is not None
        and before.attempt.ordinal == after.attempt.ordinal
    )


def _defined_as(step: StepRun) -> str:
    return step.parent or step.id


def holds_a_slot(step: StepRun) -> bool:
    """Whether a step counts for `concurrency`: it runs, and is no approval, no wait, and no step with instances."""
    return _runs(step) and step.phase not in (Phase.APPROVAL, Phase.WAIT, Phase.GROUP)
