"""Directories that no step works in: those of the system, and those of the daemon but for the run's own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import grpc
import pytest

from helpers.daemon import Daemon, error_class, run_state
from helpers.refusal import refused
from toban.v1 import workflow_pb2

SYSTEM = ("/proc", "/proc/self", "/proc/self/cwd", "/proc/self/root/tmp", "/sys", "/dev", "/dev/fd")
SYSTEMS = "belongs to the system"
STATE = "is in the daemon's state directory, and not in the run's own"


def definition(name: str, step: dict[str, Any] | None = None, **fields: Any) -> str:
    only = {"name": "only", "run": "pwd -P; echo mine > mine", **(step or {})}
    return json.dumps({"name": name, "description": "x", "steps": [only], **fields})


@pytest.fixture(scope="module")
def anywhere(daemon: Daemon) -> str:
    """A workflow that works where its parameter says."""
    step = {"workspace": "{{ params.dir }}", "outputs": [{"name": "mine", "path": "mine"}]}
    params = {"dir": {"type": "string"}}
    daemon.apply(definition("anywhere", step, params=params))
    return "anywhere"


@pytest.fixture(scope="module")
def other(daemon: Daemon) -> Path:
    """The directory of another run."""
    daemon.apply(definition("other"))
    run = daemon.run("other")
    assert run_state(run) == "SUCCEEDED"
    return daemon.state_dir / "runs" / run.id


def seen(directory: Path) -> dict[str, str]:
    return {str(p): p.read_text("utf-8", "replace") for p in directory.rglob("*") if p.is_file()}


def check_refused(daemon: Daemon, workflow: str, path: str | Path, reason: str) -> None:
    run = daemon.run(workflow, dir=str(path))
    assert run_state(run) == "FAILED", path
    assert f"cannot use the workspace {path}: " in run.error_message
    assert reason in run.error_message
    assert error_class(run.steps[0]) == "NON_RETRYABLE"
    assert daemon.log_of(run.id) == {}


@pytest.mark.parametrize("path", SYSTEM)
def test_no_step_works_where_the_system_shows_itself(daemon: Daemon, anywhere: str, tmp_path: Path, path: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    check_refused(daemon, anywhere, path, SYSTEMS)
    check_refused(daemon, anywhere, link, SYSTEMS)


def test_no_step_works_in_the_state_directory(daemon: Daemon, anywhere: str, other: Path, tmp_path: Path) -> None:
    before = seen(other)
    (tmp_path / "link").symlink_to(other / "work")
    places = [daemon.state_dir, daemon.state_dir / "runs", other, other / "work"]
    places += [other / "context", other / "attempts", tmp_path / "link", tmp_path / "link/new"]
    for path in places:
        check_refused(daemon, anywhere, path, STATE)
    dots = f"{tmp_path}/../{os.path.relpath(other / 'work', tmp_path.parent)}"
    check_refused(daemon, anywhere, dots, STATE)
    assert seen(other) == before


def test_the_runs_own_directory_is_fine_but_for_its_records(daemon: Daemon) -> None:
    for number, path in enumerate(("{{ run.dir }}", "{{ run.dir }}/../context", "/dev/shm")):
        step = {"workspace": path, "run": "pwd -P"}
        daemon.apply(definition(f"own-{number}", step))
        assert run_state(daemon.run(f"own-{number}")) == "SUCCEEDED", path
    daemon.apply(definition("records", {"workspace": "{{ run.dir }}/../attempts"}))
    run = daemon.run("records")
    assert run_state(run) == "FAILED"
    assert STATE in run.error_message


def test_no_artifacts_are_kept_there(daemon: Daemon, other: Path, tmp_path: Path) -> None:
    before = seen(other)
    step = {"workspace": "{{ run.dir }}", "outputs": [{"name": "mine", "path": "mine"}]}
    around = daemon.state_dir.parent
    places = (
        (other / "context", STATE),
        (Path("/proc/self/cwd"), SYSTEMS),
        (around, "contains the daemon's state directory"),
    )
    for number, (place, reason) in enumerate(places):
        link = tmp_path / f"later-{number}"
        name = f"kept-{number}"
        daemon.apply(definition(name, step, context_dir=str(link)))
        link.symlink_to(place)
        run = daemon.run(name)
        assert run_state(run) == "FAILED"
        assert f"cannot keep artifacts in {link}: " in run.error_message
        assert reason in run.error_message
        assert daemon.log_of(run.id) == {}
    assert seen(other) == before


@pytest.mark.parametrize("path", ["/proc", "/proc/self/cwd", "/sys/fs", "/dev/{{ run.id }}"])
def test_a_definition_that_says_so_is_refused_at_once(daemon: Daemon, path: str) -> None:
    refusal = refused(lambda: daemon.apply(definition("bad", {"workspace": path})))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [each.path for each in refusal.problems] == ["steps.only.workspace"]
    assert SYSTEMS in refusal.problems[0].message


def test_so_is_one_that_names_the_state_directory(daemon: Daemon, other: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(other)
    cases: list[tuple[str, str, str]] = [
        (definition("bad", {"workspace": f"{other}/work"}), "", "steps.only.workspace"),
        (definition("bad", {"workspace": f"{tmp_path}/link"}), "", "steps.only.workspace"),
        (definition("bad", {"workspace": "work"}), str(other), "steps.only.workspace"),
        (definition("bad"), str(daemon.state_dir), "steps.only.workspace"),
        (definition("bad", {"workspace": "/"}, context_dir="."), str(other), "context_dir"),
    ]
    for source, base_dir, field in cases:
        refusal = refused(lambda: daemon.apply(source, base_dir))  # noqa: B023
        assert [each.path for each in refusal.problems] == [field]
        assert STATE in refusal.problems[0].message
        given = workflow_pb2.Definition(source=source, base_dir=base_dir)
        request = workflow_pb2.ValidateWorkflowRequest(definition=given)
        answer = daemon.workflows.ValidateWorkflow(request, timeout=20)
        assert [each.path for each in answer.problems] == [field]
    refusal = refused(lambda: daemon.apply(definition("bad"), "/proc/self"))
    assert SYSTEMS in refusal.problems[0].message
