"""Refused calls, gathered so that a flood of them fills neither the audit log nor the memory.

The first refusal of its kind is recorded as it is. Those that follow within a window are counted, and recorded together
at its end. Kinds beyond a limit are counted by reason alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from toband.domain.audit_chain import AuditRecord
from toband.engine.access.rate_limit import TokenBucket

WINDOW = 60.0
KINDS_MOST = 200
"""Kinds of refusals that are counted separately in a window."""
ENTRIES_PER_DAY = 10_000
ENTRIES_AT_ONCE = 1_000
_KindOfRefusal = tuple[str, str, str, str]


@dataclass(slots=True)
class _Repeated:
    last: AuditRecord
    count: int = 0


class RefusedCalls:
    """Times are of a monotonic clock."""

    def __init__(self, now: float, *, window: float = WINDOW) -> None:
        self._window = window
        self._ends = now + window
        self._kinds: dict[_KindOfRefusal, _Repeated] = {}
        self._others: dict[str, _Repeated] = {}
        self._budget = TokenBucket(ENTRIES_PER_DAY / 86400, ENTRIES_AT_ONCE)
        self._ready: list[AuditRecord] = []

    @property
    def waiting(self) -> bool:
        return bool(self._ready)

    def add(self, record: AuditRecord, now: float) -> None:
        record = replace(record, source=without_port(record.source))
        kind = (record.actor, record.method, record.reason, record.source)
        known = self._kinds.get(kind)
        if known is None and len(self._kinds) < KINDS_MOST and self._budget.take(now):
            self._kinds[kind] = _Repeated(record)
            self._ready.append(record)
            return
        if known is None:
            known = self._others.setdefault(record.reason, _Repeated(record))
        known.last = record
        known.count += 1

    def take(self, now: float, *, everything: bool = False) -> Sequence[AuditRecord]:
        """The entries to record now. Return them with `put_back` if that fails."""
        ready, self._ready = self._ready, []
        if now >= self._ends or everything:
            ready += [_repeated(each) for each in self._kinds.values() if each.count]
            ready += [_summed(each) for each in self._others.values()]
            self._kinds.clear()
            self._others.clear()
            self._ends = now + self._window
        return ready

    def put_back(self, records: Sequence[AuditRecord]) -> None:
        """While nothing can be stored, only the first ones are kept."""
        self._ready = [*records, *self._ready][: 2 * KINDS_MOST]


def without_port(source: str) -> str:
    """The source of a call without the port of its peer, which differs with each connection."""
    door, space, peer = source.partition(" ")
    return f"{door}{space}{peer.rpartition(':')[0]}" if space and ":" in peer else source


def _repeated(kind: _Repeated) -> AuditRecord:
    return replace(kind.last, detail=f"{kind.count:,} more such calls, the last one at this time")


def _summed(others: _Repeated) -> AuditRecord:
    text = f"{others.count:,} calls, of more callers and methods than are listed one by one"
    return replace(others.last, actor="", role="", source="", method="", target="", request_id="", detail=text)
