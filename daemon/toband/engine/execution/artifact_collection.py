"""Collects the outputs of a step when its process has ended: within the step's time, and not beyond the run's end.

A step that was stopped, or failed, leaves the outputs that exist; for a stopped step that takes at most STOPPED_MOST.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import structlog

from toban.definition import RenderError, format_duration
from toband import failpoints
from toband.backoff import Backoff
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.run_events import CollectionFailed, CollectionStopped, OutputsCollected
from toband.engine.bounded_work import bounded
from toband.engine.execution.artifact_flow import ArtifactFlow
from toband.engine.execution.dispatcher import PASSING
from toband.engine.execution.run_actor import RunActor
from toband.engine.execution.step_maskers import StepMaskers
from toband.engine.health.internal_errors import unexpected
from toband.masker import Masker
from toband.ports import (
    ArtifactError,
    Conditions,
    HealthStatus,
    SealError,
    SecretUnavailableError,
    StoppedError,
    StoreError,
)

CONDITION = "outputs"
LEAST = 10.0
"""Seconds that a collection may take even if the process has used up the step's time."""
STOPPED_MOST = 10.0
"""Seconds for the outputs of a step that was stopped: its run waits for them."""
STOP_GRACE = 0.25
"""Seconds after which a collection is stopped when its run ends. Most have finished by then, and count as results."""
_CHANGES_MOST = 5
# The workspace changes while it is read: a retry sees the state at that time.
_CHANGED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.EISDIR})

log = structlog.get_logger()


class Collection:
    """Belongs to the event loop. `most` is the limit in seconds for the outputs of a step without a timeout."""

    def __init__(
        self,
        *,
        artifact_flow: ArtifactFlow,
        maskers: StepMaskers,
        conditions: Conditions,
        boot_id: str,
        most: float,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._artifact_flow = artifact_flow
        self._maskers = maskers
        self._conditions = conditions
        self._boot_id = boot_id
        self.most = most
        self._start = start
        self._stops: dict[str, asyncio.Event] = {}
        # Tokens of attempts, and why their outputs cannot be stored now.
        self._troubled: dict[str, str] = {}

    def begin(self, actor: RunActor, attempt: Attempt, *, final: bool) -> None:
        """Posts OutputsCollected or CollectionFailed, or after `stop` CollectionStopped."""
        if attempt.boot_id != self._boot_id:
            # The workspace was not synced: files in it may be empty now, and look complete.
            error = "the machine went down before its outputs were kept"
            actor.post(_failed(attempt, error))
        elif attempt.token not in self._stops:
            self._stops[attempt.token] = asyncio.Event()
            self._start(self._collect(actor, attempt, final))

    def stop(self, actor: RunActor, attempt: Attempt) -> None:
        if (stop := self._stops.get(attempt.token)) is not None:
            stop.set()
        else:
            actor.post(CollectionStopped(step=attempt.owner, token=attempt.token))

    async def _collect(self, actor: RunActor, attempt: Attempt, final: bool) -> None:
        token = attempt.token
        seconds, stop = self._seconds(actor, attempt), self._stops[token]
        event: OutputsCollected | CollectionFailed | CollectionStopped
        try:
            work = self._kept(actor, attempt, final)
            event = await bounded(work, seconds=seconds, stop=stop, grace=STOP_GRACE)
        except StoppedError:
            if not stop.is_set():
                return  # the daemon is stopping; the next one starts again
            event = CollectionStopped(step=attempt.owner, token=token)
        except TimeoutError:
            why = self._troubled.get(token, "it takes too long")
            error = f"cannot keep its outputs within {format_duration(round(seconds))}: {why}"
            event = _failed(attempt, error)
        finally:
            del self._stops[token]
            self._recovered(token)
            self._maskers.drop(token)
        actor.post(event)

    def _seconds(self, actor: RunActor, attempt: Attempt) -> float:
        """The rest of the step's time. The run's timeout stops a collection separately."""
        if attempt.state in (AttemptState.CANCELLED, AttemptState.TIMED_OUT):
            return STOPPED_MOST
        step = actor.plan.step(attempt.owner)
        left: float | None
        if step.completion_check is not None:
            left = actor.step_time_left(attempt.owner)
        else:
            left = step.timeout
            if left is not None and attempt.started_at and attempt.finished_at:
                left -= (attempt.finished_at - attempt.started_at) / timedelta(seconds=1)
        return self.most if left is None else max(LEAST, left)

    async def _kept(self, actor: RunActor, attempt: Attempt, final: bool) -> OutputsCollected | CollectionFailed:
        """Retries while the disk refuses writes: the work is done, and must not be lost."""
        backoff, changes = Backoff(), 0
        masker: Masker | None = None
        while True:
            try:
                masker = await self._maskers.of_attempt(actor, attempt)
                return await self._keep(actor, attempt, final, masker)
            except StoppedError:
                raise
            except (ArtifactError, RenderError) as error:
                return _failed(attempt, _shown(str(error), masker))
            except (SecretUnavailableError, SealError, StoreError) as error:
                # Without the values, what the outputs are called may be a secret.
                self._trouble(attempt, str(error))
            except OSError as error:
                reason = _shown(_reason(error), masker)
                changes += error.errno in _CHANGED
                if error.errno not in PASSING | _CHANGED or changes > _CHANGES_MOST:
                    return _failed(attempt, f"cannot keep its outputs: {reason}")
                self._trouble(attempt, reason)
            except Exception as error:
                # Whatever the error is, the run must not wait for outputs that are not being collected.
                unexpected(f"cannot keep the outputs of run {attempt.run_id}", error)
                return _failed(attempt, _shown(f"unexpected error: {type(error).__name__}: {error}", masker))
            await asyncio.sleep(backoff.pause())

    async def _keep(self, actor: RunActor, attempt: Attempt, final: bool, masker: Masker | None) -> OutputsCollected:
        failpoints.hit("outputs.collect")
        kept, fingerprint = await self._artifact_flow.keep(
            actor.plan, actor.run, attempt, base_dir=actor.base_dir, final=final, masker=masker
        )
        failpoints.hit("outputs.kept")
        return OutputsCollected(step=attempt.owner, token=attempt.token, artifacts=kept, fingerprint=fingerprint)

    def _trouble(self, attempt: Attempt, reason: str) -> None:
        self._troubled[attempt.token] = reason
        log.error(
            "cannot keep outputs, retrying",
            action="collect_failed",
            run=attempt.run_id,
            step=attempt.step,
            error=reason,
        )
        count = len(self._troubled)
        detail = f"cannot keep the outputs of {count} steps: {reason}; retrying until their time is over"
        self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, detail)

    def _recovered(self, token: str) -> None:
        if self._troubled.pop(token, None) is not None and not self._troubled:
            self._conditions.well(CONDITION)


def _failed(attempt: Attempt, error: str) -> CollectionFailed:
    return CollectionFailed(step=attempt.owner, token=attempt.token, error=error)


def _shown(text: str, masker: Masker | None) -> str:
    """A text that may name files of the step."""
    return text if masker is None else masker.mask_text(text)


def _reason(error: OSError) -> str:
    said = error.strerror or str(error)
    return f"{error.filename}: {said}" if error.filename else said
