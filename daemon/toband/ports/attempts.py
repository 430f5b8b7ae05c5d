"""Attempts and their resource use, as the engine uses them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from toband.domain.attempt_model import Attempt, AttemptState, Usage
from toband.domain.identity import Visible


class AttemptStore(Protocol):
    """Attempts of steps. A run's transition writes them: see RunChange."""

    async def list_attempts(
        self,
        *,
        run_id: str = "",
        step: str = "",
        workflow: str = "",
        job: str = "",
        states: Sequence[AttemptState] = (),
        after: str = "",
        before: str = "",
        limit: int = 100,
        visible: Visible = None,
    ) -> Sequence[Attempt]:
        """Newest first, with an id above `after` and below `before`."""
        ...

    async def run_attempts(
        self, run_id: str, *, step: str = "", from_ordinal: int = 0, limit: int = 500
    ) -> Sequence[Attempt]:
        """Attempts of one run in the order of their launch, from `from_ordinal` on."""
        ...

    async def get_attempt(self, attempt_id: str) -> Attempt | None: ...

    async def abandoned_attempts(self) -> frozenset[str]:
        """Tokens of live attempts whose files are in the state directory of an earlier owner."""
        ...

    async def save_usage(self, found: Mapping[str, Usage]) -> None:
        """Replaces the samples of attempts, by id; ignores attempts that were deleted."""
        ...

    async def usage_of(self, attempt_ids: Collection[str]) -> Mapping[str, Usage]:
        """The samples of these attempts, by id."""
        ...
