"""A supervisor that dies at the worst moments: every report is true, and nothing starts twice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from helpers.processes import kill, seen, state_of, unread
from helpers.steps import shell
from helpers.supervision import Opener, Supervision, new_attempt
from helpers.wait import wait_for
from toband import failpoints
from toband.domain.attempt_model import TreeCause
from toband.domain.run_events import AttemptLost
from toband.ports import LogKind
from toband.supervise.launch import unresponsive_shims
from toband.supervise.launch.launcher import ShimPatience
from toband.supervise.launch.live_attempt import LiveAttempt
from toband.supervise.logs.log_reader import LogReader

Armed = Callable[..., Awaitable[Supervision]]
WITNESSED = "echo x >> witness; echo out; exit 5"


@pytest.fixture
def armed(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> Armed:
    """Opens a launcher whose spawner and shims have these failpoints."""

    async def make(failing: str, **how: Any) -> Supervision:
        monkeypatch.setenv("TOBAN_FAILPOINTS_SPAWNER", failing)
        supervision = await opened(**how)
        monkeypatch.delenv("TOBAN_FAILPOINTS_SPAWNER")
        return supervision

    return make


async def test_a_shim_killed_before_its_claim_never_started_anything(armed: Armed) -> None:
    """The attempt is void, to be launched again; but not without end."""
    supervision = await armed("shim.before_claim=kill")
    for _ in range(2):
        await supervision.voided(supervision.launch(shell(WITNESSED), attempt=new_attempt(id="a")))
    ended = await supervision.run(shell(WITNESSED), attempt=new_attempt(id="a"))

    assert ended.not_started
    assert ended.error.startswith("cannot start the step's supervisor")
    assert supervision.witnessed() == 0


@pytest.mark.parametrize("place_of_death", ["claim.linked", "shim.claimed"])
async def test_a_shim_killed_between_claim_and_start_is_lost(armed: Armed, place_of_death: str) -> None:
    supervision = await armed(f"{place_of_death}=kill")
    attempt = supervision.launch(shell(WITNESSED))
    lost = await supervision.lost(attempt)

    assert lost.orphans == "none"
    assert supervision.witnessed() == 0
    assert isinstance(await supervision.launcher.recover(attempt), AttemptLost)


async def test_a_shim_killed_right_after_the_start_is_lost_and_leaves_nothing(
    armed: Armed,
) -> None:
    supervision = await armed("shim.started=kill")
    attempt = supervision.launch(shell("echo x >> witness; exec sleep 600"))
    lost = await supervision.lost(attempt)

    assert lost.orphans == "ended"
    assert supervision.witnessed() <= 1
    assert supervision.strays() == []


@pytest.mark.parametrize("way", ["timeout", "cancel"])
async def test_a_step_that_ends_just_before_it_is_signalled_ended_by_itself(
    armed: Armed, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The shim has decided to end it, and loses the processor: by the time it is back the step is done."""
    monkeypatch.setattr(unresponsive_shims, "LOOK_EVERY", 3600.0)
    supervision = await armed("shim.end_main=stop@1")
    gate = supervision.gate()
    timeout = 0.5 if way == "timeout" else None
    attempt = supervision.launch(shell('read x < "$1"; exit 0', gate.path), timeout=timeout)
    step = seen((await supervision.started(attempt)).pid)
    shim = await supervision.shim(attempt)
    if way == "cancel":
        # Not by the launcher, which would wake it at once.
        kill(shim, signal.SIGTERM)
    await wait_for(lambda: state_of(shim.pid) == "T", "it is not about to end its step")
    await gate.release()
    await wait_for(lambda: state_of(step.pid) in ("Z", ""), "the step does not end")
    kill(shim, signal.SIGCONT)
    ended = await supervision.ended(attempt)

    assert (ended.ending.cause, ended.exit_code) == (TreeCause.EXITED, 0)
    assert ended.ending.signals == ()


async def test_a_shim_killed_before_its_record_is_lost(armed: Armed) -> None:
    supervision = await armed("end.before=kill")
    attempt = supervision.launch(shell(WITNESSED))
    lost = await supervision.lost(attempt)

    assert lost.orphans == "none"
    assert supervision.witnessed() == 1
    assert supervision.printed(attempt) == b"out\n"


