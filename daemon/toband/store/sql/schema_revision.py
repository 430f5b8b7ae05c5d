"""Migrates the schema to the revision of this release."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from toband.ports import StoreError
from toband.store.sql.database import database
from toband.store.sql.errors import store_errors
from toband.store.sql.tables import metadata, runs

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0024"
# Not alembic's own default: a PostgreSQL database may be shared with other programs that use alembic.
VERSION_TABLE = "toban_revision"
_LOCK = 0x746F62616E  # "toban"


def upgrade(connection: Connection) -> None:
    """Creates or migrates the tables, in one transaction. Raises StoreError for a database of a newer release.

    `connection` is in autocommit mode. An empty database gets the newest schema at once; alembic is loaded only to
    migrate an older one, because it takes more than ten megabytes of memory.
    """
    if revision(connection) == HEAD:
        return
    sqlite = connection.dialect.name == "sqlite"
    connection.execute(text("BEGIN IMMEDIATE" if sqlite else "BEGIN"))
    try:
        if not sqlite:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        stored = revision(connection)
        if is_new(connection):
            _create(connection)
        else:
            _migrate(connection, stored)
        connection.execute(text("COMMIT"))
    except BaseException:
        if not connection.invalidated:
            connection.execute(text("ROLLBACK"))
        raise


def create(connection: Connection, wanted: str) -> None:
    """Creates the tables of a known revision in an empty database, in the transaction of the connection."""
    if wanted == HEAD:
        _create(connection)
        return
    from alembic import command

    config = migrations()
    config.attributes["connection"] = connection
    command.upgrade(config, wanted)


def remove(connection: Connection) -> None:
    """Drops all tables of Toban, in the transaction of the connection."""
    metadata.drop_all(connection)
    connection.execute(text(f"DROP TABLE IF EXISTS {VERSION_TABLE}"))


def is_new(connection: Connection) -> bool:
    """Whether the database has no tables of Toban yet."""
    return revision(connection) is None and not inspect(connection).has_table(runs.name)


def revision(connection: Connection) -> str | None:
    """The revision of the database; None if it has no tables of Toban."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    query = text(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608 - a constant
    found: str | None = connection.execute(query).scalar()
    return found


def _create(connection: Connection) -> None:
    """Creates the same tables as all migrations together; a test compares the two."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(
        text(
            f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
    )
    stamp = text(f"INSERT INTO {VERSION_TABLE} VALUES (:head)")  # noqa: S608 - a constant
    connection.execute(stamp, {"head": HEAD})


def _migrate(connection: Connection, stored: str | None) -> None:
    from alembic import command

    config = migrations()
    require_known(stored)
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def require_known(stored: str | None) -> None:
    from alembic.script import ScriptDirectory

    if stored is None or stored == HEAD:
        return
    known = {script.revision for script in ScriptDirectory.from_config(migrations()).walk_revisions()}
    if stored not in known:
        raise StoreError(
            f"cannot use the database: a newer release of toband made it (schema {stored}, "
            f"this release knows {HEAD}); install that release or restore a backup"
        )


def migrations() -> Config:
    """alembic's configuration for the migrations of this package."""
    from alembic.config import Config

    config = Config()
    directory = os.path.join(os.path.dirname(__file__), "migrations")
    config.set_main_option("script_location", directory.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def examine(url: str) -> str | None:
    """The revision of a database, read without a change; None if it is new.

    Raises StoreError if it cannot be read, or if this release cannot use it.
    """
    found = database(url)
    if found.missing():
        return None
    try:
        with store_errors("cannot read the database", found.error), found.reader.connect() as connection:
            stored = revision(connection)
            require_known(stored)
            return stored
    finally:
        found.close()
