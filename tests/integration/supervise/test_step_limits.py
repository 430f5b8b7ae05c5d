"""Limits of memory, processes and niceness, kept for real where there is no controller to do it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.processes import gone, seen
from helpers.steps import python, shell
from helpers.supervision import Opener, Supervision, new_attempt
from helpers.wait import wait_for
from toban.definition import Resources
from toband.domain.attempt_model import TreeCause
from toband.ports import LogKind
from toband.supervise.shim.shim import oom_kills

MIB = 1024 * 1024

# Children that hold so much each, and say when they do.
HOLDING = """
import os, sys, time
count, size = int(sys.argv[1]), int(sys.argv[2])
for number in range(count):
    if os.fork() == 0:
        held = b"x" * size
        open(f"held{number}", "w").close()
        time.sleep(600)
time.sleep(600)
"""


async def test_one_process_that_wants_too_much_is_refused_it(supervision: Supervision) -> None:
    script = "try:\n    x = b'x' * (256 << 20)\nexcept MemoryError:\n    print('refused'); raise SystemExit(3)"
    attempt = supervision.launch(python(script), resources=Resources(memory=128 * MIB))
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.cause) == (3, TreeCause.EXITED)
    assert supervision.printed(attempt) == b"refused\n"


async def test_a_process_that_failed_for_want_of_memory_says_so(supervision: Supervision) -> None:
    script = "held = []\nwhile True:\n    held.append(b'x' * (1 << 20))"
    attempt = supervision.launch(python(script), resources=Resources(memory=96 * MIB))
    ended = await supervision.ended(attempt)

    # Refused by the system, or ended by the shim that looked at the right moment: it is said in both cases.
    if ended.ending.cause is TreeCause.EXITED:
        assert (ended.exit_code, ended.error) == (1, "")
        assert ended.ending.limit.startswith("memory: a process of it held ")
        assert ended.ending.limit.endswith("was refused more than 96MiB")
    else:
        assert ended.ending.cause is TreeCause.LIMIT
    assert b"96MiB" in supervision.printed(attempt, LogKind.SYSTEM)


async def test_processes_that_hold_too_much_together_are_ended(supervision: Supervision) -> None:
    attempt = supervision.launch(
        python(HOLDING, "4", str(60 * MIB)), resources=Resources(memory=160 * MIB), grace=600.0
    )
    ended = await supervision.ended(attempt)

    assert ended.ending.cause is TreeCause.LIMIT
    assert ended.ending.limit.startswith("memory: its processes held ")
    assert ended.ending.limit.endswith("together, the limit is 160MiB")
    assert ended.error == ended.ending.limit
    assert ended.ending.signals == ("KILL",)
    assert ended.ending.proved_empty
    assert ended.signal == 9
    assert b"the limit is 160MiB" in supervision.printed(attempt, LogKind.SYSTEM)
    assert supervision.strays() == []


async def test_memory_that_is_shared_counts_once(supervision: Supervision) -> None:
    """Five processes see the same 60 MiB: together they hold 60, and not 300."""
    script = """
import os, sys, time
held = b"x" * (60 << 20)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(600)
open("held", "w").close()
open(sys.argv[1]).read()
os.killpg(0, 15)
"""
    gate = supervision.gate()
    attempt = supervision.launch(python(script, gate.path), resources=Resources(memory=160 * MIB), timeout=600.0)
    await supervision.appears("held")
    shim = await supervision.shim(attempt)
    before = _looks(shim.pid)
    await wait_for(lambda: _looks(shim.pid) > before + 3, "the shim does not look")
    assert supervision.ends_of(attempt) == []
    await gate.release()
    ended = await supervision.ended(attempt)

    assert (ended.ending.cause, ended.signal, ended.ending.limit) == (TreeCause.EXITED, 15, "")


def _looks(pid: int) -> int:
    """How often a process has woken up: once for each look at the memory of its tree."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return 0


