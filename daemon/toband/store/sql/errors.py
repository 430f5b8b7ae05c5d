"""Turns exceptions of SQLAlchemy and of the drivers into StoreError."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from toband.ports import (
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreGoneError,
    StoreTakenOverError,
)

# SQLITE_IOERR_SHMSIZE: it cannot grow its shared memory file.
_SHM_SIZE = 4874
_SQLITE_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_POSTGRES_FULL = "53100"
_POSTGRES_BUSY = "55P03"


def outward(doing: str, error: Exception, driver_error: type[Exception]) -> Exception:
    """The error as callers see it: a StoreError for an error of the database, any other unchanged."""
    if isinstance(error, exc.StatementError) and not isinstance(error, exc.DBAPIError):
        # A column type refused a value; SQLAlchemy wrapped the error.
        return error.orig if isinstance(error.orig, Exception) else StoreError(f"{doing}: {error}")
    if isinstance(error, (exc.SQLAlchemyError, driver_error, OSError)):
        return failure(doing, error)
    return error


def failure(doing: str, error: BaseException) -> StoreError:
    """The StoreError for it; a full disk and a lock of another process have their own classes."""
    if isinstance(error, (StoreGoneError, StoreTakenOverError)):
        return error
    text = f"{doing}: {reason(error)}"
    origin = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    code = getattr(origin, "sqlite_errorcode", None)
    state = getattr(origin, "sqlstate", None)
    if isinstance(origin, OSError) and origin.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFullError(text)
    if code == _SHM_SIZE:
        return StoreFullError(f"{text}: the disk is full")
    if code == sqlite3.SQLITE_FULL or state == _POSTGRES_FULL:
        return StoreFullError(text)
    if (code is not None and code & 0xFF in _SQLITE_BUSY) or state == _POSTGRES_BUSY:
        return StoreBusyError(f"{text}: another process has been writing to it for too long")
    return StoreError(text)


def reason(error: BaseException) -> str:
    """The first line of the database's message, without statement and parameters."""
    if isinstance(error, exc.DBAPIError) and error.orig is not None:
        error = error.orig
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def store_errors(doing: str, driver_error: type[Exception]) -> Iterator[None]:
    """Turns failures of the database inside the block into StoreError."""
    try:
        yield
    except Exception as error:
        seen = outward(doing, error, driver_error)
        if seen is error:
            raise
        raise seen from error
