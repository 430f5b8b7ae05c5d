"""Lock leftovers: locks of ended attempts whose processes may still live.

They are stored with the end of the attempt. Such a lock is freed when its processes are gone, when the machine was
started again, or when an operator releases it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from toband.domain.lock_rules import LockLeftover
from toband.domain.run_model import run_name
from toband.engine.execution.lock_table import LockTable
from toband.ports import Conditions, HealthStatus, Launcher, LockLeftoverStore, StoreError

CONDITION = "locks"
LOOK_EVERY = 2.0

log = structlog.get_logger()


class LockLeftovers:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        table: LockTable,
        store: LockLeftoverStore,
        launcher: Launcher,
        conditions: Conditions,
        boot_id: str,
    ) -> None:
        self._table = table
        self._store = store
        self._launcher = launcher
        self._conditions = conditions
        self._boot_id = boot_id
        self._gone: list[LockLeftover] = []

    async def load(self) -> None:
        """Before any lock is taken. After another boot of the machine the processes are gone."""
        for leftover in await self._store.list_lock_leftovers():
            self._table.keep(leftover)
        await self._look()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            await self._look()

    async def release(self, lock: str, run_id: str = "") -> Sequence[LockLeftover]:
        """Frees a lock, because an operator knows that these processes are gone. Raises StoreError."""
        found = [
            each for each in self._table.leftovers() if each.lock == lock and (not run_id or each.run_id == run_id)
        ]
        await self._store.delete_lock_leftovers(found)
        for each in found:
            self._table.give_up(each)
        self._tell()
        return found

    async def _look(self) -> None:
        gone = [each for each in self._table.leftovers() if self._is_gone(each)]
        if gone:
            try:
                await self._store.delete_lock_leftovers(gone)
            except StoreError as error:
                log.error("cannot free locks, trying again", action="lock_release_failed", error=str(error))
                return
            for each in gone:
                log.info("lock freed", action="lock_freed", lock=each.lock, run=each.run_id, step=each.step)
                self._table.give_up(each)
        self._tell()

    def _is_gone(self, leftover: LockLeftover) -> bool:
        if leftover.boot_id and leftover.boot_id != self._boot_id:
            return True
        return bool(leftover.boot_id and leftover.pids) and not self._launcher.any_alive(leftover.pids)

    def _tell(self) -> None:
        left = self._table.leftovers()
        if left:
            self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, "; ".join(sorted(map(_text, left))))
        else:
            self._conditions.well(CONDITION)


def _text(leftover: LockLeftover) -> str:
    free = f"free it with `toban locks release {leftover.lock}`"
    run = run_name(leftover.workflow, leftover.number) if leftover.number else leftover.run_id
    if not leftover.step:
        return (
            f"lock {leftover.lock} stays held: run {run} cannot be loaded, and its processes may still live; "
            f"end them, then {free}"
        )
    pids = f" (pids {', '.join(map(str, leftover.pids))})" if leftover.pids else ""
    return (
        f"lock {leftover.lock} stays held: processes of step {leftover.step} of run {run}{pids} may still live; "
        f"end them, then {free}"
    )
