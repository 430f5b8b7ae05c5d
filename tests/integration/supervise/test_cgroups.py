"""Attempts in cgroups: the kernel confirms that a killed attempt left no process, whichever supervisor was killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from helpers.processes import alive, gone, kill, seen
from helpers.steps import DAEMONISING, STORMING, lurker_argv, python, shell
from helpers.supervision import Opener, Place, Supervision, new_attempt
from helpers.wait import wait_for, wait_until
from toban.definition import Resources
from toband.domain.attempt_model import Attempt, TreeCause
from toband.supervise.shim import cgroups
from toband.supervise.shim.cgroups import Cgroups


@pytest.fixture
def delegated(place: Place) -> Iterator[Cgroups]:
    """A cgroup of this test's own, marked as a service manager would."""
    mount = cgroups._mount()
    if mount is None:
        pytest.skip("there is no cgroup v2 hierarchy here")
    if os.geteuid() != 0:
        pytest.skip("only root may make a cgroup and mark it as delegated")
    where, root = mount
    own = cgroups._own(where, root)
    if own is None:
        pytest.skip("this process is in no cgroup that can be seen from here")
    base = f"{own}/toban-test-{uuid4().hex}.service"
    try:
        os.mkdir(base)
        os.setxattr(base, "trusted.delegate", b"1")
    except OSError as error:
        pytest.skip(f"cannot make a delegated cgroup: {error}")
    try:
        found = cgroups.find(own=base)
        assert found.attempts == f"{base}/attempts"
        # The tests and their supervisors stay where they are.
        yield found._replace(home=own)
        left = os.listdir(found.attempts)
        assert [name for name in left if os.path.isdir(f"{found.attempts}/{name}")] == []
    finally:
        for directory, _, _ in os.walk(base):
            for pid in Path(directory, "cgroup.procs").read_text().split():
                kill(seen(int(pid)))
        wait_until(lambda: cgroups.remove(base), "the test's cgroup is not empty")


@pytest.fixture
async def supervision(opened: Opener, delegated: Cgroups) -> Supervision:
    return await opened(cgroups=delegated)


def cgroup_of(pid: int) -> str:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line[3:]
    return ""


def no_cgroup_left(supervision: Supervision, attempt: Attempt) -> bool:
    return not os.path.exists(supervision.launcher.cgroups.of(attempt.token))


async def test_the_step_is_inside_before_it_begins_and_its_supervisor_is_not(
    supervision: Supervision,
) -> None:
    gate = supervision.gate()
    attempt = supervision.launch(
        shell('sed -n s/^0:://p /proc/self/cgroup; sleep 600 & read x < "$1"; kill $!', gate.path)
    )
    started = await supervision.started(attempt)
    shim = await supervision.shim(attempt)
    await wait_for(lambda: supervision.printed(attempt), "nothing is printed")
    inside = supervision.printed(attempt).decode().strip()

    assert inside.endswith(f"/attempts/{attempt.token}")
    assert cgroup_of(started.pid) == inside
    assert cgroup_of(shim.pid) == cgroup_of(os.getpid())
    await gate.release()
    ended = await supervision.ended(attempt)
    assert (ended.ending.cgroup, ended.ending.proved_empty) == (True, True)
    assert no_cgroup_left(supervision, attempt)


async def test_a_forked_step_is_inside_too(supervision: Supervision) -> None:
    attempt = supervision.launch(shell("sed -n s/^0:://p /proc/self/cgroup; nice"), resources=Resources(nice=7))
    ended = await supervision.ended(attempt)

    inside, niceness = supervision.printed(attempt).decode().split()
    assert inside.endswith(f"/attempts/{attempt.token}")
    assert niceness == "7"
    assert ended.ending.cgroup


async def test_a_step_that_cannot_be_started_leaves_no_cgroup(supervision: Supervision) -> None:
    ended = await supervision.run(["/nonexistent/program"], attempt=(attempt := new_attempt()))

    assert ended.not_started
    assert no_cgroup_left(supervision, attempt)


async def test_a_storm_of_forks_ends_with_its_cgroup(supervision: Supervision) -> None:
    argv = python(STORMING, "ready", "60", supervision.place.marker)
    attempt, _ = await supervision.ready_in_time(argv, 3.0, made="ready", grace=0.1)
    ended = await supervision.ended(attempt)

    assert (ended.ending.cause, ended.ending.signals) == (TreeCause.TIMEOUT, ("TERM", "KILL"))
    assert (ended.ending.proved_empty, ended.ending.cgroup) == (True, True)
    assert supervision.strays() == []
    assert no_cgroup_left(supervision, attempt)


async def test_shim_and_spawner_killed_together_leave_nothing(supervision: Supervision) -> None:
    """Without a cgroup this could not be known."""
    seconds = f"600.{int(supervision.place.marker[-8:], 16)}"
    attempt = supervision.launch(python(DAEMONISING, supervision.place.path("pid"), *lurker_argv(seconds)))
    lurker = seen(int(await supervision.appears("pid")))
    started = await supervision.started(attempt)
    main = seen(started.pid)
    shim = await supervision.shim(attempt)
    kill(supervision.spawner, signal.SIGSTOP)
    kill(shim)
    kill(supervision.spawner)
    lost = await supervision.lost(attempt)
    await supervision.new_spawner()

    assert lost.orphans == "ended"
    assert lost.orphans.gone
    assert gone(main)
    assert gone(lurker)
    assert no_cgroup_left(supervision, attempt)


