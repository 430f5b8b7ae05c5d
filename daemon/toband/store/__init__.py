"""The store: the only place that knows of SQL. Nothing of it but SqlStore is for the outside."""

from toband.store.sql_store import SqlStore

__all__ = ["SqlStore"]
