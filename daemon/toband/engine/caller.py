"""Call origin: the step whose process made a call, and so the depth of the call in a chain of events."""

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
    """The attempt that a call comes from, as the environment of its processes names it."""

    run_id: str
    token: str
    is_caller: bool = True
    """False if a process of the step calls with a credential of another identity: that is the caller then."""


class OriginLookup:
    """Belongs to the event loop. `active` returns runs that have not ended."""

    def __init__(self, store: Store, active: Callable[[str], Run | None]) -> None:
        self._store = store
        self._active = active

    async def cause(self, origin: CallOrigin | None) -> Cause | None:
        """None for a call from outside, and for a call that names an unknown attempt. Raises StoreError."""
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
        # Processes that a step left behind may outlive it.
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
