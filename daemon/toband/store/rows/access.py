"""Access: tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, or_, select, update

from toband.domain.identity import Narrowing, Role
from toband.ports import StoredToken, TokenExistsError
from toband.store.sql.access_tables import tokens
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.writer import WriteSession

FORGET_AT_ONCE = 500
"""Tokens removed in one transaction, below the limit of parameters that a statement has in either database."""

_VALID_NAME = select(tokens.c.id).where(tokens.c.name == bindparam("of_name"), tokens.c.revoked_at.is_(None))


class SqlAccess(OpenDatabase):
    """`toband.ports.AccessStore`."""

    @writing
    def create_token(self, session: WriteSession, token: StoredToken) -> None:
        if session.connection.execute(_VALID_NAME, {"of_name": token.name}).first() is not None:
            raise TokenExistsError(token.name)
        row = {
            "id": token.id,
            "name": token.name,
            "role": int(token.role),
            "narrowing": _stored(token.narrowing),
            "digest": token.digest,
            "created_at": token.created_at,
            "created_by": token.created_by,
            "expires_at": token.expires_at,
            "last_used_at": token.last_used_at,
            "revoked_at": token.revoked_at,
            "revoked_by": token.revoked_by,
        }
        session.connection.execute(insert(tokens), row)
        session.audit(f"token {token.id}, role {token.role.label}")

    @reading
    def list_tokens(self, connection: Connection) -> Sequence[StoredToken]:
        return [_token(row) for row in connection.execute(select(tokens).order_by(tokens.c.created_at, tokens.c.id))]

    @writing
    def revoke_token(self, session: WriteSession, token_id: str, at: datetime, by: str) -> bool:
        change = update(tokens).where(tokens.c.id == token_id, tokens.c.revoked_at.is_(None))
        revoked = session.connection.execute(change.values(revoked_at=at, revoked_by=by)).rowcount > 0
        if revoked:
            session.audit(f"token {token_id}")
        return revoked

    @writing
    def forget_tokens(self, session: WriteSession, before: datetime) -> Sequence[str]:
        ended = or_(tokens.c.revoked_at < before, tokens.c.expires_at < before)
        gone = list(session.connection.execute(select(tokens.c.id).where(ended).limit(FORGET_AT_ONCE)).scalars())
        session.connection.execute(delete(tokens).where(tokens.c.id.in_(gone)))
        return gone

    @writing
    def note_token_use(self, session: WriteSession, token_id: str, at: datetime) -> None:
        session.connection.execute(update(tokens).where(tokens.c.id == token_id).values(last_used_at=at))


def _stored(narrowing: Narrowing | None) -> Any:
    if narrowing is None:
        return None
    return {"workflows": list(narrowing.workflows), "labels": [list(each) for each in narrowing.labels]}


def _token(row: Row[Any]) -> StoredToken:
    narrowing = None
    if row.narrowing is not None:
        narrowing = Narrowing(
            workflows=tuple(row.narrowing["workflows"]),
            labels=tuple((key, value) for key, value in row.narrowing["labels"]),
        )
    return StoredToken(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        narrowing=narrowing,
        digest=row.digest,
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
        revoked_by=row.revoked_by,
    )
