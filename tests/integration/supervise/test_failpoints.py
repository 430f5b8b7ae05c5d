"""A supervisor that dies at the worst moments: what is reported is true each time, and nothing starts twice."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import pytest

from helpers.processes import kill, state_of, unread
from helpers.steps import shell
from helpers.supervision import Opener, Supervision, new_attempt
from helpers.waiting import wait_for
from toband.domain.events import AttemptLost
from toband.ports import LogKind
from toband.supervise.log_files import LogFiles

Armed = Callable[[str], Awaitable[Supervision]]
WITNESSED = "echo x >> witness; echo out; exit 5"


@pytest.fixture
def armed(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> Armed:
    """Opens a launcher whose spawner and shims fail as told."""

    async def make(failpoints: str) -> Supervision:
        monkeypatch.setenv("TOBAN_FAILPOINTS_SPAWNER", failpoints)
        supervision = await opened()
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
async def test_a_shim_killed_between_claim_and_start_is_lost(
    armed: Armed, place_of_death: str
) -> None:
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


async def test_a_shim_killed_before_its_record_is_lost(armed: Armed) -> None:
    supervision = await armed("end.before=kill")
    attempt = supervision.launch(shell(WITNESSED))
    lost = await supervision.lost(attempt)

    assert lost.orphans == "none"
    assert supervision.witnessed() == 1
    assert supervision.printed(attempt) == b"out\n"


@pytest.mark.parametrize("place_of_death", ["end.written", "end.durable"])
async def test_a_shim_killed_behind_its_record_has_ended(
    armed: Armed, opened: Opener, place_of_death: str
) -> None:
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
async def test_a_spawner_killed_when_it_was_asked_delays_and_loses_nothing(
    armed: Armed, launches: int
) -> None:
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


async def test_a_fork_that_always_fails_is_told(armed: Armed) -> None:
    supervision = await armed("spawner.fork=EAGAIN")
    ends = [await supervision.run(shell("echo x >> witness")) for _ in range(2)]

    assert all(end.not_started for end in ends)
    for end in ends:
        assert "cannot fork: Resource temporarily unavailable" in end.error
    assert supervision.witnessed() == 0


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
    script = 'printf 12345; read x < "$1"; printf after; read x < "$2"; exit 5'
    attempt = supervision.launch(shell(script, *(gate.path for gate in gates)))
    step = await supervision.started(attempt)
    await wait_for(lambda: unread(step.pid, 1) == 0, "the shim does not read")
    await gates[0].release()
    await wait_for(lambda: supervision.printed(attempt), "nothing more is logged")
    await gates[1].release()
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.proved_empty) == (5, True)
    assert supervision.printed(attempt) == b"after"
    assert ended.stdout_bytes == 5
    assert supervision.record_of(attempt)["dropped"] == 5
    page = await LogFiles(supervision.files).read(attempt, 0)
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


async def test_a_disk_that_takes_no_record_is_reported_as_lost(armed: Armed) -> None:
    """Nothing printed, so the second write is the end record."""
    supervision = await armed("log.write=EIO@2")
    attempt = supervision.launch(shell("echo x >> witness"))
    lost = await supervision.lost(attempt)

    assert lost.orphans == "none"
    assert supervision.witnessed() == 1
