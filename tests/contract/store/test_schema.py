"""Behind the port: the tables, their migrations, and the files they lie in."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, Connection, Table, inspect, text
from sqlalchemy.sql import ClauseElement

from contract.conftest import NewStore
from helpers.postgres import postgres_schema
from toband.ports import StoreError
from toband.store import SqlStore
from toband.store.sql import schema_revision
from toband.store.sql.database import database
from toband.store.sql.tables import metadata


def plain(found: Mapping[str, Any]) -> dict[str, Any]:
    """With conditions as their text: as objects no two are equal."""
    return {
        name: plain(value) if isinstance(value, dict) else (str(value) if isinstance(value, ClauseElement) else value)
        for name, value in found.items()
    }


def described(connection: Connection) -> dict[str, Any]:
    """All that the database knows of the tables, in an order of its own."""
    inspector = inspect(connection)

    def entries(found: Any) -> list[str]:
        return sorted(repr(sorted(plain(entry).items(), key=str)) for entry in found)

    return {
        name: {
            "columns": entries(inspector.get_columns(name)),
            "key": dict(inspector.get_pk_constraint(name)),
            "foreign keys": entries(inspector.get_foreign_keys(name)),
            "indexes": entries(inspector.get_indexes(name)),
            "unique": entries(inspector.get_unique_constraints(name)),
            "checks": entries(inspector.get_check_constraints(name)),
            "options": entries([inspector.get_table_options(name)]),
        }
        for name in inspector.get_table_names()
    }


async def test_migrations_build_what_the_tables_say(kind: str, empty_url: str, tmp_path: Path) -> None:
    """A new database is made from the tables at once, an old one lifted by migrations: to the same form."""
    target = database(empty_url)
    target.prepare()
    with target.writer.connect() as connection:
        connection.execute(text("BEGIN"))
        schema_revision._migrate(connection, None)
        connection.execute(text("COMMIT"))
        by_migrations = described(connection)
        context = MigrationContext.configure(
            connection,
            opts={"version_table": schema_revision.VERSION_TABLE, "compare_server_default": True},
        )
        assert compare_metadata(context, metadata) == []
    target.close()
    assert set(by_migrations) == {*metadata.tables, schema_revision.VERSION_TABLE}

    if kind == "sqlite":
        at_once = await made_at_once(f"sqlite:///{tmp_path}/direct.db")
    else:
        with postgres_schema() as other:
            at_once = await made_at_once(other)
    assert at_once == by_migrations


async def made_at_once(url: str) -> dict[str, Any]:
    store = SqlStore(url)
    await store.open()
    await store.close()
    target = database(url)
    with target.writer.connect() as connection:
        found = described(connection)
    target.close()
    return found


def test_head_is_the_last_migration() -> None:
    scripts = ScriptDirectory.from_config(schema_revision.migrations())
    assert scripts.get_heads() == [schema_revision.HEAD]


async def test_opening_again_migrates_nothing(new_store: NewStore) -> None:
    await (await new_store()).close()
    store = await new_store()
    with store._database.writer.connect() as connection:
        found = connection.execute(text(f"SELECT version_num FROM {schema_revision.VERSION_TABLE}"))
        assert list(found.scalars()) == [schema_revision.HEAD]


@pytest.mark.parametrize("new", [True, False])
async def test_the_usual_start_does_without_alembic(new_store: NewStore, url: str, new: bool) -> None:
    """Neither a new database nor one that is as it should be needs it."""
    program = """
import asyncio, sys
from toband.store import SqlStore

async def main():
    store = SqlStore(sys.argv[1])
    await store.open()
    await store.counts()
    await store.close()

asyncio.run(main())
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
    if not new:
        await (await new_store()).close()
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program, url],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "sqlalchemy" in loaded
    assert not loaded & {"alembic", "mako"}
    if url.startswith("sqlite"):
        assert "psycopg" not in loaded


async def test_a_database_of_a_newer_release_is_left_alone(new_store: NewStore, url: str) -> None:
    store = await new_store()
    await store.close()
    target = database(url)
    with target.writer.connect() as connection:
        connection.execute(text(f"UPDATE {schema_revision.VERSION_TABLE} SET version_num = '9999'"))
        before = described(connection)
    with pytest.raises(StoreError, match="newer release"):
        await SqlStore(url).open()
    with target.writer.connect() as connection:
        assert described(connection) == before
        found = connection.execute(text(f"SELECT version_num FROM {schema_revision.VERSION_TABLE}"))
        assert list(found.scalars()) == ["9999"]
    target.close()


async def test_a_migration_that_fails_leaves_nothing_behind(empty_url: str) -> None:
    """The last table of the migration is in the way: the tables before it are not kept."""
    target = database(empty_url)
    target.prepare()
    with target.writer.connect() as connection:
        connection.execute(text("CREATE TABLE requests (other INTEGER)"))
    with pytest.raises(StoreError, match="cannot open the database"):
        await SqlStore(empty_url).open()
    with target.writer.connect() as connection:
        assert inspect(connection).get_table_names() == ["requests"]
        connection.execute(text("DROP TABLE requests"))
    target.close()
    store = SqlStore(empty_url)
    await store.open()
    await store.close()


@pytest.mark.parametrize("table", ["runs", "step_runs", "process_executions"])
async def test_the_database_itself_knows_the_states(sql_store: SqlStore, table: str) -> None:
    with sql_store._database.writer.connect() as connection:
        checks = inspect(connection).get_check_constraints(table)
    assert len(checks) == 1
    assert re.search(r"\bstate\b.*'RUNNING'", str(checks[0]["sqltext"]), re.DOTALL)


# What the rows of each table end with: the row of "What is kept, and for how long" in docs/operations.md. Tables whose
# rows go with those of another one need none.
LIMITED_BY = {
    "audit_entries": "the audit log",
    "event_bursts": "bursts and throttles",
    "event_throttles": "bursts and throttles",
    "events": "events",
    "fires": "the ledger of due times",
    "hooks": "definitions, schedules of subjects that have not ended, and hooks",
    "lock_leftovers": "locks of attempts",
    "requests": "idempotency keys of requests",
    "run_numbers": "versions and run numbers of a deleted definition",
    "runs": "ended runs",
    "schedules": "schedules of subjects that have ended",
    "seal_keys": "secrets, their grants and keys",
    "secrets": "secrets, their grants and keys",
    "tokens": "tokens that expired",
    "workflow_versions": "versions of a definition",
    "workflows": "definitions, schedules of subjects that have not ended, and hooks",
}
ONE_ROW = {"audit_anchors", "deleted_changes", "ownership"}


def test_no_table_grows_without_a_limit() -> None:
    def goes_with_another(table: Table) -> bool:
        return any(key.ondelete == "CASCADE" for key in table.foreign_keys)

    alone = {name for name, table in metadata.tables.items() if not goes_with_another(table)}
    assert alone - ONE_ROW == set(LIMITED_BY), "say in docs/operations.md and here what limits its rows"
    for name in ONE_ROW:
        checks = [each for each in metadata.tables[name].constraints if isinstance(each, CheckConstraint)]
        assert [str(each.sqltext) for each in checks] == ["id = 1"], name
    page = (Path(__file__).parents[3] / "docs/operations.md").read_text("utf-8")
    kept = page.partition("### What is kept, and for how long")[2].partition("### ")[0]
    for table, row in LIMITED_BY.items():
        assert f"\n| {row}" in kept, f"{table}: {row}"
