"""The stop policy for active runs: leave them, wait for them, or cancel them."""

from __future__ import annotations

import signal
from pathlib import Path

import grpc

from helpers.daemon import Daemon, run_state, running_daemon, step_states
from helpers.gate import Gate
from helpers.processes import alive, seen
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.v1 import run_pb2


def held(daemon: Daemon, gate: Gate) -> str:
    """A run of two steps whose first one waits at the gate."""
    daemon.apply(f"""
name: held
description: x
overlap: allow
steps:
  - {{name: first, run: "read _ < {gate.path}"}}
  - {{name: second, run: echo done}}
""")
    run_id = daemon.start_run("held")
    daemon.wait_started(run_id, "first")
    return run_id


def told(daemon: Daemon) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGTERM)
    wait_until(lambda: '"action":"stopping"' in compact(daemon), "it does not stop")


def compact(daemon: Daemon) -> str:
    return daemon.log.read_text().replace(" ", "")


def ended_in_the_next_life(daemon: Daemon, run_id: str) -> run_pb2.Run:
    daemon.start()
    return daemon.wait_run(run_id)


def test_wait_lets_runs_come_to_their_end_and_takes_no_new_ones(tmp_path: Path) -> None:
    environment = {"TOBAN_STOP_POLICY": "wait", "TOBAN_STOP_DEADLINE": "60s"}
    with running_daemon(tmp_path / "s", environment=environment) as daemon:
        gate = Gate(f"{tmp_path}/gate")
        run_id = held(daemon, gate)
        told(daemon)
        refusal = refused(lambda: daemon.start_run("held"))
        assert refusal is not None
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STOPPING")
        assert run_state(daemon.get_run(run_id)) == "RUNNING", "it is still served"
        gate.release_now()
        assert daemon.wait() == 0
        run = ended_in_the_next_life(daemon, run_id)
        assert run_state(run) == "SUCCEEDED"
        # It ended before the stop did: the next life found nothing to do.
        assert "recovered" in compact(daemon)
        assert step_states(run) == {"first": "SUCCEEDED", "second": "SUCCEEDED"}


def test_wait_gives_up_at_its_deadline_and_detaches(tmp_path: Path) -> None:
    # Of so much two seconds are left for the rest of the stop, the most that ever are.
    environment = {"TOBAN_STOP_POLICY": "wait", "TOBAN_STOP_DEADLINE": "8s"}
    with running_daemon(tmp_path / "s", environment=environment) as daemon:
        gate = Gate(f"{tmp_path}/gate")
        run_id = held(daemon, gate)
        step = seen(daemon.process_of(run_id, "first").pid)
        assert daemon.stop() == 0
        assert alive(step)
        daemon.start()
        assert daemon.process_of(run_id, "first").pid == step.pid
        gate.release_now()
        assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"


def test_cancel_ends_what_runs_before_the_daemon_goes(tmp_path: Path) -> None:
    environment = {"TOBAN_STOP_POLICY": "cancel", "TOBAN_STOP_DEADLINE": "60s"}
    with running_daemon(tmp_path / "s", environment=environment) as daemon:
        run_id = held(daemon, Gate(f"{tmp_path}/gate"))
        step = seen(daemon.process_of(run_id, "first").pid)
        assert daemon.stop() == 0
        assert not alive(step)
        run = ended_in_the_next_life(daemon, run_id)
        assert (run_state(run), run.error_message) == (
            "CANCELLED",
            "cancelled: the daemon was stopped",
        )
        assert step_states(run) == {"first": "CANCELLED", "second": "SKIPPED(cancelled)"}


def test_cancel_waits_for_finally_steps_and_leaves_them_and_their_children_running_at_its_deadline(
    tmp_path: Path,
) -> None:
    gates = {name: Gate(f"{tmp_path}/{name}.gate") for name in ("slow", "held")}
    environment = {"TOBAN_STOP_POLICY": "cancel", "TOBAN_STOP_DEADLINE": "8s"}
    with running_daemon(tmp_path / "s", environment=environment) as daemon:
        daemon.apply(f"""
name: tidied
description: x
steps: [{{name: work, run: exec sleep 600}}]
finally:
  - {{name: quick, run: "true"}}
  - {{name: slow, run: "read _ < {gates["slow"].path}"}}
  - {{name: last, run: "true"}}
""")
        daemon.apply(f'name: child\ndescription: x\nsteps: [{{name: held, run: "read _ < {gates["held"].path}"}}]\n')
        daemon.apply("""
name: parent
description: x
steps: [{name: work, run: exit 3}]
finally: {name: tidy, job_type: workflow, target: child}
""")
        tidied, parent = daemon.start_run("tidied"), daemon.start_run("parent")
        daemon.wait_started(tidied, "work")
        listed = run_pb2.ListRunsRequest(parent_run=parent)
        (child,) = wait_until(lambda: daemon.runs.ListRuns(listed, timeout=20).runs, "no child run")
        daemon.wait_started(child.id, "held")
        assert daemon.stop() == 0
        for gate in gates.values():
            gate.release_now()
        run = ended_in_the_next_life(daemon, tidied)
        assert (run_state(run), run.error_message) == ("CANCELLED", "cancelled: the daemon was stopped")
        states = {"work": "CANCELLED", "quick": "SUCCEEDED", "slow": "SUCCEEDED", "last": "SUCCEEDED"}
        assert step_states(run) == states
        assert [step.attempts for step in run.steps] == [1, 1, 1, 1]
        run = daemon.wait_run(parent)
        assert (run_state(run), step_states(run)) == ("FAILED", {"work": "FAILED", "tidy": "SUCCEEDED"})
        assert run_state(daemon.get_run(child.id)) == "SUCCEEDED"


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    environment = {"TOBAN_STOP_POLICY": "wait", "TOBAN_STOP_DEADLINE": "10m"}
    with running_daemon(tmp_path / "s", environment=environment) as daemon:
        gate = Gate(f"{tmp_path}/gate")
        run_id = held(daemon, gate)
        told(daemon)
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait() == 1
        daemon.start()
        gate.release_now()
        assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
