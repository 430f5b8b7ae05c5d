"""Idempotent calls: the answer to each request, stored in the transaction of what it created."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from toband.ports import Request, RequestReusedError
from toband.store.sql.tables import requests
from toband.store.sql.writer import WriteSession

_FIND = select(requests.c.digest, requests.c.answer).where(
    requests.c.caller == bindparam("of_caller"),
    requests.c.rpc == bindparam("of_rpc"),
    requests.c.request_id == bindparam("of_id"),
)
_ADD = insert(requests)
_FORGET = delete(requests).where(requests.c.created_at < bindparam("before"))


def recall(connection: Connection, request: Request | None) -> Any:
    """The first answer to the request; None if it was not made before. Raises RequestReusedError."""
    if request is None:
        return None
    key = {"of_caller": request.caller, "of_rpc": request.rpc, "of_id": request.id}
    row = connection.execute(_FIND, key).first()
    if row is None:
        return None
    if row.digest != request.digest:
        raise RequestReusedError(request.id)
    return row.answer


def recall_change(session: WriteSession, request: Request | None) -> Any:
    """Like `recall`, for an operation that makes the change: if it was made before, the audit log has it already."""
    answer = recall(session.connection, request)
    if answer is not None:
        session.repeats_recorded_call()
    return answer


def remember(session: WriteSession, request: Request | None, answer: Any, at: datetime) -> None:
    """Stores the answer. Call it in the transaction that creates what the answer names."""
    if request is None:
        return
    row = {
        "caller": request.caller,
        "rpc": request.rpc,
        "request_id": request.id,
        "digest": request.digest,
        "answer": answer,
        "created_at": at,
    }
    session.connection.execute(_ADD, row)


def forget(session: WriteSession, before: datetime) -> int:
    """Removes requests made before then; returns their number."""
    return session.connection.execute(_FORGET, {"before": before}).rowcount
