"""A second launcher on the same directory finds the outcome of the first one's attempts."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from helpers.launcher_process import LauncherProcess
from helpers.processes import alive, gone, kill, seen, state_of
from helpers.steps import shell
from helpers.supervision import RUN, Opener, Place, Supervision, new_attempt
from helpers.wait import wait_for
from toband.domain.attempt_model import Attempt, TreeCause
from toband.domain.run_events import AttemptEnded, AttemptLost, AttemptVoided

GATED = 'echo x >> witness; echo before; read x < "$1"; echo after; exit 7'
ABANDONED_CLAIM = """
import os, sys
from toband.supervise.shim import process_tree
from toband.supervise.shim.attempt_file import claim
me = os.getpid()
facts = {"format": 1, "attempt": "", "token": sys.argv[3], "pid": me, "boot_id": process_tree.boot_id()}
claim(sys.argv[1], sys.argv[2], {**facts, "start": process_tree.stat_of(me)[1]})
if os.fork() == 0:
    sys.stdin.read()
os._exit(0)
"""
"""Claims an attempt, leaves the lock to a child, and dies."""


async def test_a_living_shim_is_watched_again_after_a_close(opened: Opener) -> None:
    first = await opened()
    gate = first.gate()
    attempt = first.launch(shell(GATED, gate.path))
    await first.started(attempt)
    await first.close()
    second = await opened()

    assert await second.launcher.recover(attempt) is None
    assert second.launcher.running() == 1
    started = await second.started(attempt)
    await gate.release()
    ended = await second.ended(attempt)
    assert (ended.exit_code, ended.pid, ended.ending.proved_empty) == (7, started.pid, True)
    assert second.printed(attempt) == b"before\nafter\n"
    assert first.ends_of(attempt) == []
    assert second.witnessed() == 1


@pytest.mark.parametrize("way", ["kill", "close"])
async def test_a_living_shim_survives_the_end_of_the_launchers_process(place: Place, opened: Opener, way: str) -> None:
    supervision = await opened()
    gate = supervision.gate()
    other = LauncherProcess.start(place, shell(GATED, gate.path))
    await supervision.appears("witness")
    shim = await supervision.shim(other.attempt)
    if way == "kill":
        other.kill()
    else:
        other.close()

    assert await supervision.launcher.recover(other.attempt) is None
    assert alive(shim)
    assert alive(other.spawner), "the spawner no longer guards what it started"
    await gate.release()
    ended = await supervision.ended(other.attempt)
    assert (ended.exit_code, ended.ending.cause) == (7, TreeCause.EXITED)
    assert supervision.printed(other.attempt) == b"before\nafter\n"
    await wait_for(lambda: gone(other.spawner), "the retired spawner lives on")


async def test_a_watched_again_shim_can_be_stopped(opened: Opener) -> None:
    first = await opened()
    attempt = first.launch(["sleep", "600"], grace=600.0)
    await first.shim(attempt)
    await first.close()
    second = await opened()

    assert await second.launcher.recover(attempt) is None
    second.launcher.stop(attempt)
    ended = await second.ended(attempt)
    assert (ended.ending.cause, ended.ending.signals) == (TreeCause.CANCEL, ("TERM",))


async def test_the_record_of_what_ended_meanwhile_is_taken(opened: Opener) -> None:
    first = await opened()
    gate = first.gate()
    attempt = first.launch(shell(GATED, gate.path))
    shim = await first.shim(attempt)
    await first.close()
    await gate.release()
    await first.shim_gone(shim)
    second = await opened()
    found = await second.launcher.recover(attempt)

    assert isinstance(found, AttemptEnded)
    assert (found.exit_code, found.ending.proved_empty) == (7, True)
    assert second.launcher.running() == 0
    assert await second.launcher.recover(attempt) == found


async def test_the_timeout_holds_while_no_launcher_is_there(place: Place, opened: Opener) -> None:
    supervision = await opened()
    other = LauncherProcess.start(place, shell("sleep 600 & sleep 600"), timeout=1.0, grace=600.0)
    await wait_for(lambda: supervision.claim_of(other.attempt), "no claim")
    other.kill()
    await wait_for(lambda: gone(other.spawner), "the timeout does not hold")
    found = await supervision.launcher.recover(other.attempt)

    assert isinstance(found, AttemptEnded)
    assert (found.ending.cause, found.ending.signals) == (TreeCause.TIMEOUT, ("TERM",))
    assert found.ending.proved_empty


async def test_what_was_never_claimed_is_void_and_stays_so(opened: Opener) -> None:
    supervision = await opened()
    attempt = new_attempt()
    void = AttemptVoided(step=attempt.step, token=attempt.token)

    assert await supervision.launcher.recover(attempt) == void
    assert await supervision.launcher.recover(attempt) == void
    assert await (await opened()).launcher.recover(attempt) == void
    # A launch under the void token starts nothing either.
    supervision.launch(shell("echo x >> witness"), attempt=attempt)
    await supervision.voided(attempt)
    assert supervision.witnessed() == 0


async def test_a_bootstrap_that_arrives_after_the_void_claim_starts_nothing(
    opened: Opener,
) -> None:
    """The message sits in the socket of a shim that gets no time, while the daemon is replaced."""
    first = await opened()
    shims = await first.parked()
    for shim in shims:
        kill(shim, signal.SIGSTOP)
    attempt = first.launch(shell("echo x >> witness"))
    await first.close()
    second = await opened()
    found = await second.launcher.recover(attempt)
    for shim in shims:
        kill(shim, signal.SIGCONT)
    await wait_for(lambda: gone(first.spawner), "the old spawner lives on")

    assert isinstance(found, AttemptVoided)
    assert second.witnessed() == 0
    claim = second.claim_of(attempt)
    assert claim is not None
    assert claim["void"] is True


async def test_a_shim_that_vanished_is_lost_and_its_processes_are_ended(opened: Opener) -> None:
    first = await opened()
    attempt = first.launch(shell("echo $$ > .pid; mv .pid pid; exec sleep 600"))
    step = seen(int(await first.appears("pid")))
    shim = await first.shim(attempt)
    await first.close()
    kill(shim)
    await first.shim_gone(shim)
    # The spawner has retired, and still guards.
    await wait_for(lambda: gone(step), "the orphan lives on")
    found = await (await opened()).launcher.recover(attempt)

    assert isinstance(found, AttemptLost)
    assert (found.step, found.token, found.orphans) == (attempt.step, attempt.token, "unknown")
    assert "without an end record" in found.error


async def test_an_attempt_of_another_boot_is_lost(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await opened()
    attempt = first.launch(["sleep", "600"])
    shim = await first.shim(attempt)
    await first.close()
    kill(shim)
    await first.shim_gone(shim)
    monkeypatch.setenv("TOBAN_BOOT_ID", "another-boot")
    second = await opened()
    found = await second.launcher.recover(attempt)

    assert second.launcher.boot_id == "another-boot"
    assert isinstance(found, AttemptLost)
    assert found.error == "the machine went down while the step ran"
    assert found.orphans == "none"


async def test_a_record_of_another_boot_is_taken(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await opened()
    attempt = first.launch(shell("exit 9"))
    await first.ended(attempt)
    await first.close()
    monkeypatch.setenv("TOBAN_BOOT_ID", "another-boot")
    found = await (await opened()).launcher.recover(attempt)

    assert isinstance(found, AttemptEnded)
    assert found.exit_code == 9


async def test_a_dead_shim_that_nobody_took_up_yet_is_not_watched(opened: Opener) -> None:
    """Its pid still stands for it, and a child that it just forked may hold its lock for a moment more."""
    supervision = await opened()
    attempt = new_attempt()
    owner = _abandon(supervision, attempt)
    try:
        await wait_for(lambda: supervision.claim_of(attempt), "no claim")
        await wait_for(lambda: state_of(owner.pid) == "Z", "the owner did not die")
        found = await supervision.launcher.recover(attempt)
        assert isinstance(found, AttemptLost)
    finally:
        assert owner.stdin is not None
        owner.stdin.close()
        owner.wait()


async def test_an_end_record_that_a_step_printed_is_not_its_own(opened: Opener) -> None:
    """A step that prints another attempt's file has printed a whole end record, but not ended."""
    first = await opened()
    earlier = first.launch(shell("exit 0"), attempt=new_attempt("earlier"))
    await first.ended(earlier)
    attempt = first.launch(shell('cat "$1"; exec sleep 600', first.files.log(earlier)))
    shim = await first.shim(attempt)
    await wait_for(lambda: b"TBND" in first.printed(attempt), "nothing was printed")
    kill(shim)
    lost = await first.lost(attempt)

    assert "without an end record" in lost.error
    found = await first.launcher.recover(attempt)
    assert isinstance(found, AttemptLost)


def _abandon(supervision: Supervision, attempt: Attempt) -> subprocess.Popen[bytes]:
    directory, name = supervision.files.attempts(RUN), supervision.files.log_name(attempt)
    return subprocess.Popen(
        [sys.executable, "-c", ABANDONED_CLAIM, directory, name, attempt.token],
        stdin=subprocess.PIPE,
    )
