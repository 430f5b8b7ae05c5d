"""How a shim reads the counters of a cgroup's controllers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toband.supervise.shim.attempt_file import AttemptFile
from toband.supervise.shim.shim import Shim

KILLED, FAILED = int(signal.SIGKILL), 1 << 8
LIMITS = {
    "cgroup": {"memory.max": "67108864", "pids.max": "5"},
    "words": {"memory": "64MiB", "pids": "5"},
}


class Ended(Shim):
    """One whose main process has just ended with that status, after those signals."""

    def __init__(self, cgroup: Path, fd: int, wake: int, status: int, signals: list[str]) -> None:
        boot: dict[str, Any] = {"argv": ["x"], "env": {}, "seal": "", "limits": LIMITS}
        super().__init__(boot | {"cgroup": {"path": str(cgroup)}}, AttemptFile(fd), wake)
        self._main, self._empty = 1, True
        self._signals = signals
        self._ended(1, status)

    def record(self) -> dict[str, Any]:
        self._leave_cgroup()
        self._explain()
        return self._record()


@pytest.fixture
def cgroup(tmp_path: Path) -> Path:
    """A directory with the files that are read at the end; nothing is in it any more."""
    path = tmp_path / "token"
    path.mkdir()
    (path / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    (path / "memory.events").write_text("max 0\noom_kill 0\noom_group_kill 0\n")
    (path / "pids.events").write_text("max 0\n")
    return path


@pytest.fixture
def descriptors() -> Iterator[tuple[int, int]]:
    wake, writer = os.pipe()
    file = os.memfd_create("test")
    yield file, wake
    for fd in (wake, writer, file):
        os.close(fd)


def test_a_step_that_kept_its_limits_is_not_blamed(cgroup: Path, descriptors: tuple[int, int]) -> None:
    record = Ended(cgroup, *descriptors, FAILED, []).record()
    assert (record["cause"], record["limit"], record["error"]) == ("exited", "", "")
    assert (record["cgroup"], record["proved_empty"]) == (True, True)


@pytest.mark.parametrize("counter", ["oom_kill", "oom_group_kill"])
def test_a_step_that_the_kernel_ended_at_its_limit_says_so(
    cgroup: Path, descriptors: tuple[int, int], counter: str
) -> None:
    (cgroup / "memory.events").write_text(f"max 9\n{counter} 2\n")
    record = Ended(cgroup, *descriptors, KILLED, []).record()

    assert record["cause"] == "limit"
    assert record["limit"] == "memory: the kernel ended it at the limit of 64MiB"
    assert record["error"] == record["limit"]


def test_a_child_that_was_ended_at_the_limit_is_noted(cgroup: Path, descriptors: tuple[int, int]) -> None:
    """The main process ended by itself, and so has its own cause."""
    (cgroup / "memory.events").write_text("max 9\noom_kill 1\n")
    record = Ended(cgroup, *descriptors, FAILED, []).record()

    assert (record["cause"], record["error"], record["exit_code"]) == ("exited", "", 1)
    assert record["limit"].startswith("memory: ")


def test_a_step_that_we_killed_was_not_ended_by_its_limit(cgroup: Path, descriptors: tuple[int, int]) -> None:
    (cgroup / "memory.events").write_text("max 9\noom_kill 1\n")
    record = Ended(cgroup, *descriptors, KILLED, ["TERM", "KILL"]).record()
    assert (record["cause"], record["error"]) == ("exited", "")


def test_refused_forks_are_noted(cgroup: Path, descriptors: tuple[int, int]) -> None:
    (cgroup / "pids.events").write_text("max 3\n")
    record = Ended(cgroup, *descriptors, FAILED, []).record()

    assert record["cause"] == "exited"
    assert record["limit"] == "pids: 3 times it was refused more than 5 processes"


def test_the_tree_is_not_proved_empty_while_its_cgroup_is_not(
    cgroup: Path, descriptors: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    (cgroup / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    (cgroup / "cgroup.procs").write_text("")
    monkeypatch.setattr("toband.supervise.shim.shim.KILL_PATIENCE", 0.0)
    record = Ended(cgroup, *descriptors, FAILED, []).record()

    assert (record["cgroup"], record["proved_empty"]) == (False, False)
