"""The id of a state directory: it stays over restarts, and a copy gets another one."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toband import installation
from toband.installation import database_known_by, installation_of, owner_of
from toband.state_dir import StateDir

NOW = datetime(2026, 11, 18, tzinfo=UTC)


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    (tmp_path / "s").mkdir()
    return StateDir(str(tmp_path / "s"))


def test_the_id_stays(state: StateDir) -> None:
    assert installation_of(state) == installation_of(StateDir(state.path))


def test_a_directory_that_was_renamed_is_the_same(state: StateDir, tmp_path: Path) -> None:
    before = installation_of(state)
    os.rename(state.path, tmp_path / "renamed")
    assert installation_of(StateDir(str(tmp_path / "renamed"))) == before


def test_a_device_may_have_another_number_after_a_boot(state: StateDir) -> None:
    before = installation_of(state)
    path = Path(state.path, installation.FILE)
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"device": facts["device"] + 1}))
    assert installation_of(state) == before


def test_a_copy_is_another_one_and_stays_that(state: StateDir, tmp_path: Path) -> None:
    before = installation_of(state)
    # Not with the default, which calls a function of Windows that wine does not have.
    shutil.copytree(state.path, tmp_path / "copy", copy_function=shutil.copyfile)
    copy = StateDir(str(tmp_path / "copy"))
    own = installation_of(copy)
    assert own != before
    assert installation_of(copy) == own
    assert installation_of(state) == before


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"id": 1, "inode": 1}', "\udcff"])
def test_a_file_that_cannot_be_believed_is_replaced(state: StateDir, text: str) -> None:
    before = installation_of(state)
    Path(state.path, installation.FILE).write_bytes(text.encode(errors="surrogateescape"))
    own = installation_of(state)
    assert own != before
    assert installation_of(state) == own


def test_the_owner_is_this_process_on_this_machine(state: StateDir) -> None:
    owner = owner_of(state, NOW)
    assert (owner.pid, owner.since) == (os.getpid(), NOW)
    assert owner.installation == installation_of(state)
    assert owner.machine == owner_of(state, NOW).machine != ""
    assert f"pid {os.getpid()}, since 2026-11-18 00:00:00 UTC" in owner.described


def test_without_an_id_of_the_machine_the_state_directory_has_to_do(
    state: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "_machine_id", lambda: "")
    assert owner_of(state, NOW).machine == installation_of(state)


def test_only_a_run_tells_that_there_was_a_database(state: StateDir) -> None:
    os.makedirs(state.join("runs/.claims"))
    assert database_known_by(state) == ""
    os.makedirs(state.join("runs/a"))
    assert "there are runs" in database_known_by(state)
