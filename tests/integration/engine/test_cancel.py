"""Cancelling: recorded at once, ended when every process is gone.

The rules of run management in the requirements, and their tests:

| rule | test |
|---|---|
| a conditional update tells updated, not found and another state apart | `contract/store/test_saves.py`: `test_a_whole_run`, `test_an_unknown_run_is_not_found`, `test_another_state_is_refused`, `test_a_terminal_run_never_changes` |
| clients are told the same | `test_cancelling_what_has_ended_is_refused_with_its_state`, `test_a_run_that_does_not_exist_is_not_found` |
| of concurrent updates one wins | `contract/store/test_saves.py`: `test_of_concurrent_saves_of_one_run_exactly_one_wins` |
| a run in the queue can only begin or be cancelled | `unit/domain/test_transition.py`: `test_a_run_in_the_queue_never_ends_well` |
| a failing database changes no result, and is reported | `unit/engine/test_internal_errors.py`: `test_a_database_that_fails_for_a_while_changes_no_result` |
| the change is repeated until it is stored, once | `e2e/test_failing_disk.py` |
| a step that cannot be started fails, and its run ends | `unit/domain/test_transition.py`: `test_what_could_not_start_is_not_retryable` |
| a cancel reaches a step in any state | `unit/domain/test_transition.py`: `test_a_cancel_reaches_a_step_in_every_state_and_phase` |
| completion wins over a late cancel | `test_a_late_cancel_loses`; `late cancel` in `unit/domain/policy_cases.yaml` |
| an error of an earlier attempt does not stay | `unit/domain/test_transition.py`: `test_an_error_of_an_earlier_attempt_is_not_left_in_a_step_that_succeeded` |
| of concurrent starts one wins | `integration/api/test_runs.py`: `test_exactly_one_of_many_starts_at_once_wins` |
| the current run is the active one, or else the latest | `integration/api/test_runs.py`: `test_the_current_run_is_the_active_one_else_the_latest` |
| late subscribers get everything and the end at once | `integration/api/test_logs.py`: `test_a_follower_of_an_ended_run_gets_all_and_the_end_at_once`; `integration/api/test_watch.py`: `test_a_late_watcher_gets_one_picture_of_the_end` |
| times need a zone and are kept in UTC | `contract/store/test_saves.py`: `test_times_need_a_zone`; `contract/store/test_values.py`: `test_times_come_back_in_utc` |
| any order of all of this | `test_interleavings.py` |
"""  # noqa: E501

from __future__ import annotations

from pathlib import Path

import grpc

from helpers.daemon import Daemon, cause_name, process_state, run_state, step_states, waits_for
from helpers.gate import Gate
from helpers.processes import stat_of
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.v1 import run_pb2


def test_a_cancelled_run_stays_running_until_its_processes_are_gone(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    daemon.apply(f"""
name: stubborn
description: x
steps:
  - name: only
    run: |
      trap 'echo heard; read _ < {gate.path}; exit 0' TERM
      echo ready
      while true; do sleep 0.02; done
    kill_grace: 60s
  - {{name: after, run: "true"}}
""")
    run_id = daemon.start_run("stubborn")
    request = run_pb2.StreamLogsRequest(run_id=run_id, follow=True, streams=[run_pb2.LOG_STREAM_STDOUT])
    stream = iter(daemon.runs.StreamLogs(request, timeout=60))
    assert next(stream).chunk.records[0].data == b"ready\n"
    asked = daemon.cancel(run_id, "too slow")
    assert run_state(asked) == "RUNNING"
    assert asked.HasField("cancel_requested_at")
    assert (cause_name(asked.ending), asked.error_message) == ("cancelled", "cancelled: too slow")
    assert next(stream).chunk.records[0].data == b"heard\n"
    waiting = daemon.get_run(run_id)
    assert run_state(waiting) == "RUNNING"
    assert waits_for(waiting) == "PROCESSES"
    assert step_states(waiting) == {"only": "RUNNING", "after": "SKIPPED(cancelled)"}
    again = daemon.cancel(run_id, "another reason")
    assert (again.cancel_requested_at, again.error_message) == (
        asked.cancel_requested_at,
        "cancelled: too slow",
    )
    gate.release_now()
    run = daemon.wait_run(run_id)
    assert run_state(run) == "CANCELLED"
    assert step_states(run) == {"only": "CANCELLED", "after": "SKIPPED(cancelled)"}
    process = daemon.process_of(run_id, "only")
    assert (process_state(process), process.exit_code) == ("CANCELLED", 0)
    assert list(process.ending.signals) == ["TERM"]


def test_a_step_that_ignores_term_is_killed_after_its_grace(daemon: Daemon) -> None:
    daemon.apply("""
name: deaf
description: x
steps:
  - {name: only, run: "trap '' TERM; echo ready; while true; do sleep 0.02; done", kill_grace: 200ms}
""")
    run_id = daemon.start_run("deaf")
    follow = run_pb2.StreamLogsRequest(run_id=run_id, follow=True)
    next(iter(daemon.runs.StreamLogs(follow, timeout=60)))
    daemon.cancel(run_id)
    run = daemon.wait_run(run_id)
    assert (run_state(run), run.error_message) == ("CANCELLED", "cancelled")
    process = daemon.process_of(run_id, "only")
    assert (process_state(process), process.signal) == ("CANCELLED", 9)
    assert list(process.ending.signals) == ["TERM", "KILL"]
    assert process.ending.took.ToMicroseconds() >= 200_000
    assert process.ending.proved_empty


def test_cancelling_what_has_ended_is_refused_with_its_state(daemon: Daemon) -> None:
    for name, script, state in (("good", "true", "SUCCEEDED"), ("bad", "exit 1", "FAILED")):
        text = f"name: {name}\ndescription: x\nsteps: [{{name: only, run: '{script}'}}]\n"
        daemon.apply(text)
        run = daemon.run(name)
        refusal = refused(lambda run_id=run.id: daemon.cancel(run_id))  # type: ignore[misc]
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "RUN_ALREADY_TERMINAL",
        )
        assert refusal.metadata == {"run_id": run.id, "state": state}
        assert refusal.text == f"run {name}#1 has already ended: {state.lower()}"
        assert daemon.get_run(run.id) == run


