"""A timeout ends the whole process tree of a step, however it hides, and no other process."""

from __future__ import annotations

import subprocess

import pytest

from helpers.processes import alive, children_of, gone, seen, state_of
from helpers.steps import DAEMONISING, HOPPING, STORMING, background, lurker_argv, python, shell
from helpers.supervision import Supervision
from helpers.wait import DEADLINE
from toband.domain.attempt_model import Attempt, TreeCause
from toband.domain.run_events import AttemptEnded


async def test_a_daemonised_grandchild_ends_and_a_bystander_like_it_lives(
    supervision: Supervision,
) -> None:
    seconds = f"600.{int(supervision.place.marker[-8:], 16)}"
    bystander = _bystander(seconds)
    try:
        argv = python(DAEMONISING, supervision.place.path("pid"), *lurker_argv(seconds))
        attempt, timeout = await supervision.ready_in_time(argv, 4.0, made="pid", grace=0.2)
        lurker = seen(int(await supervision.appears("pid")))
        ended = await supervision.ended(attempt)

        assert gone(lurker)
        assert alive(seen(bystander.pid))
    finally:
        bystander.kill()
        bystander.wait()
    assert ended.ending.cause is TreeCause.TIMEOUT
    assert ended.ending.signals == ("TERM", "KILL")
    assert (ended.ending.proved_empty, ended.ending.survivors) == (True, 0)
    assert 0.2 <= ended.ending.took < 20
    assert (ended.exit_code, ended.signal) == (None, 15)
    assert (ended.finished_at - ended.started_at).total_seconds() >= timeout


async def test_a_step_that_hops_from_pid_to_pid_ends(supervision: Supervision) -> None:
    def taken_up(attempt: Attempt) -> bool:
        # All those that it was meanwhile are dead, and taken up by the shim as they come.
        claim = supervision.claim_of(attempt)
        return claim is not None and len(children_of(claim["pid"])) < 100

    argv = python(HOPPING, "ready", "200", supervision.place.marker)
    attempt, _ = await supervision.ready_in_time(argv, 4.0, made="ready", ready=taken_up, grace=0.1)
    ended = await supervision.ended(attempt)

    assert ended.ending.cause is TreeCause.TIMEOUT
    assert ended.ending.signals == ("TERM", "KILL")
    assert ended.ending.proved_empty
    assert ended.signal == 9
    assert supervision.strays() == []


async def test_a_step_that_forks_without_end_ends(supervision: Supervision) -> None:
    argv = python(STORMING, "ready", "60", supervision.place.marker)
    attempt, _ = await supervision.ready_in_time(argv, 3.0, made="ready", grace=0.1)
    ended = await supervision.ended(attempt)

    assert ended.ending.cause is TreeCause.TIMEOUT
    assert ended.ending.signals == ("TERM", "KILL")
    assert (ended.ending.proved_empty, ended.ending.survivors) == (True, 0)
    assert supervision.strays() == []


@pytest.mark.parametrize("cause", [TreeCause.TIMEOUT, TreeCause.RUN_TIMEOUT, TreeCause.LOOP_TIMEOUT])
async def test_a_step_that_exits_0_on_term_has_timed_out_all_the_same(
    supervision: Supervision, cause: TreeCause
) -> None:
    script = f"trap 'echo bye; exit 0' TERM; {background('ready')} wait"
    attempt, _ = await supervision.ready_in_time(shell(script), 2.5, made="ready", cause=cause, grace=20.0)
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.signal) == (0, None)
    assert ended.ending.cause is cause
    assert ended.ending.signals == ("TERM",)
    assert ended.ending.proved_empty
    assert 0 < ended.ending.took < 15
    assert supervision.printed(attempt) == b"bye\n"


async def test_a_deadline_that_has_passed_already_ends_the_step_at_once(
    supervision: Supervision,
) -> None:
    ended = await supervision.run(["sleep", "600"], timeout=0.0, cause=TreeCause.RUN_TIMEOUT)

    assert ended.ending.cause is TreeCause.RUN_TIMEOUT
    assert ended.ending.proved_empty


async def test_a_step_that_prints_without_end_is_ended_in_time(supervision: Supervision) -> None:
    def begun(attempt: Attempt) -> bool:
        return supervision.claim_of(attempt) is not None and bool(supervision.printed(attempt))

    attempt, _ = await supervision.ready_in_time(shell("while :; do echo y; done"), 0.5, ready=begun)
    ended = await supervision.ended(attempt)

    assert ended.ending.cause is TreeCause.TIMEOUT
    assert ended.stdout_bytes > 0
    assert ended.stdout_bytes == supervision.record_of(attempt)["stdout_bytes"]
    printed = supervision.printed(attempt)
    assert len(printed) == ended.stdout_bytes
    assert printed.startswith(b"y\ny\n")


