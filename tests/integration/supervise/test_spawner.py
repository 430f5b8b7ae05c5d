"""The spawner stays small, stores no secret, and guards its processes until the last one has ended."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from uuid import uuid4

import pytest

from helpers.launcher_process import LauncherProcess
from helpers.processes import (
    alive,
    gone,
    kill,
    look_inside,
    memory_holds,
    proportional_bytes,
    seen,
    written_bytes,
)
from helpers.steps import shell
from helpers.supervision import Opener, Place, Supervision, new_attempt
from helpers.wait import wait_for
from toband.supervise.shim import frames, process_tree
from toband.supervise.shim.spawner import ORPHAN_PATIENCE, Spawner


async def test_it_ends_at_once_when_nothing_is_left_to_guard(supervision: Supervision) -> None:
    await supervision.run(["true"])
    await supervision.close()

    await wait_for(lambda: gone(supervision.spawner), "the spawner lives on")


async def test_it_guards_until_its_last_child_has_ended(supervision: Supervision) -> None:
    gates = supervision.gate("gate1"), supervision.gate("gate2")
    attempts = [
        supervision.launch(shell('read x < "$1"', gate.path), attempt=new_attempt(f"s{number}"))
        for number, gate in enumerate(gates)
    ]
    shims = [await supervision.shim(attempt) for attempt in attempts]
    await supervision.close()
    await gates[0].release()
    await supervision.shim_gone(shims[0])

    assert alive(supervision.spawner)
    assert alive(shims[1])
    await gates[1].release()
    await wait_for(lambda: gone(supervision.spawner), "the spawner lives on")
    assert supervision.record_of(attempts[1])["exit_code"] == 0


async def test_it_guards_after_the_daemon_was_killed(place: Place) -> None:
    supervision = Supervision(place)
    other = LauncherProcess.start(place, shell("echo $$ > .pid; mv .pid pid; sleep 600"))
    step = seen(int(await supervision.appears("pid")))
    shim = await supervision.shim(other.attempt)
    other.kill()
    assert alive(other.spawner)
    kill(shim)

    await wait_for(lambda: gone(step), "the orphan lives on")
    await wait_for(lambda: gone(other.spawner), "the spawner lives on")


@pytest.fixture
def own_spawner() -> Iterator[Spawner]:
    """One that runs in this process and is asked for nothing."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        made = Spawner(theirs)
        yield made
        os.close(made._wake)
        os.close(made._wake_write)


@pytest.mark.parametrize(("looks", "expected"), [(1, (1, 0)), (100, (1, 1))])
def test_who_died_while_the_spawner_had_no_time_is_not_said_to_have_stayed(
    own_spawner: Spawner, monkeypatch: pytest.MonkeyPatch, looks: int, expected: tuple[int, int]
) -> None:
    """Its patience is over when it goes on; what counts is who is there then."""
    target = process_tree.Target(pid=2**22 + 1, parent=1, start=1)
    seen_so_often = iter([[target]] * looks)
    passed = 0.0

    def no_time(*_: object) -> bool:
        nonlocal passed
        passed += ORPHAN_PATIENCE * 2
        return True

    monkeypatch.setattr(process_tree, "descendants", lambda skip: next(seen_so_often, []))
    monkeypatch.setattr(process_tree, "send", no_time)
    monkeypatch.setattr(process_tree, "reap", lambda _: False)
    clock = SimpleNamespace(monotonic=lambda: passed, sleep=lambda _: None)
    monkeypatch.setattr("toband.supervise.shim.spawner.time", clock)
    assert own_spawner._end_orphans() == expected


async def test_requests_left_in_the_socket_of_a_retiring_spawner_do_not_run_twice(
    opened: Opener,
) -> None:
    """The daemon exits directly after it sent them. The first claim decides, of the daemon or of the shim."""
    first = await opened()
    attempts = [
        first.launch(shell('echo x >> "$1"', f"witness{number}"), attempt=new_attempt(f"s{number}"))
        for number in range(20)
    ]
    await first.close()
    second = await opened()
    for number, attempt in enumerate(attempts):
        found = await second.launcher.recover(attempt)
        end = found if found is not None else await second.end(attempt)
        began = getattr(end, "exit_code", None) == 0
        assert second.witnessed(f"witness{number}") == began, end


