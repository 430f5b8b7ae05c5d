"""Secrets: their encrypted values, and the keys of sealed parameters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from toband.ports import StoredSealKey, StoredSecret
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.secret_tables import seal_keys, secrets
from toband.store.sql.writer import WriteSession

_ALL = select(secrets).order_by(secrets.c.name)
_SOME = _ALL.where(secrets.c.name.in_(bindparam("names", expanding=True)))
_VERSION = select(secrets.c.version).where(secrets.c.name == bindparam("of_name"))
_WITH_DATA = select(secrets.c.name, secrets.c.version).where(secrets.c.data.is_not(None))
_KEYS = select(seal_keys).order_by(seal_keys.c.number)


class SqlSecrets(OpenDatabase):
    """`toband.ports.SecretStore`."""

    @reading
    def list_secrets(self, connection: Connection) -> Sequence[StoredSecret]:
        return [_secret(row) for row in connection.execute(_ALL)]

    @reading
    def get_secrets(self, connection: Connection, names: Collection[str]) -> Sequence[StoredSecret]:
        return [_secret(row) for row in connection.execute(_SOME, {"names": list(names)})]

    @writing
    def save_secret(self, session: WriteSession, secret: StoredSecret, before: int) -> bool:
        stored = session.connection.execute(_VERSION, {"of_name": secret.name}).scalar()
        if (stored or 0) != before:
            return False
        values: dict[str, Any] = {
            "version": secret.version,
            "data": secret.data,
            "provider": secret.provider,
            "provider_key": secret.provider_key,
            "workflows": list(secret.workflows),
            "updated_at": secret.updated_at,
            "updated_by": secret.updated_by,
        }
        if stored is None:
            values |= {
                "name": secret.name,
                "created_at": secret.created_at,
                "created_by": secret.created_by,
                "last_used_by": "",
            }
            session.connection.execute(insert(secrets).values(values))
        else:
            session.connection.execute(update(secrets).where(secrets.c.name == secret.name).values(values))
        session.audit(_described(secret))
        return True

    @writing
    def delete_secret(self, session: WriteSession, name: str) -> bool:
        deleted = session.connection.execute(delete(secrets).where(secrets.c.name == name)).rowcount > 0
        if deleted:
            session.audit()
        return deleted

    @writing
    def note_secret_use(self, session: WriteSession, name: str, at: datetime, workflow: str) -> None:
        change = update(secrets).where(secrets.c.name == name)
        session.connection.execute(change.values(last_used_at=at, last_used_by=workflow))

    @reading
    def list_seal_keys(self, connection: Connection) -> Sequence[StoredSealKey]:
        return [_key(row) for row in connection.execute(_KEYS)]

    @writing
    def add_seal_key(self, session: WriteSession, key: StoredSealKey) -> bool:
        known = select(seal_keys.c.number).where(seal_keys.c.number == key.number)
        if session.connection.execute(known).first() is not None:
            return False
        session.connection.execute(insert(seal_keys), _key_row(key))
        return True

    @writing
    def replace_encryption(
        self, session: WriteSession, before: str, keys: Sequence[StoredSealKey], encrypted: Sequence[StoredSecret]
    ) -> bool:
        current = set(session.connection.execute(select(seal_keys.c.key_id)).scalars())
        stored = {row.name: row.version for row in session.connection.execute(_WITH_DATA)}
        if current != {before} or stored != {secret.name: secret.version for secret in encrypted}:
            return False
        for secret in encrypted:
            change = update(secrets).where(secrets.c.name == secret.name)
            session.connection.execute(change.values(data=secret.data))
        session.connection.execute(delete(seal_keys))
        session.connection.execute(insert(seal_keys), [_key_row(key) for key in keys])
        session.audit(f"from key {before} to {keys[-1].key_id}")
        return True


def _described(secret: StoredSecret) -> str:
    """What the audit log says of it."""
    place = f" of provider {secret.provider}, key {secret.provider_key or secret.name}" if secret.provider else ""
    return f"version {secret.version}{place}, for {', '.join(secret.workflows) or 'no workflow'}"


def _secret(row: Row[Any]) -> StoredSecret:
    return StoredSecret(
        name=row.name,
        version=row.version,
        data=row.data,
        provider=row.provider,
        provider_key=row.provider_key,
        workflows=tuple(row.workflows),
        created_at=row.created_at,
        created_by=row.created_by,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
        last_used_at=row.last_used_at,
        last_used_by=row.last_used_by,
    )


def _key(row: Row[Any]) -> StoredSealKey:
    return StoredSealKey(number=row.number, key_id=row.key_id, data=row.data, created_at=row.created_at)


def _key_row(key: StoredSealKey) -> dict[str, Any]:
    return {"number": key.number, "key_id": key.key_id, "data": key.data, "created_at": key.created_at}
