"""The store: everything that uses SQL. Other packages import only SqlStore."""

from toband.store.sql_store import SqlStore

__all__ = ["SqlStore"]
