"""Step tokens: the token of a live attempt proves that a call comes from its step."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from toband.domain.identity import Identity, IdentityKind, StepIdentity
from toband.domain.run_index import step_of
from toband.domain.run_model import Run
from toband.engine.access.live_streams import LiveStreams
from toband.engine.errors import CredentialReason, InvalidCredentialError

_ORIGIN = re.compile(r"(?P<run>[0-9A-Za-z-]{1,64})/(?P<token>[0-9A-Za-z]{1,64})")
LOOK_EVERY = 1.0


class StepTokens:
    """Belongs to the event loop. `active` returns runs that have not ended."""

    def __init__(self, active: Callable[[str], Run | None], streams: LiveStreams) -> None:
        self._active = active
        self._streams = streams

    def identify(self, origin: str) -> Identity:
        """`origin` is `RUN_ID/TOKEN`, as in the environment of a step. Raises InvalidCredentialError."""
        match = _ORIGIN.fullmatch(origin)
        found = self._find(match["run"], match["token"]) if match else None
        if found is None:
            raise _ended()
        return found

    async def watch(self) -> None:
        """Ends the streams of attempts that have ended, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            for credential in self._streams.credentials():
                match = _ORIGIN.fullmatch(credential)
                if match is not None and self._find(match["run"], match["token"]) is None:
                    self._streams.end(credential, _ended())

    def _find(self, run_id: str, token: str) -> Identity | None:
        run = self._active(run_id)
        step = step_of(run.steps, token) if run is not None else None
        if run is None or step is None:
            return None
        return Identity(
            name=f"step:{run.workflow}/{step.id}",
            kind=IdentityKind.STEP,
            credential=f"{run_id}/{token}",
            step=StepIdentity(run_id=run_id, token=token, workflow=run.workflow, step=step.id),
        )


def _ended() -> InvalidCredentialError:
    return InvalidCredentialError("the step of this call has ended", CredentialReason.STEP_ENDED)
