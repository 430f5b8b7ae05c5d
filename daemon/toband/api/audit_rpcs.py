"""The RPCs of AccessService about the audit log: see proto/toban/v1/access.proto."""

from __future__ import annotations

from datetime import datetime

from google.protobuf import timestamp_pb2

from toban.v1 import access_pb2 as pb
from toband.api import pages
from toband.api.common_requests import moment
from toband.api.request_errors import InvalidFieldError
from toband.api.run_messages import timestamp
from toband.domain.audit_chain import AuditEntry, AuditOutcome
from toband.engine.access.audit_log import AuditLog
from toband.ports import AuditFilter, AuditStore

_HASH_CHARS = 64
_OUTCOMES = {
    pb.AUDIT_OUTCOME_UNSPECIFIED: None,
    pb.AUDIT_OUTCOME_DONE: AuditOutcome.DONE,
    pb.AUDIT_OUTCOME_REFUSED: AuditOutcome.REFUSED,
}
_SHOWN = {outcome: number for number, outcome in _OUTCOMES.items() if outcome is not None}


class AuditRpcs:
    def __init__(self, log: AuditLog, store: AuditStore) -> None:
        self._log = log
        self._store = store

    async def list(self, request: pb.ListAuditEntriesRequest) -> pb.ListAuditEntriesResponse:
        limit = pages.size(request.page_size, 100)
        if request.after_sequence < 0:
            raise InvalidFieldError("after_sequence", f"must be 0 or more, found {request.after_sequence}")
        if request.outcome not in _OUTCOMES:
            raise InvalidFieldError("outcome", f"must be a known outcome, found {request.outcome}")
        matching = AuditFilter(
            actor=request.actor,
            method=request.method,
            target=request.target,
            outcome=_OUTCOMES[request.outcome],
            since=_time(request, "recorded_after"),
            until=_time(request, "recorded_before"),
        )
        place = pages.number(request.page_token) if request.page_token else 0

        async def read(last: AuditEntry | None, count: int) -> list[AuditEntry]:
            at = last.sequence if last is not None else place
            after = max(request.after_sequence, at) if request.oldest_first else request.after_sequence
            before = 0 if request.oldest_first else at
            found = await self._store.list_audit(
                after=after, before=before, newest=not request.oldest_first, limit=count, matching=matching
            )
            return [*found]

        page = await pages.filled(limit, read, _message)
        return pb.ListAuditEntriesResponse(entries=page.parts, next_page_token=page.token(lambda entry: entry.sequence))

    async def verify(self, request: pb.VerifyAuditRequest) -> pb.VerifyAuditResponse:
        if request.known_sequence < 0:
            raise InvalidFieldError("known_sequence", f"must be 0 or more, found {request.known_sequence}")
        known_hash = request.known_hash.lower()
        if request.known_sequence and (
            len(known_hash) != _HASH_CHARS or not set(known_hash) <= set("0123456789abcdef")
        ):
            raise InvalidFieldError("known_hash", f"must be the {_HASH_CHARS} hexadecimal digits of the entry's hash")
        found = await self._log.verify(request.known_sequence, known_hash)
        answer = pb.VerifyAuditResponse(
            entries=found.entries,
            first_sequence=found.first_sequence,
            last_sequence=found.last.sequence if found.entries else 0,
            last_hash=found.last.hash if found.entries else "",
        )
        if found.broken is not None:
            answer.broken.sequence = found.broken.sequence
            answer.broken.reason = found.broken.reason
        return answer


def _time(request: pb.ListAuditEntriesRequest, field: str) -> datetime | None:
    if not request.HasField(field):  # type: ignore[arg-type]
        return None
    value: timestamp_pb2.Timestamp = getattr(request, field)
    return moment(value, field)


async def _message(entry: AuditEntry) -> pb.AuditEntry:
    record = entry.record
    return pb.AuditEntry(
        sequence=entry.sequence,
        recorded_at=timestamp(record.at),
        actor=record.actor,
        role=record.role,
        source=record.source,
        method=record.method,
        target=record.target,
        outcome=_SHOWN[record.outcome],
        reason=record.reason,
        request_id=record.request_id,
        detail=record.detail,
        previous_hash=entry.previous,
        hash=entry.hash,
    )
