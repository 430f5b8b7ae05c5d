"""Messages about locks: who holds them, and who waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toban.v1 import run_pb2, system_pb2
from toband.api.run_messages import timestamp
from toband.domain.identity import sees
from toband.domain.lock_rules import LockLeftover, LockUser
from toband.engine.access.call_scope import visible
from toband.engine.execution.lock_table import LockTable, LockView
from toband.engine.runs.registry import ActiveRuns

HOLDERS = 10
"""Holders of a lock that a message of a run names."""
USERS = 100
"""Holders, and waiting runs and steps, that the message of a lock names."""


class LockMessages:
    def __init__(self, table: LockTable, active: ActiveRuns) -> None:
        self._table = table
        self._active = active

    def waits(self, run_id: str, step: str = "") -> Sequence[run_pb2.LockWait]:
        """The locks that a run or a step waits for; empty if it waits for none."""
        found = self._table.waits_for(LockUser(run_id, step))
        return [run_pb2.LockWait(lock=each.name, held_by=self._users(each.holders[:HOLDERS])) for each in found]

    def locks(self) -> Sequence[system_pb2.Lock]:
        return [self._lock(self._table.view(name)) for name in self._table.names()]

    def _lock(self, view: LockView) -> system_pb2.Lock:
        return system_pb2.Lock(
            name=view.name,
            size=view.size,
            holders=self._users(view.holders[:USERS]),
            leftovers=map(leftover, view.leftovers),
            waiting=self._users(view.waiting[:USERS]),
            waiting_total=len(view.waiting),
        )

    def _users(self, users: Iterable[LockUser]) -> Sequence[run_pb2.LockUser]:
        # By names alone: labels would have to be read.
        made, limits = [], visible()
        for user in users:
            run = self._active.run(user.run_id)
            workflow, number = (run.workflow, run.number) if run is not None else ("", 0)
            if not sees(limits, workflow, {}):
                continue
            made.append(run_pb2.LockUser(run_id=user.run_id, workflow=workflow, run_number=number, step=user.step))
        return made


def leftover(value: LockLeftover) -> system_pb2.LockLeftover:
    return system_pb2.LockLeftover(
        run_id=value.run_id,
        workflow=value.workflow,
        step=value.step,
        process_execution_id=value.attempt_id if value.step else "",
        pids=value.pids,
        since=timestamp(value.since),
    )
