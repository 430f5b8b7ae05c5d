"""Runs and their history, as the engine uses them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from toband.domain.identity import Visible
from toband.domain.run_model import Pin, Run, RunState, StepRun
from toband.ports.records import HistoryEntry, PositionedChange, Request, RunChange, RunOrigin, UpdateResult


class RunStore(Protocol):
    """Runs with their steps, and each transition that they made."""

    async def create_run(
        self,
        run: Run,
        *,
        max_active: int | None,
        request: Request | None = None,
        requeue: str = "",
        by: str = "",
    ) -> tuple[Run, bool]:
        """Stores a PENDING run with its steps in one transaction; returns it with its number, and whether it is new.

        `max_active` limits the active runs of the workflow, this one included; None means no limit. `requeue` is the
        open dead letter that the run repeats: it becomes REQUEUED by `by`. Steps may have ended already, with results
        and attempts of other runs: these runs, `retry_of` and `from_run` are not deleted while the run is active.

        A repeated request, or a run whose id is stored already, returns the stored run, as it is now, and False. Raises
        ActiveRunError with the oldest active id, RequestReusedError, DeadLetterClosedError; RunGoneError if one of
        those runs, or the run of the letter, was deleted.
        """
        ...

    async def run_of_request(self, request: Request) -> Run | None:
        """The run that this request created, as it is now; None if it was not made before.

        Raises RequestReusedError, RunGoneError.
        """
        ...

    async def save(self, change: RunChange) -> UpdateResult:
        """Saves one transition if the run still has the sequence and state of `before`.

        WRONG_STATE means that another transition came first: nothing was written. Adds the history entry
        `after.sequence`. Many saves share one commit; a failed commit fails all of its saves with StoreError.
        """
        ...

    async def get_run(self, run_id: str) -> Run | None:
        """The whole run with its steps by position, each with its last attempt."""
        ...

    async def get_run_page(self, run_id: str, *, after: int = -1, limit: int = 500) -> Run | None:
        """The run with at most `limit` of its steps and instances, those with a position above `after`."""
        ...

    async def run_origin(self, run_id: str) -> RunOrigin | None:
        """The workflow of a run and what started it: one lookup by its key."""
        ...

    async def defined_steps(self, run: Run) -> Sequence[StepRun]:
        """The steps of the definition as they are in the run, by position: without instances and attempts."""
        ...

    async def list_runs(
        self,
        *,
        workflow: str = "",
        states: Sequence[RunState] = (),
        before: str = "",
        limit: int = 50,
        parent_run: str = "",
        retry_of: str = "",
        labels: Mapping[str, str] | None = None,
        after: str = "",
        number: int = 0,
        ids: Collection[str] = (),
        visible: Visible = None,
    ) -> Sequence[Run]:
        """Newest first (ids are uuid7 and sort by time), with an id below `before` and above `after`, without steps.

        `parent_run`: only its children; `retry_of`: only runs that repeat that run; `labels`: only runs with all of
        them; `number`: only the run of the workflow with it; `ids`: only runs with one of these, at most 500;
        `visible`: only runs of workflows that it covers.
        """
        ...

    async def pin_run(self, run_id: str, pin: Pin | None) -> bool:
        """Sets or removes the pin of a run, whatever its state; False if there is no such run."""
        ...

    async def current_run(self, workflow: str) -> Run | None:
        """The newest active run of the workflow, else its newest run; without steps."""
        ...

    async def active_run_ids(self) -> Sequence[str]:
        """Oldest first."""
        ...

    async def known_runs(self, run_ids: Collection[str]) -> Mapping[str, RunState]:
        """The states of the runs that exist, by id."""
        ...

    async def latest_success(self, workflow: str, steps: Collection[str]) -> Mapping[str, str]:
        """By step, the newest run of the workflow that executed it and in which it SUCCEEDED.

        Without steps that never did. INCOMPLETE and SKIPPED do not count, nor does a result taken from another run.
        """
        ...

    async def history(self, run_id: str, *, after: int = 0, limit: int = 500) -> Sequence[HistoryEntry]: ...

    async def last_change(self) -> int:
        """The position of the last change of all runs; 0 if there was none. Positions are never reused."""
        ...

    async def changes_after(self, position: int, *, limit: int = 100) -> Sequence[PositionedChange]:
        """Creations and transitions of all runs in the order of their commits, without those of deleted runs."""
        ...

    async def active_at(self, position: int, *, after: str = "", limit: int = 100) -> tuple[Sequence[Run], str]:
        """Runs that were active at that position and still are, as they were then; by id, above `after`, without steps.

        Also the id after which the next page begins; empty on the last page. Examines at most `limit` runs.
        """
        ...
