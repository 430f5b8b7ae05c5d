"""Supervisors that are killed: nothing is started twice, nothing is left running, nothing false is reported."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from helpers.processes import gone, kill, seen, state_of
from helpers.steps import DAEMONISING, HOPPING, lurker_argv, python, shell
from helpers.supervision import Supervision, new_attempt
from helpers.wait import wait_for
from toband.domain.attempt_model import Attempt, TreeCause
from toband.domain.run_events import AttemptEnded, AttemptVoided


async def test_a_killed_shim_is_lost_and_the_spawner_ends_what_it_left(
    supervision: Supervision,
) -> None:
    seconds = f"600.{int(supervision.place.marker[-8:], 16)}"
    attempt = supervision.launch(python(DAEMONISING, supervision.place.path("pid"), *lurker_argv(seconds)))
    lurker = seen(int(await supervision.appears("pid")))
    started = await supervision.started(attempt)
    main = seen(started.pid)
    kill(await supervision.shim(attempt))
    lost = await supervision.lost(attempt)

    assert lost.orphans == "ended"
    assert "without an end record" in lost.error
    assert gone(main)
    assert gone(lurker)
    assert (await supervision.run(shell("exit 1"))).exit_code == 1


async def test_a_killed_shim_does_not_touch_its_neighbours(supervision: Supervision) -> None:
    gate = supervision.gate()
    neighbour = supervision.launch(
        shell('sleep 600 & read x < "$1"; kill $!; exit 3', gate.path), attempt=new_attempt("other")
    )
    await supervision.started(neighbour)
    attempt = supervision.launch(["sleep", "600"])
    await supervision.started(attempt)
    kill(await supervision.shim(attempt))
    assert (await supervision.lost(attempt)).orphans == "ended"
    await gate.release()

    assert (await supervision.ended(neighbour)).exit_code == 3


async def test_shims_that_are_killed_one_after_the_other_left_what_was_ended(
    supervision: Supervision,
) -> None:
    """The spawner is busy with what the first left when the next ones die."""
    script = "sleep 600 & sleep 600 & sleep 600 & wait"
    attempts = [supervision.launch(shell(script), attempt=new_attempt(f"s{n}")) for n in range(8)]
    shims = [await supervision.shim(attempt) for attempt in attempts]
    for attempt in attempts:
        await supervision.started(attempt)
    for shim in shims:
        kill(shim)
    for attempt in attempts:
        assert (await supervision.lost(attempt)).orphans == "ended"
    assert supervision.strays() == []


async def test_a_shim_killed_when_its_step_was_dead_is_lost(supervision: Supervision) -> None:
    attempt = supervision.launch(["sleep", "600"])
    shim = await supervision.shim(attempt)
    started = await supervision.started(attempt)
    kill(shim, signal.SIGSTOP)
    kill(seen(started.pid))
    await wait_for(lambda: state_of(started.pid) in ("Z", ""), "the step did not die")
    kill(shim)
    lost = await supervision.lost(attempt)

    assert lost.orphans in ("none", "ended")


async def test_a_killed_shim_of_a_hopping_step_left_what_was_ended(
    supervision: Supervision,
) -> None:
    attempt = supervision.launch(python(HOPPING, "ready", "100", supervision.place.marker))
    await supervision.appears("ready")
    kill(await supervision.shim(attempt))
    lost = await supervision.lost(attempt)

    assert lost.orphans == "ended"
    assert supervision.strays() == []


async def test_a_step_that_kills_its_supervisor_is_lost(supervision: Supervision) -> None:
    attempt = supervision.launch(shell("echo x >> witness; kill -KILL $PPID; exec sleep 600"))
    lost = await supervision.lost(attempt)

    assert lost.orphans == "ended"
    assert supervision.witnessed() == 1


async def test_running_steps_outlive_a_killed_spawner(supervision: Supervision) -> None:
    gate = supervision.gate()
    attempt = supervision.launch(shell('echo a; read x < "$1"; echo b; exit 3', gate.path))
    await supervision.started(attempt)
    kill(supervision.spawner)
    await supervision.new_spawner()
    other = await supervision.run(shell("exit 4"), attempt=new_attempt("other"))
    assert other.exit_code == 4
    assert supervision.ends_of(attempt) == []
    await gate.release()
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.proved_empty) == (3, True)
    assert supervision.printed(attempt) == b"a\nb\n"


async def test_a_step_can_be_stopped_after_its_spawner_was_killed(supervision: Supervision) -> None:
    attempt = supervision.launch(["sleep", "600"], grace=600.0)
    await supervision.started(attempt)
    kill(supervision.spawner)
    await supervision.new_spawner()
    supervision.launcher.stop(attempt)

    assert (await supervision.ended(attempt)).ending.cause is TreeCause.CANCEL


async def test_launches_that_find_no_shim_wait_for_the_next_spawner(
    supervision: Supervision,
) -> None:
    kill(supervision.spawner, signal.SIGSTOP)
    attempts = [
        supervision.launch(shell("echo x >> witness"), attempt=new_attempt(f"s{number}")) for number in range(5)
    ]
    last = supervision.launch(shell("echo x >> witness"), attempt=new_attempt("last"))
    supervision.launcher.stop(last)
    await supervision.voided(last)
    kill(supervision.spawner)
    for attempt in attempts:
        assert (await supervision.ended(attempt)).exit_code == 0
    await supervision.new_spawner()

    assert supervision.witnessed() == 5
    assert supervision.launcher.running() == 0


async def test_what_waited_for_a_new_spawner_is_guarded_by_it(supervision: Supervision) -> None:
    shims = await supervision.parked()
    kill(supervision.spawner, signal.SIGSTOP)
    for shim in shims:
        kill(shim)
    attempts = [supervision.launch(["sleep", "600"], attempt=new_attempt(f"s{n}")) for n in range(4)]
    kill(supervision.spawner)
    await supervision.new_spawner()
    for attempt in attempts[len(shims) :]:
        await supervision.started(attempt)
        kill(await supervision.shim(attempt))
        assert (await supervision.lost(attempt)).orphans == "ended"
    for attempt in attempts[: len(shims)]:
        supervision.launcher.stop(attempt)
        await supervision.end(attempt)


async def test_an_attempt_whose_shim_never_read_it_is_void(supervision: Supervision) -> None:
    shims = await supervision.parked()
    for shim in shims:
        kill(shim, signal.SIGSTOP)
    attempt = supervision.launch(shell("echo x >> witness"))
    for shim in shims:
        kill(shim)
    await supervision.voided(attempt)

    assert supervision.witnessed() == 0
    # A launch that is given to another one of them before it has died is void as well.
    await wait_for(lambda: all(gone(shim) for shim in shims), "the killed shims do not end")
    assert (await supervision.run(shell("exit 4"))).exit_code == 4


async def test_a_parked_shim_that_was_ended_is_no_loss(supervision: Supervision) -> None:
    for shim in await supervision.parked():
        kill(shim, signal.SIGTERM)
        await wait_for(lambda shim=shim: gone(shim), "a parked shim does not end")  # type: ignore[misc]

    assert (await supervision.run(shell("exit 4"))).exit_code == 4


async def test_launches_while_the_spawner_dies_each_end_once_and_truthfully(
    supervision: Supervision,
) -> None:
    """From before its death until a new one serves: some are answered, some lost on the way, some never sent."""
    attempts: list[Attempt] = []

    async def launch(count: int) -> None:
        for _ in range(count):
            number = len(attempts)
            attempts.append(
                supervision.launch(shell('echo x >> "$1"', f"witness{number}"), attempt=new_attempt(f"s{number}"))
            )
            await asyncio.sleep(0)

    await launch(10)
    kill(supervision.spawner)
    replaced = asyncio.ensure_future(supervision.new_spawner())
    while not replaced.done() and len(attempts) < 400:
        await launch(1)
    await replaced
    await launch(10)
    ended = voided = 0
    for number, attempt in enumerate(attempts):
        match await supervision.end(attempt):
            case AttemptEnded(not_started=False, exit_code=0):
                ended += 1
                assert supervision.witnessed(f"witness{number}") == 1
            case AttemptVoided():
                voided += 1
                assert supervision.witnessed(f"witness{number}") == 0
            case other:
                pytest.fail(f"unexpected: {other}")
    assert ended >= 10
    assert supervision.launcher.running() == 0


async def test_shim_and_spawner_killed_together_is_lost_with_orphans_unknown(
    supervision: Supervision,
) -> None:
    attempt = supervision.launch(["sleep", "600"])
    started = await supervision.started(attempt)
    step = seen(started.pid)
    shim = await supervision.shim(attempt)
    kill(supervision.spawner, signal.SIGSTOP)
    kill(shim)
    kill(supervision.spawner)
    lost = await supervision.lost(attempt)
    await supervision.new_spawner()

    assert lost.orphans == "unknown"
    # Without a cgroup nobody is left who could know of it: the record says so, the test cleans up.
    kill(step)


async def test_a_spawner_that_cannot_be_started_is_tried_again(supervision: Supervision) -> None:
    """Launches wait for it meanwhile."""
    log = supervision.place.path("spawner.log")
    os.rename(log, f"{log}.old")
    os.mkdir(log)
    kill(supervision.spawner)
    await wait_for(lambda: supervision.launcher.spawner_pid == 0, "its death was not noticed")
    attempt = supervision.launch(shell("exit 3"))
    os.rmdir(log)
    ended = await supervision.ended(attempt)
    await supervision.new_spawner()

    assert ended.exit_code == 3


async def test_a_spawner_that_dies_at_once_every_time_is_reported(
    supervision: Supervision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts wait until a spawner can start, and are not reported as failed."""
    monkeypatch.setenv("TOBAN_FAILPOINTS_SPAWNER", "spawner.asked=kill")
    for shim in await supervision.parked():
        kill(shim)
    kill(supervision.spawner)
    await wait_for(lambda: gone(supervision.spawner), "the spawner lives on")
    await wait_for(lambda: supervision.launcher.spawner_pid != supervision.spawner.pid, "unnoticed")
    attempt = supervision.launch(shell("echo x >> witness; exit 4"))
    condition = await wait_for(
        lambda: next((d for _, d in supervision.conditions.told if "again and again" in d), None),
        "nobody is told of it",
    )
    assert condition.endswith("1 attempt waits for one")
    assert supervision.ends_of(attempt) == []
    assert supervision.witnessed() == 0
    monkeypatch.delenv("TOBAN_FAILPOINTS_SPAWNER")

    assert (await supervision.ended(attempt)).exit_code == 4
    assert supervision.witnessed() == 1
    assert supervision.conditions.now == {}
    await supervision.new_spawner()
