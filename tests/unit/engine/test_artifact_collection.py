"""Collecting the outputs of a step: retries, their limit, and their end."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from doubles.clock import Clock
from doubles.secrets import SecretsInMemory
from helpers.wait import wait_for
from toban.definition import JobType, Step, Workflow
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.plan import Plan
from toband.domain.run_events import CollectionFailed, CollectionStopped, Event, OutputsCollected
from toband.domain.run_model import Artifact, Run
from toband.engine.execution import artifact_collection as module
from toband.engine.execution.artifact_collection import CONDITION, Collection
from toband.engine.execution.sealed_params import SealedParams
from toband.engine.execution.secret_material import StepSecrets
from toband.engine.execution.step_maskers import StepMaskers
from toband.engine.health.health_conditions import Health
from toband.masker import Masker
from toband.ports import ArtifactError, StoppedError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEPT = (Artifact(name="o", path="s/o"),)
ATTEMPT = Attempt(
    id="id",
    run_id="r",
    step="s",
    number=1,
    ordinal=0,
    token="t",
    state=AttemptState.COMPLETED,
    created_at=NOW,
    started_at=NOW,
    finished_at=NOW + timedelta(seconds=5),
    boot_id="boot",
)


class Handing:
    """Raises the errors in turn, the last one for ever; then hangs, or keeps."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.for_ever = True
        self.calls = 0
        self.hangs = False
        self.cancelled = False
        self.gate = asyncio.Event()
        self.masker: Masker | None = None

    async def keep(self, *_: object, **given: Any) -> tuple[tuple[Artifact, ...], str]:
        self.calls += 1
        self.masker = given["masker"]
        if self.errors:
            last = len(self.errors) == 1 and self.for_ever
            raise self.errors[0] if last else self.errors.pop(0)
        if self.hangs:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        return KEPT, "print"


class Actor:
    def __init__(self, timeout: float | None = None, env: Mapping[str, str] | None = None) -> None:
        self.run = Run(id="r", workflow="w", version=1, created_at=NOW)
        step = Step(id="s", name="s", job_type=JobType.SHELL, target="x", kwargs={}, env=dict(env or {}))
        step = replace(step, timeout=timeout)
        workflow = Workflow(name="w", title="", labels={}, params={}, env={}, steps={"s": step})
        self.plan = Plan(workflow)
        self.base_dir = ""
        self.posted: list[Event] = []

    def post(self, event: Event) -> None:
        self.posted.append(event)


class Scene:
    def __init__(
        self,
        artifact_flow: Handing,
        *,
        most: float = 3600,
        timeout: float | None = None,
        secrets: SecretsInMemory | None = None,
    ) -> None:
        """With `secrets` the step uses the secret `x`."""
        self.artifact_flow = artifact_flow
        self.health = Health(Clock(NOW))
        self.tasks: list[asyncio.Task[None]] = []
        self.actor = Actor(timeout, {} if secrets is None else {"X": "{{ secrets.x }}"})
        source = secrets or SecretsInMemory({})
        step_secrets = StepSecrets(source=source, sealed=SealedParams(source))
        self.collection = Collection(
            artifact_flow=cast(Any, artifact_flow),
            maskers=StepMaskers(step_secrets, lambda _: cast(Any, self.actor)),
            conditions=self.health,
            boot_id="boot",
            most=most,
            start=self._start,
        )

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def begin(self) -> None:
        self.collection.begin(cast(Any, self.actor), ATTEMPT, final=True)

    def stop(self) -> None:
        self.collection.stop(cast(Any, self.actor), ATTEMPT)

    async def ended(self) -> Event:
        await wait_for(lambda: self.actor.posted, "the collection does not end")
        await asyncio.gather(*self.tasks)
        (event,) = self.actor.posted
        assert not self.health.conditions
        return event


async def test_outputs_are_kept() -> None:
    scene = Scene(Handing())
    scene.begin()
    scene.begin()
    expected = OutputsCollected(step="s", token="t", artifacts=KEPT, fingerprint="print")
    assert await scene.ended() == expected
    assert scene.artifact_flow.calls == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
async def test_a_full_disk_is_waited_for_until_the_time_is_over(code: int) -> None:
    """The attack: outputs that fit nowhere were tried again for ever, with nothing in the health."""
    scene = Scene(Handing(OSError(code, "it does not fit", "/some/file")), most=0.6)
    scene.begin()
    (condition,) = await wait_for(lambda: scene.health.conditions, "the health does not say so")
    assert condition.name == CONDITION
    assert condition.detail == (
        "cannot keep the outputs of 1 steps: /some/file: it does not fit; retrying until their time is over"
    )
    event = await scene.ended()
    assert event == CollectionFailed(
        step="s", token="t", error="cannot keep its outputs within 1s: /some/file: it does not fit"
    )
    assert scene.artifact_flow.calls > 2