def test_a_run_that_does_not_exist_is_not_found(daemon: Daemon) -> None:
    refusal = refused(lambda: daemon.cancel("0192f3a4-5b6c-7d8e-9f01-23456789abcd"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")


def test_cancelling_twice_and_after_the_end(daemon: Daemon) -> None:
    daemon.apply("name: twice\ndescription: x\nsteps: [{name: only, run: sleep 60}]\n")
    run_id = daemon.start_run("twice")
    daemon.cancel(run_id)
    daemon.wait_run(run_id)
    refusal = refused(lambda: daemon.cancel(run_id))
    assert refusal.reason == "RUN_ALREADY_TERMINAL"
    assert refusal.metadata["state"] == "CANCELLED"


def test_a_late_cancel_loses(daemon: Daemon, tmp_path: Path) -> None:
    """The main process exits by itself while the wish is on its way: its own result stands."""
    gate = Gate(f"{tmp_path}/gate")
    daemon.apply(f"""
name: late
description: x
steps:
  - name: only
    run: "(trap '' TERM; echo left; read _ < {gate.path}) & read _ < {gate.path}.main; exit 0"
    kill_grace: 60s
""")
    main = Gate(f"{tmp_path}/gate.main")
    run_id = daemon.start_run("late")
    follow = run_pb2.StreamLogsRequest(run_id=run_id, follow=True)
    next(iter(daemon.runs.StreamLogs(follow, timeout=60)))
    pid = daemon.wait_started(run_id, "only")
    main.release_now()
    # The main process is gone, what it left behind is not: the run has not ended yet.
    wait_until(lambda: stat_of(pid) is None, "the main process does not exit")
    asked = daemon.cancel(run_id)
    assert run_state(asked) == "RUNNING"
    gate.release_now()
    run = daemon.wait_run(run_id)
    assert (run_state(run), run.error_message) == ("SUCCEEDED", "")
    assert run.HasField("cancel_requested_at")
    assert not run.HasField("ending")
    process = daemon.process_of(run_id, "only")
    assert (process_state(process), process.ending.leftovers) == ("COMPLETED", 1)


def test_a_run_cancelled_at_once_never_lies(daemon: Daemon) -> None:
    """Wherever the cancel meets it, the run ends cancelled or, if all was done, succeeded; nothing is left."""
    daemon.apply("""
name: early
description: x
overlap: allow
steps: [{name: a, run: "true"}, {name: b, run: "true"}, {name: c, run: "true"}]
""")
    for _ in range(10):
        run_id = daemon.start_run("early")
        try:
            daemon.cancel(run_id)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION  # noqa: PT017
        run = daemon.wait_run(run_id)
        states = set(step_states(run).values())
        if run_state(run) == "SUCCEEDED":
            assert states == {"SUCCEEDED"}
        else:
            assert run_state(run) == "CANCELLED"
            assert states <= {"SUCCEEDED", "CANCELLED", "SKIPPED(cancelled)"}
            assert states != {"SUCCEEDED"}
