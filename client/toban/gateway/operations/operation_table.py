"""All operations, in the order of the document."""

from __future__ import annotations

from typing import Final

from toban.gateway.operation import Operation
from toban.gateway.operations.daemon_operations import ACCESS, SYSTEM
from toban.gateway.operations.definition_operations import JOBS, WORKFLOWS
from toban.gateway.operations.history_operations import HISTORY
from toban.gateway.operations.run_operations import DEAD_LETTERS, RUNS
from toban.gateway.operations.trigger_operations import EVENTS, HOOKS, SCHEDULES

OPERATIONS: Final[tuple[Operation, ...]] = (
    *WORKFLOWS,
    *RUNS,
    *HISTORY,
    *JOBS,
    *EVENTS,
    *HOOKS,
    *SCHEDULES,
    *DEAD_LETTERS,
    *ACCESS,
    *SYSTEM,
)
