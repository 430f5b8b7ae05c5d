"""Ending an attempt on request."""

from __future__ import annotations

import asyncio
import sys
import time

from helpers.processes import gone, seen, stat_of
from helpers.steps import DAEMONISING, background, lurker_argv, python, shell
from helpers.supervision import Supervision, new_attempt
from helpers.wait import DEADLINE, wait_for
from toband.domain.attempt_model import Attempt, TreeCause


async def test_a_running_step_is_ended(supervision: Supervision) -> None:
    attempt = supervision.launch(["sleep", "600"], grace=600.0)
    await supervision.started(attempt)
    supervision.launcher.stop(attempt)
    ended = await supervision.ended(attempt)

    assert ended.ending.cause is TreeCause.CANCEL
    assert ended.ending.signals == ("TERM",)
    assert ended.ending.proved_empty
    assert (ended.exit_code, ended.signal) == (None, 15)


async def test_a_step_that_will_not_go_is_killed_after_its_grace(supervision: Supervision) -> None:
    seconds = f"600.{int(supervision.place.marker[-8:], 16)}"
    attempt = supervision.launch(python(DAEMONISING, supervision.place.path("pid"), *lurker_argv(seconds)), grace=0.3)
    lurker = seen(int(await supervision.appears("pid")))
    supervision.launcher.stop(attempt)
    ended = await supervision.ended(attempt)

    assert gone(lurker)
    assert ended.ending.cause is TreeCause.CANCEL
    assert ended.ending.signals == ("TERM", "KILL")
    assert ended.ending.took >= 0.3
    assert ended.ending.proved_empty


async def test_a_step_that_exits_0_on_request_was_cancelled(supervision: Supervision) -> None:
    attempt = supervision.launch(shell(f"trap 'exit 0' TERM; {background('ready')} wait"), grace=600.0)
    await supervision.appears("ready")
    supervision.launcher.stop(attempt)
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.cause) == (0, TreeCause.CANCEL)


async def test_what_a_step_starts_because_it_is_stopped_is_told_to_end_too(
    supervision: Supervision,
) -> None:
    script = f"""
        end() {{ {background("born")} while [ ! -e born ]; do :; done; exit 0; }}
        trap end TERM; {background("ready")} wait
    """
    attempt = supervision.launch(shell(script), grace=600.0)
    await supervision.appears("ready")
    supervision.launcher.stop(attempt)
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.cause) == (0, TreeCause.CANCEL)
    assert ended.ending.signals == ("TERM",)
    assert ended.ending.proved_empty


async def test_what_a_step_does_to_clean_up_is_not_disturbed(supervision: Supervision) -> None:
    """A step that runs other programs to end in order after TERM."""
    gate = supervision.gate()
    script = f"""
        trap 'echo begin; sh -c "read x < $1; echo cleaned"; exit 3' TERM
        {background("ready")} wait
    """
    attempt = supervision.launch(shell(script, gate.path), grace=600.0)
    await supervision.appears("ready")
    supervision.launcher.stop(attempt)
    await gate.release()
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.cause) == (3, TreeCause.CANCEL)
    assert supervision.printed(attempt) == b"begin\ncleaned\n"


async def test_a_stop_right_after_the_launch_is_not_forgotten(supervision: Supervision) -> None:
    """An attempt without a shim is voided; one whose shim has just got it receives the signal afterwards."""
    stopped = void = 0
    until = time.monotonic() + DEADLINE
    while stopped < 5:
        assert time.monotonic() < until, f"{stopped} were stopped, {void} were void"
        # More at once than shims are parked, and none of them is awaited before all are stopped.
        launched: list[tuple[Attempt, bool]] = []
        for _ in range(10):
            waited = supervision.launcher.waiting()
            attempt = supervision.launch(shell("echo x >> witness; exec sleep 600"), attempt=new_attempt(), grace=600.0)
            launched.append((attempt, supervision.launcher.waiting() == waited))
            supervision.launcher.stop(attempt)
        for attempt, has_shim in launched:
            if has_shim:
                ended = await supervision.ended(attempt)
                assert (ended.ending.cause, ended.ending.proved_empty) == (TreeCause.CANCEL, True)
                stopped += 1
            else:
                await supervision.voided(attempt)
                void += 1
        await asyncio.sleep(0)
    assert void > 0
    assert supervision.launcher.waiting() == supervision.launcher.running() == 0


async def test_stopping_twice_is_stopping_once(supervision: Supervision) -> None:
    # It waits for the signal and nothing else first: one that comes just before a shell opens its gate is not acted on.
    script = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"term again\\n"))
open("ready", "w").close()
signal.sigwait({signal.SIGTERM})
os.write(1, b"term\\n")
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
open(sys.argv[1]).readline()
sys.exit(3)
"""
    gate = supervision.gate()
    attempt = supervision.launch(python(script, gate.path), grace=600.0)
    await supervision.appears("ready")
    supervision.launcher.stop(attempt)
    supervision.launcher.stop(attempt)
    await wait_for(lambda: supervision.printed(attempt), "the step did not get its signal")
    await gate.release()
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.cause) == (3, TreeCause.CANCEL)
    assert ended.ending.signals == ("TERM",)
    assert supervision.printed(attempt) == b"term\n"


async def test_stopping_what_is_gone_or_was_never_there_does_nothing(
    supervision: Supervision,
) -> None:
    attempt = supervision.launch(shell("exit 2"))
    await supervision.ended(attempt)
    supervision.launcher.stop(attempt)
    supervision.launcher.stop(new_attempt("other"))
    await supervision.run(["true"])

    assert len(supervision.ends_of(attempt)) == 1


async def test_what_the_main_process_leaves_is_ended_and_its_exit_code_stands(
    supervision: Supervision,
) -> None:
    script = "trap '' TERM; sleep 600 & sleep 600 & sleep 600 & exit 8"
    attempt = supervision.launch(shell(script), grace=0.2)
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.cause) == (8, TreeCause.EXITED)
    assert ended.ending.leftovers == 3
    assert ended.ending.signals == ("TERM", "KILL")
    assert ended.ending.proved_empty


async def test_a_stop_while_leftovers_are_ended_does_not_change_the_result(
    supervision: Supervision,
) -> None:
    script = "trap '' TERM; sleep 600 & echo $$ > .pid; mv .pid pid; exit 0"
    attempt = supervision.launch(shell(script), grace=1.0)
    # Not by its start, which is not told of one that is over by the time that it could be.
    main = int(await supervision.appears("pid"))
    await wait_for(lambda: stat_of(main) is None, "the main process did not exit")
    supervision.launcher.stop(attempt)
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.cause) == (0, TreeCause.EXITED)
    assert ended.ending.leftovers == 1


async def test_the_signal_reaches_children_of_a_step_whose_threads_come_and_go(
    supervision: Supervision,
) -> None:
    """Walking the tree meets threads that are gone a moment later; their process still has children."""
    script = """
import os, signal, sys, threading
if os.fork() == 0:
    os.execv("/bin/sh", ["sh", "-c", *sys.argv[1:]])
while True:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
"""
    names = [f"ready{number}" for number in range(8)]
    attempts = [
        supervision.launch(
            [sys.executable, "-c", script, f"trap 'echo term; exit' TERM; {background(name)} wait"],
            grace=20.0,
        )
        for name in names
    ]
    for name in names:
        await supervision.appears(name)
    for attempt in attempts:
        supervision.launcher.stop(attempt)
    for attempt in attempts:
        await supervision.ended(attempt)
        assert supervision.printed(attempt) == b"term\n"
