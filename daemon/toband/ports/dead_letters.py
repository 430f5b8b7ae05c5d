"""Dead letters, as the engine uses them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from toband.domain.identity import Visible
from toband.domain.run_model import DeadLetter, DeadLetterState


class DeadLetterStore(Protocol):
    """Steps that failed for good. A run's transition writes them: see RunChange."""

    async def list_dead_letters(
        self,
        *,
        workflow: str = "",
        states: Sequence[DeadLetterState] = (),
        before: str = "",
        limit: int = 100,
        visible: Visible = None,
    ) -> Sequence[DeadLetter]:
        """Newest first, with an id below `before`."""
        ...

    async def get_dead_letter(self, letter_id: str) -> DeadLetter | None: ...

    async def discard_dead_letter(self, letter_id: str, *, at: datetime, by: str) -> tuple[DeadLetter, bool] | None:
        """The letter as it is now, and whether this call closed it. None if there is no such letter."""
        ...
