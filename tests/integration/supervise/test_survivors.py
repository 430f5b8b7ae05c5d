"""Processes that cannot be killed, and processes killed by others: both are reported as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from helpers.processes import alive, gone, seen
from helpers.steps import python, shell
from helpers.supervision import Opener, Supervision, new_attempt
from helpers.wait import wait_for, wait_until
from toband.domain.attempt_model import TreeCause
from toband.supervise.launch.launcher import ShimPatience

MIB = 1024 * 1024


def legacy_cgroup(controller: str) -> Iterator[Path]:
    """A cgroup of version 1: its freezer holds even what is killed, its memory limit is a real one."""
    path = Path(f"/sys/fs/cgroup/{controller}/toban-test-{uuid4().hex}")
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"there is no {controller} controller of version 1: {error}")
    try:
        yield path
    finally:
        if controller == "freezer":
            (path / "freezer.state").write_text("THAWED")
        wait_until(lambda: not (path / "cgroup.procs").read_text(), "its processes do not end")
        path.rmdir()


@pytest.fixture
def freezer() -> Iterator[Path]:
    yield from legacy_cgroup("freezer")


@pytest.fixture
def small_memory() -> Iterator[Path]:
    for path in legacy_cgroup("memory"):
        (path / "memory.limit_in_bytes").write_text(str(32 * MIB))
        yield path


async def test_what_does_not_die_is_named_and_does_not_hold_up_the_rest(freezer: Path, opened: Opener) -> None:
    # Long enough for the shell to die of what the other one does not die of.
    supervision = await opened(patience=ShimPatience(kill=2.0))
    attempt = supervision.launch(shell("sleep 600 & echo $! > .pid; mv .pid pid; wait"), grace=0.1)
    frozen = seen(int(await supervision.appears("pid")))
    (freezer / "cgroup.procs").write_text(str(frozen.pid))
    (freezer / "freezer.state").write_text("FROZEN")
    await wait_for(lambda: (freezer / "freezer.state").read_text().strip() == "FROZEN", "it does not freeze")
    supervision.launcher.stop(attempt)
    ended = await supervision.ended(attempt)

    assert ended.ending.cause is TreeCause.CANCEL
    assert (ended.ending.proved_empty, ended.ending.survivors) == (False, 1)
    assert ended.ending.survivor_pids == (frozen.pid,)
    told = supervision.conditions.now["unkillable"]
    assert told.startswith("step step of run run-1 left 1 processes that do not die: pids ")
    assert told.endswith(str(frozen.pid))
    assert alive(frozen)
    # Others are started and end as if nothing were the matter.
    for number in range(3):
        other = await supervision.run(shell("exit 4"), attempt=new_attempt(f"s{number}"))
        assert other.exit_code == 4
    (freezer / "freezer.state").write_text("THAWED")
    await wait_for(lambda: gone(frozen), "it does not die")
    await wait_for(lambda: "unkillable" not in supervision.conditions.now, "it is still told")


async def test_a_step_that_ran_out_of_memory_says_so(small_memory: Path, supervision: Supervision) -> None:
    """The kernel's own killer was at work: that is said beside the signal, since it may be the reason."""
    script = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
held = b"x" * (200 << 20)
"""
    swap = small_memory / "memory.swappiness"
    if swap.exists():
        swap.write_text("0")
    attempt = supervision.launch(python(script, str(small_memory / "cgroup.procs")))
    ended = await supervision.ended(attempt)

    assert (ended.signal, ended.ending.cause) == (9, TreeCause.EXITED)
    assert ended.error == ("killed by signal 9; the kernel's out-of-memory killer was at work while it ran")
