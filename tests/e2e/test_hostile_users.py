"""Steps of another user that try to make root's daemon read, write or give away files of others."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.daemon import Daemon, run_state, running_daemon, step_states
from helpers.others_may_enter import let_others_enter
from toban.v1 import run_pb2

NOBODY = "nobody"


def known(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not known(NOBODY), reason="only root takes on another user")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    base = tmp_path_factory.mktemp("d")
    # A step of another user has to be able to walk there, as to /var/lib.
    let_others_enter(base)
    with running_daemon(base / "s") as running:
        yield running


class Witness:
    """A directory of root's with one file, which nothing here may change or copy."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "data"
        directory.mkdir()
        self.file.write_text("of root's")
        self.file.chmod(0o600)
        self.before = self._facts()

    def _facts(self) -> tuple[object, ...]:
        facts = self.file.lstat()
        names = sorted(os.listdir(self.directory))
        return (names, facts.st_ino, facts.st_uid, facts.st_mode, self.file.read_text())

    def check(self) -> None:
        assert self._facts() == self.before


@pytest.fixture
def witness(daemon: Daemon, tmp_path: Path) -> Witness:
    # Not in a directory that is closed to the other user: that would protect it by itself.
    return Witness(daemon.state_dir.parent / f"witness-{tmp_path.name}")


def apply(daemon: Daemon, name: str, *steps: dict[str, Any]) -> None:
    daemon.apply(json.dumps({"name": name, "description": "x", "steps": list(steps)}))


def artifacts(daemon: Daemon, run: run_pb2.Run) -> dict[str, list[str]]:
    answer = daemon.runs.ListArtifacts(run_pb2.ListArtifactsRequest(run_id=run.id), timeout=20)
    return {each.step: [file.path for file in each.files] for each in answer.artifacts}


def planter(witness: Witness) -> dict[str, Any]:
    """Leaves an input, and a link in the run's directory where the next step is to work."""
    return {
        "name": "a",
        "user": NOBODY,
        "workspace": "{{ run.dir }}",
        "run": f"echo given > data; ln -s {witness.directory} sub; ln -s {witness.file} link",
        "outputs": [{"name": "data", "path": "data"}],
    }


@pytest.mark.parametrize("user", ["root", NOBODY])
def test_a_link_in_a_workspace_makes_root_write_nowhere_else(daemon: Daemon, witness: Witness, user: str) -> None:
    taking = {
        "name": "b",
        "depends_on": ["a"],
        "user": user,
        "workspace": "{{ run.dir }}/sub",
        "run": "cat data",
        "inputs": [{"from": "a", "artifact": "data"}],
        "outputs": [{"name": "again", "path": "data"}],
    }
    apply(daemon, f"writes-{user}", planter(witness), taking)
    run = daemon.run(f"writes-{user}")
    witness.check()
    assert run_state(run) == "FAILED"
    assert step_states(run)["a"] == "SUCCEEDED"
    assert "/sub is a link in a directory that other users can write" in run.error_message
    assert artifacts(daemon, run) == {"a": ["data"]}


@pytest.mark.parametrize("user", ["root", NOBODY])
def test_a_link_in_a_workspace_makes_root_keep_nothing_else(daemon: Daemon, witness: Witness, user: str) -> None:
    """Neither does it start a step elsewhere."""
    leaving = {
        "name": "b",
        "depends_on": ["a"],
        "user": user,
        "workspace": "{{ run.dir }}/sub",
        "run": "echo begun; echo more >> data || true",
        "outputs": [{"name": "stolen", "path": "data"}],
    }
    apply(daemon, f"reads-{user}", planter(witness), leaving)
    run = daemon.run(f"reads-{user}")
    witness.check()
    assert run_state(run) == "FAILED"
    assert "cannot enter the workspace" in run.error_message
    assert "/sub is a link in a directory that other users can write" in run.error_message
    assert artifacts(daemon, run) == {"a": ["data"]}
    assert daemon.log_of(run.id, "b") == {}


def test_a_link_among_the_outputs_is_not_followed_out(daemon: Daemon, witness: Witness) -> None:
    step = planter(witness) | {"outputs": [{"name": "stolen", "path": "link"}]}
    apply(daemon, "outputs", step)
    run = daemon.run("outputs")
    witness.check()
    assert run_state(run) == "FAILED"
    assert "it must stay in the workspace" in run.error_message
    assert artifacts(daemon, run) == {}


def test_links_that_only_root_can_make_are_followed(daemon: Daemon, witness: Witness) -> None:
    """As before: an operator's `current -> releases/7`."""
    current = daemon.state_dir.parent / f"current-{witness.directory.name}"
    current.symlink_to(witness.directory)
    step = {
        "name": "only",
        "workspace": str(current),
        "run": "pwd -P; cat data",
        "outputs": [{"name": "data", "path": "data"}],
    }
    apply(daemon, "followed", step)
    run = daemon.run("followed")
    witness.check()
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert artifacts(daemon, run) == {"only": ["data"]}
    (printed,) = daemon.log_of(run.id).values()
    assert printed.decode() == f"{witness.directory}\nof root's"
