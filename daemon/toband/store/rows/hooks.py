"""Hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select

from toband.domain.hook_model import Hook
from toband.ports import HookExistsError
from toband.store.sql.hook_tables import hooks
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.writer import WriteSession

_ALL = select(hooks).order_by(hooks.c.name)
_ONE = select(hooks).where(hooks.c.name == bindparam("of_name"))


class SqlHooks(OpenDatabase):
    """`toband.ports.HookStore`."""

    @reading
    def list_hooks(self, connection: Connection) -> Sequence[Hook]:
        return [_hook(row) for row in connection.execute(_ALL)]

    @reading
    def get_hook(self, connection: Connection, name: str) -> Hook | None:
        row = connection.execute(_ONE, {"of_name": name}).first()
        return _hook(row) if row is not None else None

    @writing
    def create_hook(self, session: WriteSession, hook: Hook) -> None:
        if session.connection.execute(_ONE, {"of_name": hook.name}).first() is not None:
            raise HookExistsError(hook.name)
        values = {
            "name": hook.name,
            "workflow": hook.workflow,
            "event_type": hook.event_type,
            "form": hook.form,
            "secret": hook.secret,
            "sealed": hook.sealed,
            "params": dict(hook.params),
            "conditions": list(hook.conditions),
            "created_at": hook.created_at,
            "created_by": hook.created_by,
        }
        session.connection.execute(insert(hooks).values(values))
        session.audit(_described(hook), target=hook.name)

    @writing
    def delete_hook(self, session: WriteSession, name: str) -> bool:
        deleted = session.connection.execute(delete(hooks).where(hooks.c.name == name)).rowcount > 0
        if deleted:
            session.audit()
        return deleted


def _described(hook: Hook) -> str:
    """What the audit log says of it."""
    does = f"starts {hook.workflow}" if hook.workflow else f"emits {hook.event_type}"
    return f"{does}, signed with {f'secret {hook.secret}' if hook.secret else 'a secret of its own'}"


def _hook(row: Row[Any]) -> Hook:
    return Hook(
        name=row.name,
        workflow=row.workflow,
        event_type=row.event_type,
        form=row.form,
        secret=row.secret,
        sealed=row.sealed,
        params=row.params,
        conditions=tuple(row.conditions),
        created_at=row.created_at,
        created_by=row.created_by,
    )
