"""Whether this release can use the database, for `toband --check-database`."""

from __future__ import annotations

from toband.config import Config
from toband.store.sql import schema_revision


def check_database(config: Config) -> str:
    """Two lines: the schema of the database, and that of this release. Raises StoreError if it cannot be used."""
    found = schema_revision.examine(config.database)
    return f"database: {found or 'new'}\nrelease: {schema_revision.HEAD}"
