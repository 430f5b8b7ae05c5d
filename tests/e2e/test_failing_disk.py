"""The database or the disk fails for a moment: nothing is lost, nothing is done twice, and the daemon stays."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from helpers.daemon import Daemon, run_state, running_daemon, step_states
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.v1 import run_pb2, system_pb2

DEFINITION = """
name: three
description: three steps that leave a trace each
steps:
  - {name: a, run: echo a >> witness}
  - {name: b, run: echo b >> witness}
  - {name: c, run: echo c >> witness}
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory that knows the workflow."""
    state_dir = tmp_path_factory.mktemp("d") / "s"
    with running_daemon(state_dir) as daemon:
        daemon.apply(DEFINITION)
    return state_dir


@pytest.fixture
def daemon(prepared: Path, tmp_path: Path) -> Iterator[Daemon]:
    """One that has not been started."""
    shutil.copytree(prepared, tmp_path / "s")
    daemon = Daemon(tmp_path / "s")
    try:
        yield daemon
    finally:
        daemon.clear()


def succeeded_once(daemon: Daemon, run_id: str) -> None:
    run = daemon.wait_run(run_id)
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert set(step_states(run).values()) == {"SUCCEEDED"}
    witness = daemon.state_dir / "runs" / run_id / "work" / "witness"
    assert witness.read_text().split() == ["a", "b", "c"]


def test_commits_that_seem_to_fail_and_were_made(daemon: Daemon) -> None:
    """Every single commit breaks off after it has been made, as when a connection is lost at the wrong moment."""
    daemon.start({"TOBAN_FAILPOINTS": "store.after_commit=EIO"})
    request = run_pb2.StartRunRequest(workflow="three", request_id="once")
    refusal = refused(lambda: daemon.runs.StartRun(request, timeout=20))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_FAILED")
    again = daemon.runs.StartRun(request, timeout=20).run
    succeeded_once(daemon, again.id)
    listed = daemon.runs.ListRuns(run_pb2.ListRunsRequest(), timeout=20).runs
    assert [run.id for run in listed] == [again.id]
    assert daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).pid == daemon.pid


def test_a_commit_that_fails_is_tried_again(daemon: Daemon) -> None:
    daemon.start({"TOBAN_FAILPOINTS": "store.before_commit=EIO@4"})
    run_id = daemon.start_run("three")
    succeeded_once(daemon, run_id)
    assert "failpoint store.before_commit" in daemon.log.read_text(), "no commit failed"


def test_a_full_disk_does_not_keep_the_daemon_from_starting(daemon: Daemon) -> None:
    """It has to take a claim to be sure that a step never began, and cannot: it tries again."""
    daemon.start({"TOBAN_FAILPOINTS": "launch.before_send=kill@1"})
    request = run_pb2.StartRunRequest(workflow="three", request_id="once")
    try:
        daemon.runs.StartRun(request, timeout=20)
    except grpc.RpcError as error:
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)  # noqa: PT017
    daemon.wait()
    daemon.start({"TOBAN_FAILPOINTS": "claim.linked=ENOSPC@1"})
    wait_until(lambda: '"recover_failed"' in daemon.log.read_text(), "the claim was not refused")
    succeeded_once(daemon, daemon.runs.StartRun(request, timeout=20).run.id)
