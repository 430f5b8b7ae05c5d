"""The table of hooks."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, LargeBinary, Table

from toband.domain.hook_model import HookForm
from toband.store.sql.columns import JsonText, Key, Micros, Name, Prose
from toband.store.sql.tables import metadata

hooks = Table(
    "hooks",
    metadata,
    Column("name", Key, primary_key=True),
    # Empty if it emits events.
    Column("workflow", Key, nullable=False),
    Column("event_type", Key, nullable=False),
    Column("form", Name(HookForm), nullable=False),
    # A name in `secrets`; empty if `sealed` has the secret, encrypted with a key of `seal_keys`.
    Column("secret", Key, nullable=False),
    Column("sealed", LargeBinary),
    Column("params", JsonText, nullable=False),
    Column("conditions", JsonText, nullable=False),
    Column("created_at", Micros, nullable=False),
    Column("created_by", Prose, nullable=False),
    CheckConstraint("(sealed IS NULL) = (secret <> '')", name="place"),
    sqlite_with_rowid=False,
)
