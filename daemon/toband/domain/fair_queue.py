"""A fair queue: no run can block the others, however many attempts it queues."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from toband.domain.attempt_model import Attempt

T = TypeVar("T")


@dataclass(order=True, slots=True)
class _Entry(Generic[T]):
    rank: tuple[int, int, str, int]
    token: str = field(compare=False)
    item: T = field(compare=False)


_IDLE = 64
"""Number of remembered shares of runs with nothing queued, above which shares without effect are dropped."""


@dataclass(slots=True)
class _Share:
    """One run's share: the turn of the attempt that it queued last, and the number of its queued attempts."""

    priority: int
    turn: int
    queued: int = 0


class FairQueue(Generic[T]):
    """Items of attempts. A higher priority is served first; runs of the same priority take turns, the older one first.

    Each attempt of a run gets its own turn. The first is the turn that is being served, so a run that arrives later
    waits for at most one attempt of each other run, and not for all that they have queued. A run keeps its turn while
    others are queued: a run that queues a single attempt again and again does not overtake them.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry[T]] = []
        self._entries: dict[str, _Entry[T]] = {}
        self._shares: dict[str, _Share] = {}
        self._served: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, token: str) -> bool:
        return token in self._entries

    def push(self, attempt: Attempt, item: T, *, priority: int = 0) -> None:
        turn = self._served.get(priority, 0)
        share = self._shares.get(attempt.run_id)
        if share is None:
            share = self._shares[attempt.run_id] = _Share(priority, turn)
        else:
            share.turn = turn = max(turn, share.turn + 1)
        share.queued += 1
        rank = (-priority, turn, attempt.run_id, attempt.ordinal)
        entry = self._entries[attempt.token] = _Entry(rank, attempt.token, item)
        heapq.heappush(self._heap, entry)

    def first(self) -> T | None:
        """The item whose turn it is; None: the queue is empty."""
        while self._heap:
            entry = self._heap[0]
            if self._entries.get(entry.token) is entry:
                return entry.item
            heapq.heappop(self._heap)
        return None

    def pop(self) -> T | None:
        """Removes and returns the item whose turn it is; None: the queue is empty."""
        item = self.first()
        if item is not None:
            entry = heapq.heappop(self._heap)
            self._served[-entry.rank[0]] = entry.rank[1]
            self._drop(entry)
        return item

    def remove(self, token: str) -> bool:
        """Removes an item that must not be served any more; returns whether it was queued."""
        entry = self._entries.get(token)
        if entry is None:
            return False
        self._drop(entry)
        return True

    def clear(self) -> None:
        self._heap.clear()
        self._entries.clear()
        self._shares.clear()
        self._served.clear()

    def _drop(self, entry: _Entry[T]) -> None:
        del self._entries[entry.token]
        self._shares[entry.rank[2]].queued -= 1
        if not self._entries:
            self.clear()
        elif len(self._shares) > 2 * len(self._entries) + _IDLE:
            self._forget_idle()

    def _forget_idle(self) -> None:
        """Drops idle shares: a share behind the turn being served has no effect."""
        self._shares = {
            run_id: share
            for run_id, share in self._shares.items()
            if share.queued or share.turn >= self._served.get(share.priority, 0)
        }