async def test_a_shim_killed_alone_leaves_nothing(supervision: Supervision) -> None:
    attempt = supervision.launch(shell("sleep 600 & sleep 600 & wait"))
    await supervision.started(attempt)
    kill(await supervision.shim(attempt))
    lost = await supervision.lost(attempt)

    assert lost.orphans == "ended"
    assert supervision.strays() == []
    assert no_cgroup_left(supervision, attempt)


async def test_what_dead_supervisors_left_is_ended_after_a_restart(opened: Opener, delegated: Cgroups) -> None:
    """Daemon, spawner and shim are gone; the steps of shims that live go on."""
    first = await opened(cgroups=delegated)
    orphaned = first.launch(["sleep", "600"], attempt=new_attempt("orphaned"))
    gate = first.gate()
    living = first.launch(shell('read x < "$1"; exit 3', gate.path), attempt=new_attempt("living"))
    step = seen((await first.started(orphaned)).pid)
    await first.started(living)
    shim = await first.shim(orphaned)
    await first.close()
    kill(first.spawner, signal.SIGSTOP)
    kill(shim)
    kill(first.spawner)
    await first.shim_gone(shim)
    assert alive(step)
    second = await opened(cgroups=delegated)

    await wait_for(lambda: gone(step), "what was left lives on")
    lost = await second.launcher.recover(orphaned)
    assert getattr(lost, "orphans", "") in ("none", "ended")
    assert await second.launcher.recover(living) is None
    assert second.launcher.live_shims() == {living.id: (await second.shim(living)).pid}
    await gate.release()
    assert (await second.ended(living)).exit_code == 3
    await wait_for(lambda: no_cgroup_left(second, orphaned), "its cgroup was left")


async def test_a_daemon_without_cgroups_still_knows_those_of_before(opened: Opener, delegated: Cgroups) -> None:
    first = await opened(cgroups=delegated)
    attempt = first.launch(["sleep", "600"])
    step = seen((await first.started(attempt)).pid)
    shim = await first.shim(attempt)
    await first.close()
    kill(first.spawner, signal.SIGSTOP)
    kill(shim)
    kill(first.spawner)
    await first.shim_gone(shim)
    second = await opened(cgroups=cgroups.find("off"))
    lost = await second.launcher.recover(attempt)

    assert getattr(lost, "orphans", "") == "ended"
    assert gone(step)


async def test_recovering_many_at_once_is_safe(opened: Opener, delegated: Cgroups) -> None:
    first = await opened(cgroups=delegated)
    attempts = [first.launch(["sleep", "600"], attempt=new_attempt(f"s{number}")) for number in range(12)]
    for attempt in attempts:
        await first.started(attempt)
    shims = [await first.shim(attempt) for attempt in attempts]
    await first.close()
    kill(first.spawner, signal.SIGSTOP)
    for shim in shims[::2]:
        kill(shim)
    kill(first.spawner)
    for shim in shims[::2]:
        await first.shim_gone(shim)
    second = await opened(cgroups=delegated)
    found = await asyncio.gather(*(second.launcher.recover(attempt) for attempt in attempts))

    assert [event is None for event in found] == [False, True] * 6
    for event in found[::2]:
        assert getattr(event, "orphans", "") in ("none", "ended")
    assert len(second.launcher.live_shims()) == 6
    for attempt in attempts[1::2]:
        second.launcher.stop(attempt)
        assert (await second.ended(attempt)).ending.cgroup
    await wait_for(lambda: all(no_cgroup_left(second, attempt) for attempt in attempts), "cgroups were left")


async def test_a_cgroup_that_cannot_be_made_is_done_without(opened: Opener, delegated: Cgroups) -> None:
    supervision = await opened(cgroups=delegated._replace(attempts="/proc/self/attempts"))
    ended = await supervision.run(shell("exit 4"), attempt=(attempt := new_attempt()))

    assert (ended.exit_code, ended.ending.cgroup) == (4, False)
    assert ended.ending.proved_empty
    claim = supervision.claim_of(attempt)
    assert claim is not None
    assert "cgroup" not in claim


async def test_a_limit_that_its_cgroup_cannot_keep_is_refused(opened: Opener, delegated: Cgroups) -> None:
    """A controller that the daemon found at its start has disappeared."""
    supervision = await opened(cgroups=delegated._replace(controllers=frozenset({"pids"})))
    ended = await supervision.run(
        shell("echo x >> witness"), attempt=(attempt := new_attempt()), resources=Resources(pids=3)
    )

    if not ended.not_started:
        pytest.skip("this host has a pids controller")
    assert ended.error.startswith("cannot start /bin/sh: cannot set its limits in ")
    assert supervision.witnessed() == 0
    assert no_cgroup_left(supervision, attempt)
