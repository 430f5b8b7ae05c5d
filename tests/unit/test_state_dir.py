"""The state directory belongs to one daemon at a time."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from toban import __version__
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


def test_a_directory_with_entries_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "of-somebody").touch()
    state = StateDir(str(tmp_path))
    state.acquire()
    state.release()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_who_was_refused_takes_nothing_from_the_owner(tmp_path: Path) -> None:
    first, second = StateDir(str(tmp_path)), StateDir(str(tmp_path))
    first.acquire()
    first.announce([("unix:///s", "admin")], NOW, "1.0")
    with pytest.raises(StateDirError):
        second.acquire()
    second.release()
    assert json.loads((tmp_path / "toband.json").read_text()) == {
        "pid": os.getpid(),
        "listen": ["unix:///s"],
        "doors": [{"address": "unix:///s", "role": "admin"}],
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


def test_steps_find_the_command_of_this_installation(tmp_path: Path) -> None:
    state = StateDir(str(tmp_path))
    directory = state.provide_command()
    assert directory == state.provide_command()
    (command,) = Path(directory).iterdir()
    command.write_text("of an installation that has moved")
    state.provide_command()
    answer = subprocess.run([str(command), "--version"], capture_output=True, text=True, check=True)
    assert __version__ in answer.stdout


def test_a_boot_is_noticed_once_and_done_once(tmp_path: Path) -> None:
    state = StateDir(str(tmp_path))
    first = state.boot("one", NOW)
    assert (first.at, first.done) == (NOW, False)
    later = NOW + timedelta(hours=1)
    assert (state.boot("one", later).at, state.boot("one", later).done) == (NOW, False)
    first.finish()
    assert state.boot("one", later).done
    again = state.boot("two", later)
    assert (again.at, again.done) == (later, False)
    # Written by a version that did not know whether it was done.
    (tmp_path / "boot.json").write_text(json.dumps({"boot_id": "two", "at": NOW.isoformat()}))
    assert not state.boot("two", later).done
    (tmp_path / "boot.json").write_text("broken")
    assert state.boot("two", later).at == later