async def test_it_is_small_and_does_not_grow(supervision: Supervision) -> None:
    look_inside(supervision.spawner.pid)
    await supervision.run(["true"])
    before = written_bytes(supervision.spawner.pid)
    for _ in range(10):
        attempts = [supervision.launch(["true"], attempt=new_attempt(f"s{n}")) for n in range(20)]
        for attempt in attempts:
            await supervision.ended(attempt)
    after = written_bytes(supervision.spawner.pid)

    assert proportional_bytes(supervision.spawner.pid) < 20 * 1024 * 1024
    assert after - before < 256 * 1024
    assert len(os.listdir(f"/proc/{supervision.spawner.pid}/fd")) < 10


async def test_a_shim_that_waits_is_small(supervision: Supervision) -> None:
    look_inside(supervision.spawner.pid)
    gate = supervision.gate()
    attempt = supervision.launch(shell('read x < "$1"', gate.path))
    await supervision.started(attempt)
    shim = await supervision.shim(attempt)
    assert proportional_bytes(shim.pid) < 8 * 1024 * 1024
    await gate.release()
    await supervision.ended(attempt)


async def test_a_step_that_prints_much_does_not_make_its_shim_grow(
    supervision: Supervision,
) -> None:
    look_inside(supervision.spawner.pid)
    gate = supervision.gate()
    script = 'head -c 20000000 /dev/zero; echo; read x < "$1"'
    attempt = supervision.launch(shell(script, gate.path))
    shim = await supervision.shim(attempt)
    await wait_for(lambda: len(supervision.printed(attempt)) == 20_000_001, "not all is logged")
    assert proportional_bytes(shim.pid) < 8 * 1024 * 1024
    await gate.release()
    await supervision.ended(attempt)


async def test_a_secret_reaches_the_step_and_nothing_else(supervision: Supervision) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may read another process's memory")
    secret = uuid4().hex
    gate = supervision.gate()
    script = 'printf %s "$SECRET" | tr 0-9a-f g-v; read x < "$1"'
    attempt = supervision.launch(shell(script, gate.path), env={"SECRET": secret})
    shim = await supervision.shim(attempt)
    await wait_for(lambda: supervision.printed(attempt), "nothing was printed")
    # Another one is forked from the same spawner, and must not inherit it.
    other_gate = supervision.gate("other")
    other = supervision.launch(shell('read x < "$1"', other_gate.path), attempt=new_attempt("other"))
    other_shim = await supervision.shim(other)
    await supervision.started(other)

    needle = secret.encode()
    assert memory_holds(shim.pid, needle), "the search finds nothing where the secret is"
    assert not memory_holds(supervision.spawner.pid, needle)
    assert not memory_holds(other_shim.pid, needle)
    assert _processes_with(needle, "cmdline") == []
    assert _files_with(supervision.place.root, needle) == []
    await gate.release()
    await other_gate.release()
    assert (await supervision.ended(attempt)).stdout_bytes == 32
    await supervision.ended(other)
    assert _files_with(supervision.place.root, needle) == []
    encoded = secret.translate(str.maketrans("0123456789abcdef", "ghijklmnopqrstuv"))
    assert supervision.printed(attempt) == encoded.encode()


async def test_only_the_owner_may_read_what_a_step_printed(supervision: Supervision) -> None:
    attempt = supervision.launch(["true"])
    await supervision.ended(attempt)

    assert os.stat(supervision.files.log(attempt)).st_mode & 0o777 == 0o600
    assert os.stat(supervision.files.attempts(attempt.run_id)).st_mode & 0o777 == 0o700


async def test_a_spawner_that_is_told_to_end_goes_on(supervision: Supervision) -> None:
    """A service manager that signals the whole group must not take the guard away."""
    attempt = supervision.launch(["sleep", "600"])
    await supervision.started(attempt)
    for signum in (15, 2, 1):
        kill(supervision.spawner, signum)
    assert (await supervision.run(shell("exit 3"), attempt=new_attempt("other"))).exit_code == 3
    assert alive(supervision.spawner)
    supervision.launcher.stop(attempt)
    await supervision.ended(attempt)


async def test_the_format_of_a_file_is_in_its_claim(supervision: Supervision) -> None:
    attempt = supervision.launch(["true"])
    await supervision.ended(attempt)
    claim = supervision.claim_of(attempt)

    assert claim is not None
    assert claim["format"] == frames.FORMAT
    assert (claim["attempt"], claim["token"]) == (attempt.id, attempt.token)
    assert claim["boot_id"] == supervision.launcher.boot_id


def _processes_with(needle: bytes, part: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/{part}", "rb") as file:
                    if needle in file.read():
                        found.append(int(name))
            except OSError:
                continue
    return found


def _files_with(root: str, needle: bytes) -> list[str]:
    found = []
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    if needle in file.read():
                        found.append(path)
    return found
