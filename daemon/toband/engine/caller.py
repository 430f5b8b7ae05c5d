"""Where a call comes from: the step in whose processes it was made, and so its place in a chain of events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toband.domain.emitted_events import Cause
from toband.domain.run_index import step_of
from toband.domain.run_model import Run
from toband.engine.errors import EventSourceNotFoundError
from toband.ports import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOrigin:
    """The attempt that a call comes from, as its environment has it."""

    run_id: str
    token: str


class OriginLookup:
    """Belongs to the event loop. `active` gives runs that have not ended."""

    def __init__(self, store: Store, active: Callable[[str], Run | None]) -> None:
        self._store = store
        self._active = active

    async def cause(self, origin: CallOrigin | None) -> Cause | None:
        """None for a call from outside. What claims to be of an attempt that is not known is from outside too.

        Raises StoreError.
        """
        if origin is None:
            return None
        try:
            return await self.find(origin)
        except EventSourceNotFoundError:
            return None

    async def find(self, origin: CallOrigin) -> Cause:
        """Raises EventSourceNotFoundError, StoreError."""
        run = self._active(origin.run_id)
        if run is not None:
            step = step_of(run.steps, origin.token)
            if step is not None:
                return Cause(run_id=run.id, step=step.id, depth=run.depth)
        # What a step left behind may outlive it.
        run = run or await self._store.get_run_page(origin.run_id, limit=0)
        ordinal = 0
        while run is not None:
            attempts = await self._store.run_attempts(origin.run_id, from_ordinal=ordinal)
            for attempt in attempts:
                if attempt.token == origin.token:
                    return Cause(run_id=run.id, step=attempt.owner, depth=run.depth)
            if not attempts:
                break
            ordinal = attempts[-1].ordinal + 1
        raise EventSourceNotFoundError(origin.run_id)