@pytest.mark.parametrize("place_of_death", ["end.written", "end.durable"])
async def test_a_shim_killed_behind_its_record_has_ended(armed: Armed, opened: Opener, place_of_death: str) -> None:
    supervision = await armed(f"{place_of_death}=kill")
    attempt = supervision.launch(shell(WITNESSED))
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.proved_empty) == (5, True)
    assert supervision.witnessed() == 1
    assert supervision.printed(attempt) == b"out\n"
    assert await (await opened()).launcher.recover(attempt) == ended


async def test_a_shim_whose_claim_is_not_durable_starts_nothing(armed: Armed) -> None:
    supervision = await armed("claim.linked=EIO")
    attempt = supervision.launch(shell(WITNESSED))
    lost = await supervision.lost(attempt)

    assert lost.orphans == "none"
    assert supervision.witnessed() == 0


@pytest.mark.parametrize("launches", [1, 3])
async def test_a_spawner_killed_when_it_was_asked_delays_and_loses_nothing(armed: Armed, launches: int) -> None:
    """What had no shim yet gets one from the next spawner."""
    supervision = await armed(f"spawner.asked=kill@{launches}")
    attempts = [supervision.launch(shell(WITNESSED)) for _ in range(launches)]
    for attempt in attempts:
        assert (await supervision.ended(attempt)).exit_code == 5
    await supervision.new_spawner()

    assert supervision.witnessed() == launches


async def test_a_fork_that_fails_now_and_then_is_made_up_for(armed: Armed) -> None:
    supervision = await armed("spawner.fork=EAGAIN@1")
    for _ in range(3):
        assert (await supervision.run(shell("exit 2"))).exit_code == 2


async def test_a_fork_that_always_fails_is_told_and_waited_for(armed: Armed) -> None:
    supervision = await armed("spawner.fork=EAGAIN")
    attempts = [
        supervision.launch(shell("echo x >> witness"), attempt=new_attempt(f"s{number}")) for number in range(3)
    ]

    def told() -> bool:
        return supervision.conditions.now.get("spawner", "").endswith("3 attempts wait for one")

    await wait_for(told, "nobody is told of it")
    reason = "cannot fork: Resource temporarily unavailable"
    assert reason in supervision.conditions.now["spawner"]
    assert supervision.launcher.waiting() == 3
    supervision.launcher.stop(attempts[1])
    await supervision.voided(attempts[1])
    # A spawner whose forks succeed takes its place.
    kill(supervision.spawner)
    for attempt in (attempts[0], attempts[2]):
        assert (await supervision.ended(attempt)).exit_code == 0
    await supervision.new_spawner()

    assert supervision.witnessed() == 2
    assert supervision.conditions.now == {}


async def test_a_step_that_cannot_be_forked_for_a_moment_is_started_later(armed: Armed) -> None:
    supervision = await armed("shim.start=EAGAIN@1")
    ended = await supervision.run(shell(WITNESSED))

    assert (ended.exit_code, ended.error) == (5, "")
    assert supervision.witnessed() == 1


async def test_a_step_that_waits_to_be_forked_can_be_stopped(armed: Armed) -> None:
    supervision = await armed("shim.start=EAGAIN")
    attempt = supervision.launch(shell(WITNESSED))
    await supervision.shim(attempt)
    supervision.launcher.stop(attempt)
    ended = await supervision.ended(attempt)

    assert ended.not_started
    assert ended.error == "cannot start /bin/sh: Resource temporarily unavailable (failpoint shim.start)"
    assert supervision.witnessed() == 0


async def test_a_launch_without_descriptors_waits_for_one(supervision: Supervision) -> None:
    failpoints.arm("launch.message=EMFILE")
    try:
        attempt = supervision.launch(shell("exit 5"))
        await wait_for(lambda: "spawner" in supervision.conditions.now, "nobody is told of it")
        assert "Too many open files" in supervision.conditions.now["spawner"]
        assert supervision.ends_of(attempt) == []
    finally:
        failpoints.arm("")

    assert (await supervision.ended(attempt)).exit_code == 5
    assert supervision.conditions.now == {}


