"""The state directory belongs to one daemon at a time."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toband.state_dir import StateDir, StateDirError

NOW = datetime(2026, 2, 1, tzinfo=UTC)


def test_one_at_a_time_and_the_next_when_it_is_released(tmp_path: Path) -> None:
    first, second = StateDir(f"{tmp_path}/new/s"), StateDir(f"{tmp_path}/new/s")
    first.acquire()
    for _ in range(2):
        with pytest.raises(StateDirError, match=rf"another toband \(pid {os.getpid()}\) has it"):
            second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_who_was_refused_takes_nothing_from_the_owner(tmp_path: Path) -> None:
    first, second = StateDir(str(tmp_path)), StateDir(str(tmp_path))
    first.acquire()
    first.announce(["unix:///s"], NOW, "1.0")
    with pytest.raises(StateDirError):
        second.acquire()
    second.release()
    assert json.loads((tmp_path / "toband.json").read_text()) == {
        "pid": os.getpid(),
        "listen": ["unix:///s"],
        "started_at": NOW.isoformat(),
        "version": "1.0",
    }
    first.release()
    assert not (tmp_path / "toband.json").exists()
    first.release()


def test_a_lock_file_without_an_owner_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "toband.lock").write_text("1234567890 and more than a pid\n")
    (tmp_path / "toband.json").write_text("{")
    state = StateDir(str(tmp_path))
    state.acquire()
    assert (tmp_path / "toband.lock").read_text() == f"{os.getpid()}\n"
    state.release()


def test_a_lock_whose_owner_did_not_say_who_it_is(tmp_path: Path) -> None:
    first = StateDir(str(tmp_path))
    first.acquire()
    (tmp_path / "toband.lock").write_text("")
    with pytest.raises(StateDirError, match="pid unknown"):
        StateDir(str(tmp_path)).acquire()
    first.release()


def test_a_place_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StateDirError, match=f"cannot use the state directory {place}: "):
            StateDir(str(place)).acquire()
    (tmp_path / "s" / "toband.lock").mkdir(parents=True)
    with pytest.raises(StateDirError, match="Is a directory"):
        StateDir(f"{tmp_path}/s").acquire()
