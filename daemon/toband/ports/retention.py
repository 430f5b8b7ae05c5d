"""Retention's view of runs: rules, sizes, and the runs that may be removed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from toban.definition import Retention
from toband.ports.records import EndedRun, RunSize, RunSpan, StoredSize


class RetentionStore(Protocol):
    """Measures and removes ended runs."""

    async def retention_rules(self) -> Mapping[str, Retention]:
        """The rules of workflows that have their own, by name."""
        ...

    async def run_spans(self) -> Sequence[RunSpan]:
        """One for every workflow that has runs, deleted workflows included, in no order. Does not read all runs."""
        ...

    async def removable_runs(
        self,
        *,
        workflow: str = "",
        finished_before: datetime | None = None,
        number_below: int | None = None,
        after: str = "",
        limit: int = 500,
    ) -> Sequence[EndedRun]:
        """Oldest first, with an id above `after`; `number_below` needs `workflow`.

        Without active runs, pinned runs, the last run of each workflow that exists, and runs that an active run takes
        results from or has as its child.
        """
        ...

    async def kept_number(self, workflow: str, keep: int) -> int:
        """The number of the oldest of the newest `keep` runs; 0 if there are fewer."""
        ...

    async def stored_size(self) -> StoredSize:
        """The number of all runs, and the bytes of those that were measured."""
        ...

    async def stored_bytes(self, workflows: Collection[str]) -> Mapping[str, int]:
        """The bytes of the measured runs of these workflows, by name; without workflows that have none."""
        ...

    async def unmeasured_runs(self, *, start: str = "", limit: int = 500) -> Sequence[EndedRun]:
        """Ended runs without a size, oldest first, from that id on."""
        ...

    async def save_sizes(self, sizes: Mapping[str, RunSize]) -> None:
        """Replaces the sizes of runs, by id; ignores runs that were deleted."""
        ...

    async def release_space(self, most: int) -> int:
        """Returns at most that many pages of the database to the file system, and the number that may follow."""
        ...

    async def deletable_runs(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Those of them that `delete_runs` would delete."""
        ...

    async def delete_runs(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Deletes runs and everything that belongs to them; returns the deleted ones. Their numbers are not reused.

        Keeps active runs, pinned runs, and runs that an active run takes results from or has as its child.
        """
        ...
