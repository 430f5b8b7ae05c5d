"""The audit log: records changes and refused calls, verifies its chain, and removes the oldest entries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from toband.backoff import Backoff
from toband.domain.audit_chain import AuditAnchor, AuditEntry, AuditRecord, BrokenLink, first_broken
from toband.engine.access.refused_calls import RefusedCalls
from toband.ports import AuditStore, Clock, StoreError

AT_ONCE = 1000
"""Entries that are read or removed at once."""
TAIL = 1000
"""Newest entries that the doctor verifies."""
REFUSALS_EVERY = 0.5
"""Seconds between two commits of refusals."""
_FLUSH_WITHIN = 2.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerification:
    """`last` is the last entry that was verified; of an empty log, what its next entry will follow."""

    entries: int
    first_sequence: int
    last: AuditEntry | AuditAnchor
    broken: BrokenLink | None


class AuditLog:
    """Belongs to the event loop. `age` in seconds and `most` entries are kept; None: no limit."""

    def __init__(
        self,
        store: AuditStore,
        clock: Clock,
        *,
        age: float | None = None,
        most: int | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self.use(age=age, most=most)
        self._monotonic = monotonic
        self._refused = RefusedCalls(monotonic())
        self._still = asyncio.Lock()
        """While it is held, no entries are removed."""

    def use(self, *, age: float | None, most: int | None) -> None:
        """Replaces the limits, for the next removal."""
        self._age = None if age is None else timedelta(seconds=age)
        self._most = most

    async def record(self, record: AuditRecord) -> None:
        """Records a change that was made, durably. Raises StoreError."""
        await self._store.append_audit([record])

    def refuse(self, record: AuditRecord) -> None:
        """Records a refused call, soon: a flood of refusals must not delay anything."""
        self._refused.add(record, self._monotonic())

    async def run(self) -> None:
        """Stores refusals until it is cancelled, then what is left."""
        backoff = Backoff()
        try:
            while True:
                await asyncio.sleep(REFUSALS_EVERY)
                try:
                    await self._store_refusals()
                except StoreError as error:
                    log.error("cannot record refused calls", action="audit_failed", error=str(error))
                    await asyncio.sleep(backoff.pause())
                else:
                    backoff.reset()
        except asyncio.CancelledError:
            try:
                async with asyncio.timeout(_FLUSH_WITHIN):
                    await self._store_refusals(everything=True)
            except (StoreError, TimeoutError) as error:
                log.error("cannot record refused calls", action="audit_failed", error=str(error))
            raise

    async def _store_refusals(self, *, everything: bool = False) -> None:
        records = self._refused.take(self._monotonic(), everything=everything)
        if not records:
            return
        try:
            await self._store.append_audit(records)
        except StoreError:
            self._refused.put_back(records)
            raise

    # -- verification

    async def verify(self, known_sequence: int = 0, known_hash: str = "") -> AuditVerification:
        """Verifies all entries up to the last one of now; `known` is an entry noted before. Raises StoreError."""
        async with self._still:
            anchor = await self._store.audit_anchor()
            newest = await self._store.last_audit()
            until = newest.sequence if newest is not None else 0
            last: AuditEntry | AuditAnchor = anchor
            broken = await self._before(anchor) or _wrong_anchor(anchor, known_sequence, known_hash)
            count, first = 0, 0
            while broken is None and last.sequence < until:
                entries = await self._store.list_audit(after=last.sequence, before=until + 1, limit=AT_ONCE)
                if not entries:
                    break
                broken = await asyncio.to_thread(first_broken, entries, last)
                broken = _first_of(broken, _unlike(entries, known_sequence, known_hash))
                good = [each for each in entries if broken is None or each.sequence < broken.sequence]
                first = first or (good[0].sequence if good else 0)
                count += len(good)
                last = good[-1] if good else last
            if broken is None and known_sequence > last.sequence:
                broken = BrokenLink(sequence=known_sequence, reason="it is missing, and all entries after it")
        return AuditVerification(entries=count, first_sequence=first, last=last, broken=broken)

    async def verify_tail(self) -> BrokenLink | None:
        """Verifies the newest entries only. Raises StoreError."""
        async with self._still:
            newest = await self._store.list_audit(newest=True, limit=TAIL + 1)
            if len(newest) <= TAIL:
                anchor = await self._store.audit_anchor()
                return first_broken(newest[::-1], anchor)
            *entries, before = newest
            return await asyncio.to_thread(first_broken, entries[::-1], before)

    async def _before(self, anchor: AuditAnchor) -> BrokenLink | None:
        found = await self._store.list_audit(after=-(2**62), before=anchor.sequence + 1, limit=1)
        if not found:
            return None
        return BrokenLink(sequence=found[0].sequence, reason="it was added before the first entry")

    # -- retention

    async def remove_old(self) -> int:
        """Removes entries by age and number; returns how many. Raises StoreError."""
        if self._age is None and self._most is None:
            return 0
        before = None if self._age is None else self._clock.now() - self._age
        removed = 0
        async with self._still:
            while count := await self._store.remove_audit(before, most=self._most, limit=AT_ONCE):
                removed += count
        return removed


def _wrong_anchor(anchor: AuditAnchor, sequence: int, digest: str) -> BrokenLink | None:
    if not sequence or anchor.sequence != sequence or anchor.hash == digest:
        return None
    return BrokenLink(sequence=sequence, reason=_NOT_NOTED)


def _unlike(entries: Sequence[AuditEntry], sequence: int, digest: str) -> BrokenLink | None:
    for each in entries:
        if each.sequence == sequence and each.hash != digest:
            return BrokenLink(sequence=sequence, reason=_NOT_NOTED)
    return None


def _first_of(one: BrokenLink | None, other: BrokenLink | None) -> BrokenLink | None:
    return min((each for each in (one, other) if each is not None), key=lambda each: each.sequence, default=None)


_NOT_NOTED = "its hash is not the one that was noted"