async def test_a_step_within_its_limits_is_left_alone(supervision: Supervision) -> None:
    ended = await supervision.run(python("x = b'x' * (8 << 20); print(len(x))"), resources=Resources(memory=256 * MIB))
    assert (ended.exit_code, ended.ending.limit, ended.error) == (0, "", "")


async def test_niceness_is_given(supervision: Supervision) -> None:
    attempt = supervision.launch(shell("nice; sh -c nice"), resources=Resources(nice=9))
    ended = await supervision.ended(attempt)

    assert ended.exit_code == 0
    assert supervision.printed(attempt) == b"9\n9\n"
    if os.geteuid() == 0:
        negative = supervision.launch(shell("nice"), resources=Resources(nice=-3))
        await supervision.ended(negative)
        assert supervision.printed(negative) == b"-3\n"


async def test_what_cannot_be_kept_is_refused_with_the_reason(supervision: Supervision) -> None:
    ended = await supervision.run(shell("echo x >> witness"), resources=Resources(cpu=0.5))

    assert ended.not_started
    assert ended.error.startswith("cannot keep resources.cpu: that takes a cgroup")
    assert supervision.witnessed() == 0
    assert supervision.launcher.running() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="root is not limited, and a user is tested as nobody")
async def test_processes_of_root_cannot_be_limited(supervision: Supervision) -> None:
    ended = await supervision.run(shell("true"), resources=Resources(pids=5))

    assert ended.not_started
    assert "only users other than root can be limited" in ended.error


async def test_a_forked_step_is_as_a_spawned_one(supervision: Supervision) -> None:
    """Session, signals, descriptors and the reasons for which it cannot be started are the same."""
    script = """
import os, signal
ours = [s for s in signal.valid_signals() if s not in (signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ)]
assert all(signal.getsignal(s) in (signal.SIG_DFL, None) for s in ours if s not in (9, 19))
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
assert os.getsid(0) == os.getpid()
assert os.readlink("/proc/self/fd/0") == "/dev/null"
print(sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")))
"""
    attempts = [
        supervision.launch(python(script), attempt=new_attempt(f"s{number}"), resources=resources)
        for number, resources in enumerate((None, Resources(nice=1)))
    ]
    for attempt in attempts:
        ended = await supervision.ended(attempt)
        assert ended.exit_code == 0, supervision.printed(attempt, LogKind.STDERR)
    assert supervision.printed(attempts[0]) == supervision.printed(attempts[1])
    nice = {"resources": Resources(nice=1)}
    for argv, how in (
        (["/nonexistent/program"], {}),
        (["nonexistent-program"], {}),
        (["/etc/passwd"], {}),
        (["true"], {"workspace": "/nonexistent/workspace"}),
    ):
        spawned = await supervision.run(argv, **how)
        forked = await supervision.run(argv, **how, **nice)
        assert forked.not_started
        assert forked.error == spawned.error


async def test_a_limited_step_is_ended_like_any_other(supervision: Supervision) -> None:
    attempt = supervision.launch(
        shell("sleep 600 & sleep 600"), resources=Resources(memory=256 * MIB, nice=1), grace=600.0
    )
    step = seen((await supervision.started(attempt)).pid)
    supervision.launcher.stop(attempt)
    ended = await supervision.ended(attempt)

    assert (ended.ending.cause, ended.signal) == (TreeCause.CANCEL, 15)
    assert ended.ending.proved_empty
    assert gone(step)


async def test_a_step_killed_from_outside_is_not_blamed_on_memory(opened: Opener) -> None:
    before = oom_kills()
    supervision = await opened()
    ended = await supervision.run(shell("kill -KILL $$"))

    assert (ended.signal, ended.ending.cause) == (9, TreeCause.EXITED)
    # The kernel counts for the whole machine: somebody else may just have run out of memory.
    assert ended.error == "" or oom_kills() > before
