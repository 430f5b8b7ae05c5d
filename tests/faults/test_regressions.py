"""Bugs that the fault suite found, each made to happen again on its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest

from faults import strace_faults
from faults.descriptors import no_descriptors
from faults.leftovers import check_left, end_all
from helpers.daemon import Daemon, process_state, run_state, running_daemon, step_states
from helpers.gate import Gate
from helpers.wait import wait_until
from toban.v1 import run_pb2


def died_before_it_started_anything(daemon: Daemon, workflow: str) -> str:
    """The daemon is killed when an attempt is stored and no client knows of it; returns the id of its run."""
    request = run_pb2.StartRunRequest(workflow=workflow, request_id="once")
    try:
        daemon.runs.StartRun(request, timeout=20)
    except grpc.RpcError as error:
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)  # noqa: PT017
    daemon.wait()
    daemon.start()
    return daemon.runs.StartRun(request, timeout=20).run.id


def test_the_log_of_a_run_whose_step_was_never_started_is_complete(tmp_path: Path) -> None:
    """Nothing was printed and nothing is missing: what lies on disk is the claim that kept the step from starting."""
    armed = {"TOBAN_FAILPOINTS": "launch.before_send=kill@1"}
    with running_daemon(tmp_path / "s", environment=armed) as daemon:
        daemon.environment.pop("TOBAN_FAILPOINTS")
        daemon.apply("name: late\ndescription: x\ntimeout: 10ms\nsteps: [{name: only, run: echo hello}]")
        since = time.monotonic()
        run_id = died_before_it_started_anything(daemon, "late")
        wait_until(lambda: time.monotonic() > since + 0.01, "time stands still")
        run = daemon.wait_run(run_id)
        process = daemon.process_of(run_id, "only")
        (end,) = daemon.chunks(run_id)
    assert run_state(run) == "TIMED_OUT"
    assert step_states(run) == {"only": "SKIPPED(timed_out)"}
    assert (process_state(process), process.pid) == ("CANCELLED", 0)
    assert end.end.complete


WITHOUT_DESCRIPTORS = """
import resource, sys
from toban.definition import JobType, RenderError, Step
from toband.engine.execution import launch_spec

step = Step(id="a", name="a", job_type=JobType.SHELL, target="true", kwargs={}, env={})
assert launch_spec._environment(step, "")["HOME"]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
try:
    launch_spec._environment(step, "")
except RenderError as error:
    sys.exit(f"made up: {error}")
except OSError as error:
    print(error.strerror)
"""


def test_without_descriptors_nobody_is_told_that_a_user_does_not_exist() -> None:
    """The user data base cannot be opened then, and answers as if it were empty: the step failed for ever."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_DESCRIPTORS], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("Too many open files\n", 0), done.stderr


def test_resource_samples_that_cannot_be_taken_do_not_end_the_daemon(tmp_path: Path) -> None:
    """Without free descriptors no process can be examined; the daemon ended with its sampler."""
    gate = Gate(f"{tmp_path}/gate")
    with running_daemon(tmp_path / "s") as daemon:
        daemon.apply(f"name: held\ndescription: x\nsteps: [{{name: only, run: read _ < {gate.path}}}]")
        run_id = daemon.start_run("held")
        daemon.wait_started(run_id, "only")
        with no_descriptors(daemon.pid):
            wait_until(lambda: '"usage_failed"' in daemon.log.read_text(), "nobody tried to look")
        gate.release_now()
        assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
        assert daemon.process is not None
        assert daemon.process.poll() is None


@pytest.mark.skipif(bool(strace_faults.why_not()), reason=f"cannot trace: {strace_faults.why_not()}")
def test_a_step_that_is_cancelled_while_it_gets_its_place_is_not_started_or_is_ended(
    tmp_path: Path,
) -> None:
    """The attempt waited for a slot; the cancel came while its directory was synced, and was forgotten."""
    gate = Gate(f"{tmp_path}/gate")
    one = {"TOBAN_MAX_ATTEMPTS_RUNNING": "1"}
    with running_daemon(tmp_path / "s", environment=one) as daemon:
        daemon.apply(f"name: first\ndescription: x\nsteps: [{{name: a, run: read _ < {gate.path}}}]")
        daemon.apply("name: second\ndescription: x\nsteps: [{name: b, run: exec sleep 600}]")
        first = daemon.start_run("first")
        daemon.wait_started(first, "a")
        second = daemon.start_run("second")
        # Commits are made with fdatasync, and are not slowed down.
        with strace_faults.injected(daemon.pid, "fsync", "delay_enter=500ms", tmp_path):
            gate.release_now()
            made = daemon.state_dir / "runs" / second
            wait_until(made.exists, "it gets no place")
            daemon.cancel(second)
        run = daemon.wait_run(second, within=20)
        assert run_state(run) == "CANCELLED"
        assert check_left(daemon.state_dir) == []


def test_a_claim_that_a_power_cut_left_empty_says_that_the_machine_went_down(
    tmp_path: Path,
) -> None:
    """The name of the file had reached the disk, its content had not; the report named neither cause nor processes."""
    with running_daemon(tmp_path / "s", environment={"TOBAN_BOOT_ID": "one"}) as daemon:
        daemon.apply("name: cut\ndescription: x\nsteps: [{name: only, run: echo hello}]")
        daemon.stop()
        daemon.start({"TOBAN_FAILPOINTS_SPAWNER": "claim.linked=stop@1"})
        run_id = daemon.start_run("cut")
        attempts = daemon.state_dir / "runs" / run_id / "attempts"
        (claim,) = wait_until(lambda: list(attempts.glob("only.*.log")), "nobody claims it")
        # The daemon first: nobody is to see, and to note, that a shim ended before the machine was down.
        daemon.kill()
        end_all(daemon.state_dir)
        os.truncate(claim, 0)
        daemon.environment["TOBAN_BOOT_ID"] = "two"
        daemon.start()
        run = daemon.wait_run(run_id)
        process = daemon.process_of(run_id, "only")
    assert run_state(run) == "FAILED"
    assert process_state(process) == "LOST"
    assert process.error_message == "the machine went down while the step ran"
    assert process.ending.orphans == run_pb2.ORPHANS_NONE


@pytest.mark.skipif(bool(strace_faults.why_not()), reason=f"cannot trace: {strace_faults.why_not()}")
def test_a_step_has_all_of_its_time_however_long_its_process_took_to_make(tmp_path: Path) -> None:
    """The timeout was counted from before the process was there: on a busy machine it was over with its start."""
    gate = Gate(f"{tmp_path}/gate")
    with running_daemon(tmp_path / "s") as daemon:
        daemon.apply("name: quick\ndescription: x\nsteps: [{name: only, run: ':'}]")
        daemon.apply(
            "name: slow\ndescription: x\nsteps:\n"
            f"  - {{name: only, timeout: 2s, run: echo begun; read _ < {gate.path}}}"
        )
        (spawner,) = daemon.children()
        with strace_faults.injected(spawner, "execve", "delay_enter=2200ms", tmp_path):
            # Those that were parked before are not traced.
            for _ in range(3):
                daemon.run("quick")
            run = daemon.run("slow")
        process = daemon.process_of(run.id, "only")
        printed = daemon.log_of(run.id)
    assert process_state(process) == "TIMED_OUT"
    took = process.finished_at.ToMicroseconds() - process.started_at.ToMicroseconds()
    assert took >= 2_000_000
    assert printed[run_pb2.LOG_STREAM_STDOUT] == b"begun\n"
