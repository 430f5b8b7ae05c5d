"""Lock table: who holds which locks, and who waits for them.

It exists in memory only. After a restart the holders are known from the runs that have not ended, and from the stored
leftovers of attempts whose processes may still live.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from toband.domain.deadlocks import LockState
from toband.domain.lock_rules import LockLeftover, LockRequest, LockUser, grantable

DEFAULT_SIZE = 1

_rank = attrgetter("rank")


@dataclass(slots=True)
class _Hold:
    """Why a user has one unit of a lock: it is active, or attempts have left processes."""

    active: bool = False
    leftovers: dict[str, LockLeftover] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockView:
    """One lock, as clients see it. Users in `leftovers` have ended, and processes of theirs may still live."""

    name: str
    size: int
    holders: Sequence[LockUser] = ()
    leftovers: Sequence[LockLeftover] = ()
    waiting: Sequence[LockUser] = ()


class LockTable:
    """Belongs to the event loop."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        """`sizes` of the locks that may be held by more than one user at once."""
        self._sizes = sizes
        self._holds: dict[str, dict[LockUser, _Hold]] = {}
        self._held_by: dict[LockUser, set[str]] = {}
        self._requests: list[LockRequest] = []
        self._asking: dict[LockUser, LockRequest] = {}
        self._wanted: Counter[str] = Counter()
        self._ready: frozenset[LockUser] = frozenset()
        self._listeners: list[Callable[[Collection[LockUser]], None]] = []
        self._untold = False
        self._telling = False

    def listen(self, listener: Callable[[Collection[LockUser]], None]) -> None:
        """Calls it with the users that may take their locks now, whenever others became free."""
        self._listeners.append(listener)

    def resize(self, sizes: Mapping[str, int]) -> None:
        """Replaces the sizes. Holders of a lock that is smaller now keep it; others wait until enough are gone."""
        self._sizes = sizes
        self._changed()

    # -- holding

    def hold(self, user: LockUser, locks: Iterable[str]) -> None:
        """Takes locks unconditionally: for a user that held them before a restart."""
        for lock in locks:
            self._hold(lock, user).active = True
            self._held_by.setdefault(user, set()).add(lock)
        self._decide()

    def release(self, user: LockUser) -> None:
        """Frees what the user holds, except where processes may still live. Repeating it is harmless."""
        for lock in self._held_by.pop(user, ()):
            self._holds[lock][user].active = False
            self._drop_if_free(lock, user)
        self._changed()

    def keep(self, leftover: LockLeftover) -> None:
        """The lock stays held until `give_up` is called for this attempt."""
        self._hold(leftover.lock, leftover.user).leftovers[leftover.attempt_id] = leftover
        self._decide()

    def give_up(self, leftover: LockLeftover) -> None:
        """The processes are gone, or an operator said so."""
        hold = self._holds.get(leftover.lock, {}).get(leftover.user)
        if hold is not None and hold.leftovers.pop(leftover.attempt_id, None) is not None:
            self._drop_if_free(leftover.lock, leftover.user)
            self._changed()

    def held_by(self, user: LockUser) -> Collection[str]:
        return self._held_by.get(user, ())

    def leftovers(self) -> list[LockLeftover]:
        users = (hold for holds in self._holds.values() for hold in holds.values())
        return [leftover for hold in users for leftover in hold.leftovers.values()]

    # -- waiting

    def ask(self, request: LockRequest) -> bool:
        """Waits for the locks of a request, at its rank; returns whether they may be taken at once."""
        self._remove(request.user)
        insort(self._requests, request, key=_rank)
        self._asking[request.user] = request
        self._wanted.update(request.locks)
        self._decide()
        return self.ready(request.user)

    def asks(self, user: LockUser) -> bool:
        return user in self._asking

    def ready(self, user: LockUser) -> bool:
        """Whether the locks that the user asked for may be taken now."""
        return user in self._ready

    def take(self, user: LockUser) -> None:
        """Takes the locks that the user asked for and that are ready."""
        assert user in self._ready
        request = self._asking[user]
        self._remove(user)
        self.hold(user, request.locks)

    def withdraw(self, user: LockUser) -> None:
        """The user waits no more. Repeating it is harmless."""
        if self._remove(user):
            self._changed()

    def state(self, also: Iterable[str]) -> LockState:
        """Who holds and who waits, for all locks that are used or wanted, and these."""
        held = {
            lock: {user.run_id for user, hold in self._holds.get(lock, {}).items() if hold.active and not user.step}
            for lock in {*self._holds, *self._wanted, *also}
        }
        free = {lock: self._size(lock) - len(runs) for lock, runs in held.items()}
        return LockState(requests=tuple(self._requests), free=free, held=held)

    # -- for people

    def waits_for(self, user: LockUser) -> Sequence[LockView]:
        """The locks that the user waits for and cannot get yet; empty if it waits for none."""
        request = self._asking.get(user)
        if request is None or user in self._ready:
            return ()
        missing = [lock for lock in request.locks if self._free(lock) <= 0]
        # If all are free, they are reserved for requests before this one.
        return [self.view(lock) for lock in missing or request.locks]

    def view(self, name: str) -> LockView:
        holds = self._holds.get(name, {})
        return LockView(
            name=name,
            size=self._size(name),
            holders=[user for user, hold in holds.items() if hold.active],
            leftovers=[each for hold in holds.values() if not hold.active for each in hold.leftovers.values()],
            waiting=[request.user for request in self._requests if name in request.locks],
        )

    def names(self) -> list[str]:
        """Locks of the configuration, and those that are held or waited for."""
        return sorted({*self._sizes, *(name for name, holds in self._holds.items() if holds), *self._wanted})

    # -- inside

    def _size(self, lock: str) -> int:
        return self._sizes.get(lock, DEFAULT_SIZE)

    def _free(self, lock: str) -> int:
        return self._size(lock) - len(self._holds.get(lock, ()))

    def _hold(self, lock: str, user: LockUser) -> _Hold:
        return self._holds.setdefault(lock, {}).setdefault(user, _Hold())

    def _drop_if_free(self, lock: str, user: LockUser) -> None:
        hold = self._holds[lock][user]
        if not hold.active and not hold.leftovers:
            del self._holds[lock][user]
            if not self._holds[lock]:
                del self._holds[lock]

    def _remove(self, user: LockUser) -> bool:
        request = self._asking.pop(user, None)
        if request is None:
            return False
        del self._requests[bisect_left(self._requests, request.rank, key=_rank)]
        self._wanted.subtract(request.locks)
        self._wanted = +self._wanted
        return True

    def _decide(self) -> None:
        free = {lock: self._free(lock) for lock in self._wanted}
        self._ready = frozenset(request.user for request in grantable(self._requests, free))

    def _changed(self) -> None:
        """Something became free. Listeners may change the table: then all of them are called again."""
        self._decide()
        self._untold = True
        if self._telling:
            return
        self._telling = True
        try:
            while self._untold and self._ready:
                self._untold = False
                for listener in self._listeners:
                    listener(self._ready)
        finally:
            self._telling = False
