"""Every test here starts real processes, and must leave none of them and no file of theirs behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from helpers.processes import describe, gone, kill, marked
from helpers.supervision import Opener, Place, Supervision
from helpers.wait import wait_for, wait_until
from toband.domain.run_events import AttemptStarted
from toband.supervise.launch import unresponsive_shims


@pytest.fixture(autouse=True)
def _no_shim_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests stop shims themselves, so the watch must not continue them; its own tests switch it on."""
    monkeypatch.setattr(unresponsive_shims, "LOOK_EVERY", 3600.0)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A state directory, and a marker in the environment of all that is started for it."""
    marker = f"toban-test-{uuid4().hex}"
    # PATH is what the launcher passes on to its spawner, and so to every shim.
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/nonexistent/{marker}")
    root = os.path.realpath(tempfile.mkdtemp(prefix="toban-test-"))
    try:
        yield Place(root, marker)
        try:
            wait_until(lambda: not marked(marker), "processes were left behind")
        except AssertionError:
            left = marked(marker)
            for process in left:
                kill(process)
            pytest.fail("left behind: " + "; ".join(describe(process) for process in left))
        hidden = [name for _, _, names in os.walk(root) for name in names if name.startswith(".")]
        assert hidden == [], "temporary files were left behind"
    finally:
        for process in marked(marker):
            kill(process)
        shutil.rmtree(root)


@pytest.fixture
async def opened(place: Place) -> AsyncIterator[Opener]:
    """Opens launchers on the same state directory; all are closed, and all spawners end, with the test."""
    supervisions: list[Supervision] = []

    async def make(**how: Any) -> Supervision:
        supervision = Supervision(place, **how)
        await supervision.open()
        supervisions.append(supervision)
        return supervision

    yield make
    for supervision in supervisions:
        await supervision.close()
    for supervision in supervisions:
        for spawner in supervision.spawners:
            await wait_for(partial(gone, spawner), "a spawner lives on")
    for supervision in supervisions:
        ends = [
            event.token  # type: ignore[union-attr]
            for event in supervision.events
            if not isinstance(event, AttemptStarted)
        ]
        assert len(ends) == len(set(ends)), "an attempt ended twice"


@pytest.fixture
async def supervision(opened: Opener) -> Supervision:
    return await opened()
