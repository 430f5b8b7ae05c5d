"""The claim on Windows: the first process gets it, and all others see which one that is."""

from __future__ import annotations

import sys

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows: scripts/test-windows", allow_module_level=True)

import asyncio
import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from helpers.wait import wait_until
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.run_events import AttemptEnded, AttemptLost, AttemptVoided, Event
from toband.ports import HealthStatus
from toband.supervise.files.run_files import RunFiles
from toband.supervise.launch.windows_launcher import WindowsLauncher
from toband.supervise.shim import frames
from toband.supervise.shim.windows import win32
from toband.supervise.shim.windows.attempt_file import AttemptFile, claim

FACTS = {"format": frames.FORMAT, "attempt": "a", "token": "t", "seal": "s"}
# Two of these are two daemons that recover the same attempt: each says what it found.
RECOVER = """
import asyncio, json, os, sys, time
from datetime import UTC, datetime
from toband.domain.run_model import Attempt, AttemptState
from toband.supervise.files.run_files import RunFiles
from toband.supervise.launch import windows_host, windows_launcher
root, gate, own = sys.argv[1:]
class Clock:
    def now(self):
        return datetime.now(UTC)
won = []
claim = windows_host.claim
def counted(*given):
    fd = claim(*given)
    won.append(fd is not None)
    return fd
windows_host.claim = counted
attempts = [
    Attempt(id=f"a{n}", run_id="r", step=f"s{n}", number=1, ordinal=0, token=f"{n:08}", created_at=datetime.now(UTC),
            state=AttemptState.STARTING)
    for n in range(40)
]
async def main():
    found = windows_launcher.WindowsLauncher(RunFiles(root), Clock(), own + ".log", conditions=None)
    events = []
    await found.open(lambda run_id, event: None)
    open(own, "w").close()
    while not os.path.exists(gate):
        time.sleep(0.001)
    for attempt in attempts:
        events.append(type(await found.recover(attempt)).__name__)
    await found.close()
    print(json.dumps({"events": events, "won": sum(won)}))
asyncio.run(main())
"""


class Clock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Quiet:
    """No report is expected here."""

    def trouble(self, name: str, status: HealthStatus, detail: str) -> None:
        raise AssertionError(f"{name} is {status}: {detail}")

    def well(self, name: str) -> None:
        raise AssertionError(f"{name} was never unwell")


def new_attempt() -> Attempt:
    return Attempt(
        id=uuid4().hex,
        run_id="r",
        step="step",
        number=1,
        ordinal=0,
        token=uuid4().hex,
        state=AttemptState.STARTING,
        created_at=datetime.now(UTC),
        boot_id=win32.boot_id(),
    )


def facts_of(attempt: Attempt) -> dict[str, Any]:
    """A claim of this process, with a start time that is not its own."""
    own = {"attempt": attempt.id, "token": attempt.token, "pid": os.getpid(), "start": 1}
    return {**FACTS, **own, "boot_id": win32.boot_id()}


def recovered(files: RunFiles, attempt: Attempt) -> Event | None:
    async def look() -> Event | None:
        launcher = WindowsLauncher(files, Clock(), os.path.join(files.root, "shims.log"), conditions=Quiet())
        await launcher.open(lambda run_id, event: None)
        try:
            return await launcher.recover(attempt)
        finally:
            await launcher.close()

    return asyncio.run(look())


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    found = RunFiles(str(tmp_path / "runs 日本語"))
    os.makedirs(found.root)
    found.prepare("r", {})
    return found


def test_the_first_has_it(tmp_path: Path) -> None:
    first = claim(str(tmp_path), "x.log", FACTS)
    assert first is not None
    assert claim(str(tmp_path), "x.log", {**FACTS, "token": "other"}) is None
    assert os.listdir(tmp_path) == ["x.log"]
    with open(tmp_path / "x.log", "rb") as file:
        assert frames.read_claim(file.fileno()) == FACTS
        assert not win32.try_lock(file.fileno())
        os.close(first)
        assert win32.try_lock(file.fileno())


@pytest.mark.timeout(300)
def test_two_daemons_recover_the_same_attempts(files: RunFiles, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", RECOVER, files.root, str(gate), str(tmp_path / name)],
            stdout=subprocess.PIPE,
        )
        for name in ("one", "two")
    ]
    wait_until(lambda: all((tmp_path / name).exists() for name in ("one", "two")), "not ready", 90)
    gate.touch()
    said = [json.loads(each.communicate(timeout=90)[0]) for each in both]
    assert all(set(each["events"]) == {"AttemptVoided"} for each in said)
    assert sum(each["won"] for each in said) == 40
    assert len(os.listdir(files.attempts("r"))) == 40


def test_what_a_file_says(files: RunFiles) -> None:
    assert isinstance(recovered(files, new_attempt()), AttemptVoided)

    lost = new_attempt()
    fd = claim(files.attempts("r"), files.log_name(lost), facts_of(lost))
    assert fd is not None
    AttemptFile(fd).append(frames.STDOUT, b"half of it")
    os.close(fd)
    found = recovered(files, lost)
    assert isinstance(found, AttemptLost)
    assert found.orphans == "ended"


def test_a_claim_that_somebody_else_holds(files: RunFiles) -> None:
    """Locked, but not by the process that it names: no process counts as its supervisor."""
    attempt = new_attempt()
    fd = claim(files.attempts("r"), files.log_name(attempt), facts_of(attempt))
    assert fd is not None
    found = recovered(files, attempt)
    os.close(fd)
    assert isinstance(found, AttemptLost)
    assert "a process that is not its supervisor" in found.error


def test_a_log_beyond_its_limit(files: RunFiles) -> None:
    attempt = new_attempt()
    fd = claim(files.attempts("r"), files.log_name(attempt), {**FACTS})
    assert fd is not None
    file = AttemptFile(fd, limit=10)
    file.append(frames.STDOUT, b"12345678")
    file.append(frames.STDERR, b"abcdefgh")
    file.append(frames.STDOUT, b"more")
    assert file.written == {frames.STDOUT: 8, frames.STDERR: 2}
    assert file.dropped == 10
    file.finish({"seal": "s"})
    os.close(fd)
    with open(files.log(attempt), "rb") as opened:
        found = [(each.kind, bytes(each.payload)) for each in frames.frames_of(opened.fileno())]
        assert frames.read_end(opened.fileno()) == {"seal": "s"}
    assert found[1:3] == [(frames.STDOUT, b"12345678"), (frames.STDERR, b"ab")]
    assert found[3][0] == frames.NOTE
    assert b"10 bytes" in found[3][1]


def test_an_end_is_taken_up(files: RunFiles) -> None:
    """A record that another supervisor sealed is none."""
    attempt = new_attempt()
    fd = claim(files.attempts("r"), files.log_name(attempt), facts_of(attempt))
    assert fd is not None
    AttemptFile(fd).finish({"seal": "another's"})
    os.close(fd)
    assert isinstance(recovered(files, attempt), AttemptLost)
    assert not isinstance(recovered(files, attempt), AttemptEnded)
