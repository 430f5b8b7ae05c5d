"""Maskers of steps that run: for what a step leaves or sends past its supervisor, such as the names of artifacts.

The values that an attempt was given stay in memory until it is over. A daemon that was restarted meanwhile reads them
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from toband.domain.attempt_model import Attempt
from toband.domain.run_index import step_of
from toband.engine.caller import CallOrigin
from toband.engine.execution.run_actor import RunActor
from toband.engine.execution.secret_material import StepSecrets, has_secrets
from toband.masker import Masker


@dataclass(slots=True)
class _Given:
    """What one attempt was given; the masker is made when it is needed."""

    run_id: str
    values: Collection[str]
    masker: Masker | None = None


class StepMaskers:
    """Belongs to the event loop. `find` returns the actor of an active run."""

    def __init__(self, secrets: StepSecrets, find: Callable[[str], RunActor | None]) -> None:
        self._secrets = secrets
        self._find = find
        self._given: dict[str, _Given] = {}

    def keep(self, attempt: Attempt, values: Collection[str]) -> None:
        """The attempt is about to be launched with these values."""
        # Some attempts end without a word, with their run.
        for token in [token for token, given in self._given.items() if self._find(given.run_id) is None]:
            del self._given[token]
        self._given[attempt.token] = _Given(attempt.run_id, values)

    def drop(self, token: str) -> None:
        """The attempt is over, and its outputs are stored. Repeating it is harmless."""
        self._given.pop(token, None)

    async def of_call(self, origin: CallOrigin) -> Masker | None:
        """Of the step that a call comes from; None if it has no secrets, or is over. Raises as `of_attempt`."""
        actor = self._find(origin.run_id)
        step = step_of(actor.run.steps, origin.token) if actor is not None else None
        if actor is None or step is None or step.attempt is None:
            return None
        return await self.of_attempt(actor, step.attempt)

    async def of_attempt(self, actor: RunActor, attempt: Attempt) -> Masker | None:
        """None if the attempt has no secrets. Raises SecretUnavailableError, SealError, StoreError."""
        if not has_secrets(actor.plan, attempt.step):
            return None
        given = self._given.get(attempt.token)
        if given is None:
            values = await self._secrets.known_values(actor.plan, actor.run, attempt.step)
            given = self._given.setdefault(attempt.token, _Given(attempt.run_id, values))
        if given.masker is None:
            # It takes milliseconds for each value.
            given.masker = await asyncio.to_thread(Masker, given.values)
        return given.masker
