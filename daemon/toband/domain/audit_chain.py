"""The audit chain: each entry has a hash over itself and the hash of the entry before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

FIRST_HASH = "0" * 64
"""The hash before the first entry."""


class AuditOutcome(StrEnum):
    DONE = "DONE"
    REFUSED = "REFUSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """What the audit log says of one call."""

    at: datetime
    actor: str
    role: str
    source: str
    """The address of the daemon that was called, and the peer if it is known."""
    method: str
    target: str
    outcome: AuditOutcome
    reason: str = ""
    request_id: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    sequence: int
    record: AuditRecord
    previous: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditAnchor:
    """What the chain begins after: the last entry that retention removed, or number 0."""

    sequence: int = 0
    hash: str = FIRST_HASH


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenLink:
    """The first entry that does not continue the chain."""

    sequence: int
    reason: str


def chained(record: AuditRecord, last: AuditEntry | AuditAnchor) -> AuditEntry:
    """The entry of a record that follows `last`."""
    sequence = last.sequence + 1
    return AuditEntry(sequence=sequence, record=record, previous=last.hash, hash=_hash(sequence, record, last.hash))


def first_broken(entries: Iterable[AuditEntry], last: AuditEntry | AuditAnchor) -> BrokenLink | None:
    """The first of consecutive entries that does not continue the chain after `last`; None if all do."""
    for entry in entries:
        if entry.sequence != last.sequence + 1:
            return BrokenLink(sequence=entry.sequence, reason=f"entry {last.sequence + 1} is missing")
        if entry.previous != last.hash:
            return BrokenLink(sequence=entry.sequence, reason="it does not continue the entry before it")
        if entry.hash != _hash(entry.sequence, entry.record, entry.previous):
            return BrokenLink(sequence=entry.sequence, reason="its content has changed")
        last = entry
    return None


def _hash(sequence: int, record: AuditRecord, previous: str) -> str:
    content = [
        previous,
        sequence,
        record.at.astimezone(UTC).isoformat(timespec="microseconds"),
        record.actor,
        record.role,
        record.source,
        record.method,
        record.target,
        record.outcome.value,
        record.reason,
        record.request_id,
        record.detail,
    ]
    # ASCII only, so that the text is the same whatever wrote it.
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
