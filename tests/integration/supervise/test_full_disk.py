"""A disk that is full while a step runs, or before it starts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from helpers.processes import kill
from helpers.steps import shell
from helpers.supervision import RUN, Opener, Place, new_attempt
from helpers.wait import wait_for
from toband import failpoints
from toband.domain.attempt_model import TreeCause
from toband.ports import LogKind

SIZE = 1024 * 1024


@pytest.fixture
def small_disk(place: Place) -> Iterator[str]:
    """The runs' directory on a file system of one mebibyte."""
    path = place.files.root
    os.mkdir(path)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "toban-test", path]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def remount(path: str, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", path], check=True)


def fill(path: str) -> None:
    with open(path, "wb", 0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


async def test_a_full_disk_does_not_stop_the_step_nor_lose_its_result(small_disk: str, opened: Opener) -> None:
    supervision = await opened()
    script = "echo first; head -c 3000000 /dev/zero; echo last >&2; exit 5"
    attempt = supervision.launch(shell(script))
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.cause) == (5, TreeCause.EXITED)
    assert ended.ending.proved_empty
    printed = [supervision.printed(attempt, kind) for kind in (LogKind.STDOUT, LogKind.STDERR)]
    assert printed[0].startswith(b"first\n")
    dropped = supervision.record_of(attempt)["dropped"]
    assert dropped > 1_500_000
    assert len(printed[0]) + len(printed[1]) + dropped == 3_000_000 + 6 + 5
    assert [ended.stdout_bytes, ended.stderr_bytes] == [len(each) for each in printed]
    assert b"bytes of output were dropped here" in supervision.printed(attempt, LogKind.SYSTEM)


async def test_a_full_disk_takes_no_claim_and_nothing_begins(small_disk: str, opened: Opener) -> None:
    """Whether it began is known for certain only when the disk takes the void claim, and is said only then."""
    supervision = await opened()
    fill(f"{small_disk}/filler")
    attempt = supervision.launch(shell("echo x >> witness"))
    log = supervision.place.path("spawner.log")
    await wait_for(lambda: b"No space left" in _bytes_of(log), "the shim did not fail")
    assert supervision.ends_of(attempt) == []
    os.unlink(f"{small_disk}/filler")
    await supervision.voided(attempt)

    assert supervision.witnessed() == 0
    assert os.listdir(supervision.files.attempts(RUN)) == [supervision.files.log_name(attempt)]


async def test_a_disk_that_fails_for_a_moment_delays_the_report(opened: Opener) -> None:
    supervision = await opened()
    shims = await supervision.parked()
    for shim in shims:
        kill(shim, signal.SIGSTOP)
    attempt = supervision.launch(shell("echo x >> witness"))
    failpoints.arm("claim.linked=EIO@1")
    try:
        for shim in shims:
            kill(shim)
        await supervision.voided(attempt)
    finally:
        failpoints.arm("")

    assert supervision.witnessed() == 0


async def test_outputs_that_do_not_fit_are_missed_and_the_end_is_not(small_disk: str, opened: Opener) -> None:
    """What a step hands on is copied into its record; without the space for that the record says so."""
    supervision = await opened()
    attempt = new_attempt()
    gate = supervision.gate()
    script = 'head -c 300000 /dev/zero | tr "\\0" x > "$1"; : > ready; read x < "$2"'
    supervision.launch(shell(script, supervision.files.output(attempt), gate.path), attempt=attempt)
    await supervision.appears("ready")
    fill(f"{small_disk}/filler")
    await gate.release()
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.proved_empty) == (0, True)
    assert "no space for the outputs" in ended.error
    assert ended.outputs == {}
    record = supervision.record_of(attempt)
    assert record["outputs_lost"] is True
    assert "output" not in record


async def test_outputs_that_fit_are_kept_on_a_full_disk(small_disk: str, opened: Opener) -> None:
    supervision = await opened()
    attempt = new_attempt()
    gate = supervision.gate()
    script = 'echo answer=42 > "$1"; : > ready; read x < "$2"'
    supervision.launch(shell(script, supervision.files.output(attempt), gate.path), attempt=attempt)
    await supervision.appears("ready")
    fill(f"{small_disk}/filler")
    await gate.release()
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.error) == (0, "")
    assert ended.outputs == {"answer": "42"}


async def test_a_read_only_disk_takes_no_claim_and_that_is_told(small_disk: str, opened: Opener) -> None:
    supervision = await opened()
    remount(small_disk, "ro")
    attempt = supervision.launch(shell("echo x >> witness"))
    await wait_for(lambda: "attempt_files" in supervision.conditions.now, "nobody is told of it")
    assert "Read-only file system" in supervision.conditions.now["attempt_files"]
    assert supervision.ends_of(attempt) == []
    remount(small_disk, "rw")
    await supervision.voided(attempt)

    assert supervision.witnessed() == 0
    assert supervision.conditions.now == {}
    assert (await supervision.run(shell("exit 3"), attempt=new_attempt("next"))).exit_code == 3


def _bytes_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
