"""The audit log, as the engine uses it, and the call whose changes it records.

A store that makes a change for such a call records it in the same transaction: neither is durable without the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from toband.domain.audit_chain import AuditAnchor, AuditEntry, AuditOutcome, AuditRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Conditions on entries; an empty one sets no limit."""

    actor: str = ""
    method: str = ""
    """`RunService/StartRun`, or `StartRun` of any service."""
    target: str = ""
    outcome: AuditOutcome | None = None
    since: datetime | None = None
    until: datetime | None = None
    """Before this time."""


ALL_ENTRIES = AuditFilter()


class AuditStore(Protocol):
    async def append_audit(self, records: Sequence[AuditRecord]) -> Sequence[AuditEntry]:
        """Adds records to the end of the chain, in one transaction."""
        ...

    async def list_audit(
        self,
        *,
        after: int = 0,
        before: int = 0,
        newest: bool = False,
        limit: int = 100,
        matching: AuditFilter = ALL_ENTRIES,
    ) -> Sequence[AuditEntry]:
        """Entries with a number above `after` and, unless it is 0, below `before`; oldest first, or newest first."""
        ...

    async def audit_anchor(self) -> AuditAnchor: ...

    async def last_audit(self) -> AuditEntry | None: ...

    async def remove_audit(self, before: datetime | None, *, most: int | None, limit: int) -> int:
        """Removes at most `limit` of the oldest entries, if they are older or more than `most` follow, and moves the
        anchor; returns their number.
        """
        ...


@dataclass(slots=True, kw_only=True)
class AuditedCall:
    """A call that changes something, or a pass over the definition files."""

    now: Callable[[], datetime]
    actor: str
    role: str
    source: str
    method: str
    target: str = ""
    request_id: str = ""
    detail: str = ""
    """Details from the request; they come before those of the change."""
    repeatable: bool = False
    """It makes any number of changes. The changes of any other call are those of one operation of the store."""
    recorded: bool = False
    ended: bool = False
    """The call is over: changes of its remaining tasks are not part of it."""

    @property
    def records(self) -> bool:
        return not self.ended and (self.repeatable or not self.recorded)

    def record(self, detail: str = "", target: str = "") -> AuditRecord:
        """`target` is more precise than the one of the call, if it is set."""
        return AuditRecord(
            at=self.now(),
            actor=self.actor,
            role=self.role,
            source=self.source,
            method=self.method,
            target=target or self.target,
            outcome=AuditOutcome.DONE,
            request_id=self.request_id,
            detail="; ".join(filter(None, (self.detail, detail))),
        )


_call: ContextVar[AuditedCall | None] = ContextVar("audited_call", default=None)


def audited_call() -> AuditedCall | None:
    """None for what the daemon does on its own, and after the end of the call."""
    call = _call.get()
    return call if call is not None and call.records else None


def describe_call(*, target: str, detail: str) -> None:
    """What the record of this call says, for a change that no operation of the store makes."""
    call = _call.get()
    if call is not None:
        call.target, call.detail = target, detail


def call_made_by(actor: str) -> None:
    """Names the caller of this context, for a call whose handler establishes it."""
    call = _call.get()
    if call is not None:
        call.actor = actor


def repeats_recorded_call() -> None:
    """The call of this context repeats an earlier one, which is recorded: there is no further change to record."""
    call = _call.get()
    if call is not None:
        call.recorded = True


@contextmanager
def auditing(call: AuditedCall | None) -> Iterator[None]:
    """Tasks created within inherit the call."""
    before = _call.set(call)
    try:
        yield
    finally:
        _call.reset(before)
