"""A row target: the rows of a backup, also of an earlier release, become a database of this one."""

from __future__ import annotations

import json

import pytest

from toband.ports import StoreError
from toband.store import SqlStore
from toband.store.sql import schema_revision
from toband.store.sql.row_target import RowTarget

OLD = "0017"
COLUMNS = ["workflow", "version", "digest", "source", "base_dir", "parsed", "enabled", "created_at"]
ROW = ["old", 1, "d", "steps: {}", "/", "{}", 1, 1_700_000_000_000_000]


async def test_rows_of_an_earlier_schema_are_migrated(empty_url: str) -> None:
    with RowTarget(empty_url) as target:
        assert target.is_new()
        target.create(OLD)
        assert target.write("workflow_versions", COLUMNS, json.dumps(ROW).encode()) == 1
        target.finish()
    store = SqlStore(empty_url)
    await store.open()
    try:
        with store.snapshot() as snapshot:
            assert snapshot.revision == schema_revision.HEAD
            assert snapshot.counts()["workflow_versions"] == 1
    finally:
        await store.close()


def test_other_columns_and_a_revision_of_a_newer_release_are_refused(empty_url: str) -> None:
    with RowTarget(empty_url) as target:
        with pytest.raises(StoreError, match=r"a newer release of toband made it \(schema 9999"):
            target.create("9999")
        target.create(schema_revision.HEAD)
        with pytest.raises(StoreError, match="its columns are not those of the backup"):
            target.write("workflow_versions", COLUMNS[1:], b"")