async def test_a_disk_that_has_room_again() -> None:
    scene = Scene(Handing(OSError(errno.ENOSPC, "full"), OSError(errno.EMFILE, "none left")))
    scene.artifact_flow.for_ever = False
    scene.begin()
    assert isinstance(await scene.ended(), OutputsCollected)
    assert scene.artifact_flow.calls == 3


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EACCES, "denied", "/x"), "cannot keep its outputs: /x: denied"),
        (OSError(errno.EFBIG, "too large"), "cannot keep its outputs: too large"),
        (ArtifactError('output "o" is missing'), 'output "o" is missing'),
        (ValueError("odd"), "unexpected error: ValueError: odd"),
    ],
)
async def test_what_will_not_pass_fails_at_once(error: Exception, reason: str) -> None:
    scene = Scene(Handing(error))
    scene.begin()
    assert await scene.ended() == CollectionFailed(step="s", token="t", error=reason)
    assert scene.artifact_flow.calls == 1


async def test_names_of_files_are_not_known_without_the_secrets_of_the_step() -> None:
    secrets = SecretsInMemory({"x": "s3cret-name"})
    secrets.broken["x"] = "the vault is closed"
    scene = Scene(Handing(OSError(errno.EACCES, "denied", "/w/s3cret-name")), secrets=secrets)
    scene.begin()
    (condition,) = await wait_for(lambda: scene.health.conditions, "the health does not say so")
    assert "the vault is closed" in condition.detail
    assert scene.artifact_flow.calls == 0
    secrets.broken.clear()
    assert await scene.ended() == CollectionFailed(step="s", token="t", error="cannot keep its outputs: /w/***: denied")
    assert scene.artifact_flow.masker is not None


async def test_a_workspace_that_keeps_changing_is_looked_at_a_few_times() -> None:
    scene = Scene(Handing(FileNotFoundError(errno.ENOENT, "gone", "a")))
    scene.begin()
    assert await scene.ended() == CollectionFailed(step="s", token="t", error="cannot keep its outputs: a: gone")
    assert scene.artifact_flow.calls == 6


@pytest.mark.parametrize("error", [None, OSError(errno.ENOSPC, "full")])
async def test_a_collection_of_a_run_that_ends_is_stopped(error: OSError | None) -> None:
    scene = Scene(Handing(*([error] if error else [])))
    scene.artifact_flow.hangs = True
    scene.begin()
    await wait_for(lambda: scene.artifact_flow.calls, "it does not begin")
    scene.stop()
    scene.stop()
    assert await scene.ended() == CollectionStopped(step="s", token="t")
    assert scene.artifact_flow.cancelled is (error is None)


async def test_a_collection_that_is_nearly_over_is_a_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STOP_GRACE", 60)
    scene = Scene(Handing())
    scene.artifact_flow.hangs = True
    scene.begin()
    scene.stop()
    await wait_for(lambda: scene.artifact_flow.calls, "it does not begin")
    scene.artifact_flow.gate.set()
    assert isinstance(await scene.ended(), OutputsCollected)


async def test_nothing_to_stop_is_stopped() -> None:
    scene = Scene(Handing())
    scene.stop()
    assert await scene.ended() == CollectionStopped(step="s", token="t")


async def test_a_daemon_that_ends_leaves_it_to_the_next() -> None:
    scene = Scene(Handing(StoppedError()))
    scene.begin()
    await asyncio.gather(*scene.tasks)
    assert scene.actor.posted == []


@pytest.mark.parametrize(("own", "seconds"), [(None, 3600), (100, 95), (5.5, 10), (15.5, 10.5), (20_000, 19_995)])
async def test_the_time_is_what_the_process_left_of_the_step(own: float | None, seconds: float) -> None:
    scene = Scene(Handing(), timeout=own)
    assert scene.collection._seconds(cast(Any, scene.actor), ATTEMPT) == seconds


async def test_after_a_restart_of_the_machine_nothing_is_believed() -> None:
    scene = Scene(Handing())
    scene.collection.begin(cast(Any, scene.actor), replace(ATTEMPT, boot_id="an earlier one"), final=True)
    event = await scene.ended()
    assert isinstance(event, CollectionFailed)
    assert "the machine went down" in event.error
