"""Steps that signal their own supervisor: it continues, or the daemon takes over. Timeout and cancel always work."""

from __future__ import annotations

import signal

import pytest

from helpers.processes import alive, gone, kill, seen, state_of
from helpers.steps import python, shell
from helpers.supervision import Opener, Supervision
from helpers.wait import wait_for
from toband.domain.attempt_model import TreeCause
from toband.domain.run_events import AttemptEnded, AttemptLost
from toband.supervise.launch import unresponsive_shims
from toband.supervise.launch.launcher import ShimPatience

ENDLESS_STOPS = """
import os, signal
shim = os.getppid()
open("ready", "w").close()
os.fork()
while True:
    os.kill(shim, signal.SIGSTOP)
"""
STOPPED = "echo x >> witness; kill -STOP $PPID; touch ready; exec sleep 600"


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unresponsive_shims, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(unresponsive_shims, "SLACK", 1.0)


async def test_signals_do_not_end_a_supervisor(supervision: Supervision) -> None:
    kept = {signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM}
    numbers = sorted(int(each) for each in signal.valid_signals() - kept)
    script = f"import os\nfor n in {numbers}: os.kill(os.getppid(), n)\nprint('said', flush=True)\nos._exit(7)"
    attempt = supervision.launch(python(script))
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.cause) == (7, TreeCause.EXITED)
    assert supervision.printed(attempt) == b"said\n"


async def test_the_timeout_of_a_step_that_stopped_its_supervisor_holds(opened: Opener) -> None:
    supervision = await opened(patience=ShimPatience(kill=1.0))
    attempt, _ = await supervision.ready_in_time(shell(STOPPED), 1.0, made="ready", grace=0.2)
    ended = await supervision.ended(attempt)

    assert ended.ending.cause is TreeCause.TIMEOUT
    assert ended.ending.proved_empty
    assert supervision.strays() == []


async def test_a_step_that_stopped_its_supervisor_can_be_cancelled(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks: the cancel itself does it.
    monkeypatch.setattr(unresponsive_shims, "LOOK_EVERY", 3600.0)
    supervision = await opened()
    attempt = supervision.launch(shell(STOPPED), grace=0.2)
    await supervision.appears("ready")
    supervision.launcher.stop(attempt)
    ended = await supervision.ended(attempt)

    assert ended.ending.cause is TreeCause.CANCEL
    assert supervision.strays() == []


@pytest.mark.parametrize("way", ["timeout", "cancel"])
async def test_a_step_that_stops_its_supervisor_again_and_again_is_ended_by_the_daemon(
    opened: Opener, way: str
) -> None:
    supervision = await opened(patience=ShimPatience(kill=0.5))
    timeout = 2.0 if way == "timeout" else None
    attempt = supervision.launch(python(ENDLESS_STOPS), timeout=timeout, grace=0.2)
    await supervision.appears("ready")
    if way == "cancel":
        supervision.launcher.stop(attempt)
    end = await supervision.end(attempt, 60)

    if isinstance(end, AttemptEnded):
        cause = TreeCause.TIMEOUT if way == "timeout" else TreeCause.CANCEL
        assert end.ending.cause is cause
    else:
        assert isinstance(end, AttemptLost)
        assert "did not respond" in end.error
    assert supervision.strays() == []


async def test_a_supervisor_that_was_stopped_is_found_and_continued_after_a_restart(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unresponsive_shims, "LOOK_EVERY", 3600.0)
    first = await opened(patience=ShimPatience(kill=1.0))
    attempt, _ = await first.ready_in_time(shell(STOPPED), 2.0, made="ready", grace=0.2)
    shim = await first.shim(attempt)
    await wait_for(lambda: state_of(shim.pid) == "T", "it is not stopped")
    await first.close()
    monkeypatch.setattr(unresponsive_shims, "LOOK_EVERY", 0.1)
    second = await opened(patience=ShimPatience(kill=1.0))
    assert await second.launcher.recover(attempt) is None
    ended = await second.ended(attempt)

    assert ended.ending.cause is TreeCause.TIMEOUT
    await wait_for(lambda: gone(shim), "it lives on")
    assert second.strays() == []


async def test_a_supervisor_that_nothing_wakes_is_ended_and_its_step_lost(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped from outside of its step's tree, and kept so."""
    supervision = await opened(patience=ShimPatience(kill=0.2))
    attempt = supervision.launch(shell("touch ready; exec sleep 600"), grace=0.1)
    await supervision.appears("ready")
    shim = await supervision.shim(attempt)
    step = seen((await supervision.started(attempt)).pid)
    send = unresponsive_shims._signal

    def send_others(to: unresponsive_shims.Watched, signum: int) -> None:
        if signum != signal.SIGCONT:
            send(to, signum)

    monkeypatch.setattr(unresponsive_shims, "_signal", send_others)
    kill(shim, signal.SIGSTOP)
    await wait_for(lambda: state_of(shim.pid) == "T", "it is not stopped")
    live = supervision.launcher._live[attempt.token]
    live.duty.stops(supervision.launcher._loop.time())
    lost = await supervision.lost(attempt)

    assert "did not respond" in lost.error
    assert not alive(step)
    assert not alive(shim)
