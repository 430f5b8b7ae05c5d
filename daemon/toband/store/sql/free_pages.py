"""Free pages of a SQLite file: returned to the file system a few at a time, while the daemon works."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from sqlalchemy import Connection, exc

INCREMENTAL = 2
CONVERTED_MOST = 256 * 1024 * 1024
"""The largest database that is rewritten at a start so that it can shrink: that takes a few seconds."""
SPARE_SHARE = 10
"""One page of this many stays free: the next rows need them."""
SPARE_LEAST = 256


def begin_small(cursor: object) -> None:
    """Makes a new database one that can shrink; has no effect on an existing one."""
    cursor.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")  # type: ignore[attr-defined]


def convert(connection: Connection, path: str) -> None:
    """Makes a database of an older release one that can shrink, unless it is large or the disk is full."""
    if _pragma(connection, "auto_vacuum") == INCREMENTAL:
        return
    with suppress(OSError, exc.DatabaseError):
        size = os.stat(path).st_size
        if size <= CONVERTED_MOST and shutil.disk_usage(os.path.dirname(path)).free > 4 * size:
            connection.exec_driver_sql(f"PRAGMA auto_vacuum = {INCREMENTAL}")
            # Atomic: a crash leaves the file as it was.
            connection.exec_driver_sql("VACUUM")


def spare(connection: Connection) -> int:
    """The number of free pages that nothing is likely to need soon."""
    if _pragma(connection, "auto_vacuum") != INCREMENTAL:
        return 0
    kept = max(SPARE_LEAST, _pragma(connection, "page_count") // SPARE_SHARE)
    return max(0, _pragma(connection, "freelist_count") - kept)


def release(connection: Connection, most: int) -> int:
    """Takes at most that many spare pages from the file; returns how many are left."""
    driver = connection.connection.driver_connection
    assert driver is not None
    for _ in range(min(most, spare(connection))):
        # The driver ends the statement after its first row, which is one page, whatever number it is given.
        driver.execute("PRAGMA incremental_vacuum(1)")
    return spare(connection)


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