async def test_a_stopped_step_is_ended(supervision: Supervision) -> None:
    """A process that is stopped does not act on TERM, but KILL reaches it."""

    def stopped(_: Attempt) -> bool:
        return state_of(int(supervision.place.read("pid"))) == "T"

    script = "echo $$ > .pid; mv .pid pid; kill -STOP $$"
    attempt, _ = await supervision.ready_in_time(shell(script), 0.5, made="pid", ready=stopped, grace=0.1)
    ended = await supervision.ended(attempt)

    assert ended.ending.cause is TreeCause.TIMEOUT
    assert ended.ending.signals == ("TERM", "KILL")
    assert ended.ending.proved_empty


async def test_a_timeout_of_a_year_is_one(supervision: Supervision) -> None:
    """Longer than what a single wait of the system can be."""
    ended = await supervision.run(shell("exit 6"), timeout=366 * 86_400.0)

    assert (ended.exit_code, ended.ending.cause) == (6, TreeCause.EXITED)


async def test_an_end_before_the_timeout_is_the_steps_own(supervision: Supervision) -> None:
    ended = await supervision.run(shell("exit 6"), timeout=600.0)

    assert (ended.exit_code, ended.ending.cause) == (6, TreeCause.EXITED)
    assert ended.ending.signals == ()


def _bystander(seconds: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(lurker_argv(seconds), env={}, cwd="/")


PUNCTUAL = """
import os, sys, time
at = time.monotonic() + float(sys.argv[1])
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        time.sleep(600)
time.sleep(max(0.0, at - time.monotonic()))
os._exit(0)
"""


async def test_an_end_at_the_very_moment_of_the_timeout_is_one_thing_or_the_other(
    supervision: Supervision,
) -> None:
    """A large tree takes a while to be walked through: a step that ends by itself meanwhile was not timed out."""
    timeout = 2.0
    # By how much it is earlier or later than its timeout, which begins when its interpreter starts.
    late = [step / 1000 for step in range(-60, 20, 8)]
    attempts = [
        supervision.launch(python(PUNCTUAL, str(timeout + each), "100"), timeout=timeout, grace=0.1) for each in late
    ]
    for attempt in attempts:
        ended = await supervision.ended(attempt)
        by_itself = ended.exit_code == 0
        expected = TreeCause.EXITED if by_itself else TreeCause.TIMEOUT
        assert (ended.ending.cause, ended.exit_code) == (expected, 0 if by_itself else None)


PRINTING = """
import sys, time
for number in range(int(sys.argv[1])):
    time.sleep(float(sys.argv[2]))
    print("tick", file=(sys.stdout, sys.stderr)[number % 2], flush=True)
time.sleep(600)
"""


async def test_a_step_without_output_is_ended(supervision: Supervision) -> None:
    """Output of either stream postpones it, and so does that of a process that the step started."""

    async def silenced(idle: float) -> AttemptEnded:
        argv = python(PRINTING, "6", str(idle / 3))
        return await supervision.run(["/bin/sh", "-c", '"$@" & wait', "sh", *argv], idle_timeout=idle)

    idle = 0.6
    ended = await silenced(idle)
    while (ended.stdout_bytes, ended.stderr_bytes) != (15, 15) and idle < DEADLINE:
        # A machine may be too slow to let the step print in time.
        idle *= 4
        ended = await silenced(idle)

    assert (ended.stdout_bytes, ended.stderr_bytes) == (15, 15)
    assert (ended.ending.cause, ended.ending.proved_empty) == (TreeCause.IDLE_TIMEOUT, True)
    assert ended.ending.signals[0] == "TERM"
    assert (ended.finished_at - ended.started_at).total_seconds() >= 3 * idle - 0.1
    assert supervision.strays() == []


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        ({"timeout": 0.2, "idle_timeout": 600.0}, TreeCause.TIMEOUT),
        ({"timeout": 600.0, "idle_timeout": 0.2}, TreeCause.IDLE_TIMEOUT),
    ],
)
async def test_the_shorter_of_both_timeouts_counts(
    supervision: Supervision, limits: dict[str, float], cause: TreeCause
) -> None:
    ended = await supervision.run(["sleep", "600"], **limits)

    assert ended.ending.cause is cause


async def test_an_end_before_the_idle_timeout_is_the_steps_own(supervision: Supervision) -> None:
    ended = await supervision.run(shell("exec >&- 2>&-; exit 6"), idle_timeout=600.0)

    assert (ended.exit_code, ended.ending.cause) == (6, TreeCause.EXITED)
