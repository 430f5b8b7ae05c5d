"""Dead letters: steps that failed for good, kept until a client requeues or discards them.

The transition that fails a step writes its dead letter (`domain/attempt_outcomes.py`).
"""

from __future__ import annotations

from functools import partial

from toband.domain.run_model import DeadLetter, DeadLetterState, Run
from toband.engine.caller import CallOrigin
from toband.engine.errors import DeadLetterNotFoundError
from toband.engine.runs.intake import RunIntake
from toband.engine.runs.run_factory import NewRun, RunFactory
from toband.engine.runs.step_selection import RetrySelection
from toband.ports import Clock, DeadLetterClosedError, DeadLetterStore, Request


class DeadLetters:
    def __init__(self, *, store: DeadLetterStore, clock: Clock, factory: RunFactory, intake: RunIntake) -> None:
        self._store = store
        self._clock = clock
        self._factory = factory
        self._intake = intake

    async def get(self, letter_id: str) -> DeadLetter:
        """Raises DeadLetterNotFoundError."""
        letter = await self._store.get_dead_letter(letter_id)
        if letter is None:
            raise DeadLetterNotFoundError(letter_id)
        return letter

    async def requeue(
        self, letter_id: str, *, caller: str, request: Request | None, origin: CallOrigin | None = None
    ) -> Run:
        """Starts a run that repeats the failed step and all steps after it.

        Raises DeadLetterNotFoundError, DeadLetterClosedError, and as `RunIntake.retry`.
        """
        return await self._intake.admit(
            partial(self._retry, letter_id, caller),
            doing="requeue a dead letter",
            request=request,
            origin=origin,
            requeue=letter_id,
            by=caller,
        )

    async def _retry(self, letter_id: str, caller: str) -> NewRun:
        letter = await self.get(letter_id)
        selection = RetrySelection(from_steps=(letter.step,))
        return await self._factory.retry(letter.run_id, selection=selection, caller=caller)

    async def discard(self, letter_id: str, *, by: str) -> DeadLetter:
        """Discarding it again is harmless. Raises DeadLetterNotFoundError, DeadLetterClosedError if it was requeued."""
        found = await self._store.discard_dead_letter(letter_id, at=self._clock.now(), by=by)
        if found is None:
            raise DeadLetterNotFoundError(letter_id)
        letter, _ = found
        if letter.state is not DeadLetterState.DISCARDED:
            raise DeadLetterClosedError(letter)
        return letter
