"""What the outside may see of a failure: never an exception of SQLAlchemy or of a driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from toband.ports import StoreError


def outward(doing: str, error: Exception, driver_error: type[Exception]) -> Exception:
    """The error as callers may see it: a StoreError for the database's own, any other as it is."""
    if isinstance(error, exc.StatementError) and not isinstance(error, exc.DBAPIError):
        # A value that its column refused, wrapped by SQLAlchemy.
        return error.orig if isinstance(error.orig, Exception) else StoreError(f"{doing}: {error}")
    if isinstance(error, (exc.SQLAlchemyError, driver_error, OSError)):
        return StoreError(f"{doing}: {reason(error)}")
    return error


def reason(error: BaseException) -> str:
    """The first line of what the database said, without statement and parameters."""
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
