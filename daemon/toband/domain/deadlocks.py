"""Deadlocks: child runs that wait for their turn among runs that wait for what the parents of the child hold.

Locks alone cannot deadlock, because they are taken in order. A turn in the queue of a workflow has no place in that
order. Definitions are checked for it when they are stored and when a child is started, and may change after that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from toband.domain.lock_rules import LockRequest
from toband.domain.overlap import is_full

_rank = attrgetter("rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun:
    """A run that waits for its turn, for the locks in `request`, or for both. `limit` as in `overlap.is_full`."""

    run_id: str
    limit: int | None
    request: LockRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The active runs of one workflow; those that wait are in their order."""

    begun: Collection[str]
    waiting: Sequence[QueuedRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockState:
    """`requests` of runs and steps are in order of rank. `free` and `held` have every lock that is used or wanted."""

    requests: Sequence[LockRequest]
    free: Mapping[str, int]
    """Units that are free, or whose holder waits for nothing: a step, or processes that a step left."""
    held: Mapping[str, Collection[str]]
    """The runs that hold units until their end."""


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Runs that wait for each other; the first is a child run that has not begun."""

    runs: tuple[str, ...]


def find_deadlock(queues: Iterable[QueueState], locks: LockState, parents: Mapping[str, str]) -> Deadlock | None:
    """A deadlock of these runs; None: all can end. `parents` has the parent of every active child run.

    Of several child runs in deadlocks it is the one whose turn comes last.
    """
    rest = _Rest(queues, locks, parents)
    rest.end_all_that_can()
    for queue in reversed(rest.queues):
        for queued in reversed(queue.waiting):
            if queued.run_id in parents and (cycle := rest.cycle_of(queued)):
                return Deadlock(cycle)
    return None


@dataclass(slots=True)
class _Queue:
    begun: dict[str, None]
    waiting: list[QueuedRun]


class _Rest:
    """What remains when all runs and steps end that can, if those that wait for nothing end some time."""

    def __init__(self, queues: Iterable[QueueState], locks: LockState, parents: Mapping[str, str]) -> None:
        self.queues = [_Queue(dict.fromkeys(queue.begun), list(queue.waiting)) for queue in queues]
        self._free = dict(locks.free)
        self._held = {lock: set(runs) for lock, runs in locks.held.items()}
        self._steps = [request for request in locks.requests if request.user.step]
        self._parents = parents
        self._open = Counter(parents.values())
        self._open.update(request.user.run_id for request in self._steps)
        self._holds = defaultdict[str, list[str]](list)
        for lock, runs in self._held.items():
            for run in runs:
                self._holds[run].append(lock)

    def end_all_that_can(self) -> None:
        changed = True
        while changed:
            changed = self._begin() | self._end()

    def _begin(self) -> bool:
        """Steps get their locks and end. So do runs that have their turn."""
        found = [queued for queue in self.queues for queued in _at_turn(queue)]
        requests = [queued.request for queued in found if queued.request is not None]
        granted = {id(request) for request in self._granted([*self._steps, *requests])}
        steps = [request for request in self._steps if id(request) in granted]
        self._steps = [request for request in self._steps if id(request) not in granted]
        for request in steps:
            self._open[request.user.run_id] -= 1
        gone = {queued.run_id for queued in found if queued.request is None or id(queued.request) in granted}
        for queue in self.queues:
            queue.waiting = [queued for queued in queue.waiting if queued.run_id not in gone]
        for run in gone:
            self._ended(run)
        return bool(steps or gone)

    def _granted(self, requests: list[LockRequest]) -> Iterator[LockRequest]:
        """As `lock_rules.grantable`, but those that get their locks give them back."""
        left = dict(self._free)
        for request in sorted(requests, key=_rank):
            missing = next((at for at, lock in enumerate(request.locks) if left[lock] <= 0), None)
            if missing is None:
                yield request
            for lock in request.locks[: missing or 0]:
                left[lock] -= 1

    def _end(self) -> bool:
        """Runs end whose steps and children have ended."""
        found = [(queue, run) for queue in self.queues for run in queue.begun if not self._open[run]]
        for queue, run in found:
            del queue.begun[run]
            for lock in self._holds.pop(run, ()):
                self._held[lock].discard(run)
                self._free[lock] += 1
            self._ended(run)
        return bool(found)

    def _ended(self, run: str) -> None:
        if run in self._parents:
            self._open[self._parents[run]] -= 1

    # -- who waits for whom

    def cycle_of(self, queued: QueuedRun) -> tuple[str, ...]:
        """The shortest way from a run back to itself; empty if there is none."""
        waits_for = self._waits_for()
        found: dict[str, str] = {}
        left = [queued.run_id]
        for run in left:
            for other in waits_for.get(run, ()):
                if other == queued.run_id:
                    way = [run]
                    while way[-1] != queued.run_id:
                        way.append(found[way[-1]])
                    return tuple(reversed(way))
                if other not in found:
                    found[other] = run
                    left.append(other)
        return ()

    def _waits_for(self) -> Mapping[str, Collection[str]]:
        edges = defaultdict[str, dict[str, None]](dict)
        there = {run for queue in self.queues for run in (*queue.begun, *(each.run_id for each in queue.waiting))}
        for child, parent in self._parents.items():
            if child in there:
                edges[parent][child] = None
        requests = list(self._steps)
        for queue in self.queues:
            at_turn = list(_at_turn(queue))
            requests += (queued.request for queued in at_turn if queued.request is not None)
            for queued in queue.waiting[len(at_turn) :]:
                edges[queued.run_id].update(queue.begun)
        users = defaultdict[str, dict[str, None]](dict)
        for request in sorted(requests, key=_rank):
            for lock in request.locks:
                if self._free[lock] <= 0:
                    edges[request.user.run_id].update(dict.fromkeys(self._held[lock]))
                edges[request.user.run_id].update(users[lock])
            for lock in request.locks:
                users[lock][request.user.run_id] = None
        return edges


def _at_turn(queue: _Queue) -> Iterator[QueuedRun]:
    """The waiting runs that have their turn."""
    for queued in queue.waiting:
        if is_full(queued.limit, len(queue.begun)):
            return
        yield queued
