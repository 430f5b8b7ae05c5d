"""A step that fails, times out or is cancelled leaves the outputs that exist; a restart meanwhile loses none."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.daemon import Daemon, run_state, running_daemon, step_states
from helpers.wait import wait_until
from toban.v1 import run_pb2

FAILING = """
name: failing
description: hands on the report of a failed test
defaults: {workspace: "{{ run.dir }}"}
steps:
  test:
    run: 'echo 3 of 5 passed > report; exit 1'
    on_failure: continue
    outputs: [{name: report, path: report}, {name: coverage, path: coverage}]
  read:
    run: 'cat given; wc -c < none'
    depends_on: [test]
    inputs: [{from: test, artifact: report, as: given}, {from: test, artifact: coverage, as: none}]
"""
STOPPED = """
name: stopped
description: writes its partial result when it is asked to end
defaults: {workspace: "{{ run.dir }}"}
steps:
  work:
    run: |
      trap 'echo partial > result; exit 1' TERM
      touch ready
      while :; do sleep 0.05; done
    TIMEOUT
    outputs: [{name: result, path: result}]
"""
RETRIED = """
name: retried
description: the second attempt replaces the outputs of the first
defaults: {workspace: "{{ run.dir }}"}
steps:
  work:
    run: 'echo $TOBAN_ATTEMPT > result; test $TOBAN_ATTEMPT = 2 || { touch extra; exit 1; }; rm extra'
    max_retries: 1
    retry: {delay: 10ms}
    outputs: [{name: result, path: result}, {name: extra, path: extra, optional: true}]
"""
LEADS_OUT = """
name: leads-out
description: fails, and its output cannot be stored
defaults: {workspace: "{{ run.dir }}"}
steps:
  work: {run: 'ln -s /etc/passwd result; exit 3', outputs: [{name: result, path: result}]}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("partial") / "s") as daemon:
        yield daemon


def left(daemon: Daemon, run_id: str) -> dict[str, tuple[str, bytes]]:
    """By name: the state and the content of the artifacts."""
    listed = daemon.runs.ListArtifacts(run_pb2.ListArtifactsRequest(run_id=run_id), timeout=20).artifacts
    found = {}
    for one in listed:
        asked = run_pb2.DownloadArtifactRequest(run_id=run_id, step=one.step, name=one.artifact.name)
        content = b"".join(message.data for message in daemon.runs.DownloadArtifact(asked, timeout=20))
        state = run_pb2.ProcessState.Name(one.artifact.state).removeprefix("PROCESS_STATE_")
        found[one.artifact.name] = (state, content)
    return found


def test_the_report_of_a_failed_step_is_handed_on(daemon: Daemon) -> None:
    daemon.apply(FAILING)
    run = daemon.run("failing")
    assert run_state(run) == "SUCCEEDED"
    assert step_states(run) == {"test": "FAILED", "read": "SUCCEEDED"}
    assert left(daemon, run.id) == {"report": ("FAILED", b"3 of 5 passed\n")}
    assert daemon.log_of(run.id, "read")[run_pb2.LOG_STREAM_STDOUT].split() == b"3 of 5 passed 0".split()


def test_a_cancelled_step_keeps_its_partial_result(daemon: Daemon) -> None:
    daemon.apply(STOPPED.replace("    TIMEOUT\n", ""))
    run_id = daemon.start_run("stopped")
    daemon.wait_started(run_id, "work")
    wait_until(lambda: list(daemon.state_dir.rglob(f"*{run_id}*/**/ready")), "the step is ready")
    daemon.cancel(run_id)
    run = daemon.wait_run(run_id)
    assert run_state(run) == "CANCELLED"
    assert left(daemon, run_id) == {"result": ("CANCELLED", b"partial\n")}


@pytest.mark.parametrize("whole_run", [False, True], ids=["step", "run"])
def test_a_timed_out_step_keeps_its_partial_result(daemon: Daemon, whole_run: bool) -> None:
    name = "stopped-run" if whole_run else "stopped-step"
    text = STOPPED.replace("name: stopped", f"name: {name}").replace(
        "    TIMEOUT\n", "" if whole_run else "    timeout: 4s\n"
    )
    daemon.apply(text.replace("steps:", "timeout: 4s\nsteps:", 1) if whole_run else text)
    run = daemon.run(name)
    assert run_state(run) == ("TIMED_OUT" if whole_run else "FAILED")
    assert left(daemon, run.id) == {"result": ("TIMED_OUT", b"partial\n")}


def test_a_retry_replaces_the_outputs_of_the_failed_attempt(daemon: Daemon) -> None:
    daemon.apply(RETRIED)
    run = daemon.run("retried")
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert left(daemon, run.id) == {"result": ("COMPLETED", b"2\n")}


def test_the_failure_stays_the_error_of_a_step_whose_outputs_cannot_be_stored(daemon: Daemon) -> None:
    daemon.apply(LEADS_OUT)
    run = daemon.run("leads-out")
    assert run_state(run) == "FAILED"
    assert run.error_message.startswith("step work failed: exit code 3 (outputs not stored: cannot keep output"), (
        run.error_message
    )
    assert left(daemon, run.id) == {}


@pytest.mark.parametrize("point", ["outputs.collect", "outputs.kept"])
def test_a_killed_daemon_collects_them_after_its_restart(tmp_path: Path, point: str) -> None:
    with running_daemon(tmp_path / "s", environment={"TOBAN_FAILPOINTS": f"{point}=kill@1"}) as daemon:
        daemon.environment["TOBAN_FAILPOINTS"] = ""
        daemon.apply(FAILING)
        run_id = daemon.start_run("failing")
        assert daemon.wait() == -signal.SIGKILL
        daemon.start()
        run = daemon.wait_run(run_id)
        assert run_state(run) == "SUCCEEDED"
        assert step_states(run) == {"test": "FAILED", "read": "SUCCEEDED"}
        assert left(daemon, run_id) == {"report": ("FAILED", b"3 of 5 passed\n")}
        assert [each.attempt for each in daemon.processes(run_id)] == [1, 1]
