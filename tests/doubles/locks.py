"""Locks for parts of the engine that are tested without a daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toband.engine.execution.lock_table import LockTable
from toband.engine.execution.run_locks import RunLocks

BOOT = "boot"


def run_locks(sizes: Mapping[str, int] | None = None, actors: Mapping[str, Any] | None = None) -> RunLocks:
    """A table with these sizes. `actors` are the active runs, by id; it may be filled later."""
    return RunLocks(LockTable(sizes or {}), boot_id=BOOT, find=(actors if actors is not None else {}).get)