@pytest.mark.parametrize("cause", [TreeCause.RUN_TIMEOUT, TreeCause.LOOP_TIMEOUT])
async def test_a_timeout_that_began_before_goes_on_while_an_attempt_waits(
    supervision: Supervision, cause: TreeCause, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = LiveAttempt.bootstrap_file
    left: list[float] = []

    def noted(live: LiveAttempt, now: float) -> int:
        fd = bootstrap(live, now)
        left.append(json.loads(os.pread(fd, 1 << 20, 0))["timeout"])
        return fd

    monkeypatch.setattr(LiveAttempt, "bootstrap_file", noted)
    failpoints.arm("launch.message=EMFILE@1")
    try:
        began = time.monotonic()
        attempt = supervision.launch(["sleep", "600"], timeout=1.2, cause=cause, grace=600.0)
        ended = await supervision.ended(attempt)
    finally:
        failpoints.arm("")

    assert ended.ending.cause is cause
    # It waited for a second of its time, and had the rest of it, however long that took here.
    assert time.monotonic() - began >= 1.2
    (rest,) = left
    assert 0 <= rest < 0.3


async def test_a_stopped_shim_is_still_there_after_a_restart(armed: Armed, opened: Opener) -> None:
    """Claimed and stopped before the start: it is neither void nor lost, and goes on when it can."""
    first = await armed("shim.claimed=stop")
    attempt = first.launch(shell(WITNESSED))
    shim = await first.shim(attempt)
    await wait_for(lambda: state_of(shim.pid) == "T", "the shim did not stop")
    await first.close()
    second = await opened()

    assert await second.launcher.recover(attempt) is None
    kill(shim, signal.SIGCONT)
    assert (await second.ended(attempt)).exit_code == 5
    assert second.witnessed() == 1


async def test_a_disk_that_refuses_output_does_not_stop_the_step(armed: Armed) -> None:
    # The first write is the note that the step was started, the second its first output.
    supervision = await armed("log.write=ENOSPC@2")
    gates = supervision.gate("gate1"), supervision.gate("gate2")
    script = 'printf 12345; : > printed; read x < "$1"; printf after; read x < "$2"; exit 5'
    attempt = supervision.launch(shell(script, *(gate.path for gate in gates)))
    step = await supervision.started(attempt)
    # Otherwise there is nothing to read yet, and both outputs may become one.
    await supervision.appears("printed")
    await wait_for(lambda: unread(step.pid, 1) == 0, "the shim does not read")
    await gates[0].release()
    await wait_for(lambda: supervision.printed(attempt), "nothing more is logged")
    await gates[1].release()
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.proved_empty) == (5, True)
    assert supervision.printed(attempt) == b"after"
    assert ended.stdout_bytes == 5
    assert supervision.record_of(attempt)["dropped"] == 5
    page = await LogReader(supervision.files).read(attempt, 0)
    assert [piece.kind for piece in page.pieces] == [LogKind.SYSTEM, LogKind.STDOUT]
    assert page.pieces[0].data.startswith(b"5 bytes of output were dropped here")
    assert page.over


async def test_output_that_was_dropped_at_the_very_end_is_noted(armed: Armed) -> None:
    supervision = await armed("log.write=EIO@2")
    attempt = supervision.launch(shell("printf 1234567; exit 5"))
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.stdout_bytes) == (5, 0)
    assert supervision.record_of(attempt)["dropped"] == 7
    assert supervision.printed(attempt, LogKind.SYSTEM).startswith(b"7 bytes")


async def test_a_record_that_the_disk_refuses_is_written_when_it_takes_it(armed: Armed) -> None:
    """Nothing printed, so the second write is the end record, and the third the one without outputs."""
    supervision = await armed("end.before=EIO@1")
    attempt = supervision.launch(shell("echo x >> witness; echo a=1 >> $TOBAN_OUTPUT; exit 5"))
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.error) == (5, "")
    assert supervision.witnessed() == 1


async def test_a_disk_that_takes_no_record_for_long_is_reported_as_lost(armed: Armed) -> None:
    supervision = await armed("log.write=EIO", patience=ShimPatience(record=0.0))
    attempt = supervision.launch(shell("echo x >> witness"))
    lost = await supervision.lost(attempt)

    assert lost.orphans == "none"
    assert supervision.witnessed() == 1


async def test_an_end_that_could_not_be_synced_is_told(armed: Armed) -> None:
    supervision = await armed("end.written=EIO@1")
    ended = await supervision.run(shell("echo out; exit 5"), attempt=(attempt := new_attempt()))

    assert (ended.exit_code, ended.stdout_bytes) == (5, 4)
    assert supervision.record_of(attempt)["unsynced"] is True
    assert supervision.printed(attempt) == b"out\n"
    assert "fsync failed" in supervision.conditions.now["attempt_files"]
