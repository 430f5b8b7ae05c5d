"""The tables of secrets. Nothing in them can be read without the secrets key, which no table has."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Integer, LargeBinary, Table

from toband.store.sql.columns import JsonText, Key, Micros, Prose
from toband.store.sql.tables import metadata

secrets = Table(
    "secrets",
    metadata,
    Column("name", Key, primary_key=True),
    Column("version", Integer, nullable=False),
    # The encrypted value; NULL if a provider has it.
    Column("data", LargeBinary),
    Column("provider", Key, nullable=False),
    Column("provider_key", Prose, nullable=False),
    # Names and patterns of the workflows that may use it.
    Column("workflows", JsonText, nullable=False),
    Column("created_at", Micros, nullable=False),
    Column("created_by", Prose, nullable=False),
    Column("updated_at", Micros, nullable=False),
    Column("updated_by", Prose, nullable=False),
    Column("last_used_at", Micros),
    Column("last_used_by", Prose, nullable=False),
    CheckConstraint("(data IS NULL) = (provider <> '')", name="place"),
    sqlite_with_rowid=False,
)

# Keys of sealed parameters, encrypted by the secrets key `key_id`, which is the same in all rows.
seal_keys = Table(
    "seal_keys",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("key_id", Key, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("created_at", Micros, nullable=False),
)
