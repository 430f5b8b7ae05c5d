"""Calls that may be repeated: what each answered is stored with what it created."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from toband.ports import Request, RequestReusedError
from toband.store.sql.tables import requests
from toband.store.sql.writer import Session

_FIND = select(requests.c.digest, requests.c.answer).where(
    requests.c.caller == bindparam("of_caller"),
    requests.c.rpc == bindparam("of_rpc"),
    requests.c.request_id == bindparam("of_id"),
)
_ADD = insert(requests)
_FORGET = delete(requests).where(requests.c.created_at < bindparam("before"))


def recall(connection: Connection, request: Request | None) -> Any:
    """What the request answered the first time, or None. Raises RequestReusedError."""
    if request is None:
        return None
    key = {"of_caller": request.caller, "of_rpc": request.rpc, "of_id": request.id}
    row = connection.execute(_FIND, key).first()
    if row is None:
        return None
    if row.digest != request.digest:
        raise RequestReusedError(request.id)
    return row.answer


def remember(session: Session, request: Request | None, answer: Any, at: datetime) -> None:
    """In the transaction that created what the answer tells of."""
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


def forget(before: datetime) -> Callable[[Session], int]:
    def operation(session: Session) -> int:
        return session.connection.execute(_FORGET, {"before": before}).rowcount

    return operation
