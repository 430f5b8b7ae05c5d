"""RunService: pausing, approving, queueing, and steps with more than one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc

from helpers.daemon import Daemon, run_state, step_states, steps_of, waits_for
from helpers.gate import Gate
from helpers.refusal import refused
from toban.v1 import run_pb2 as pb


def apply(daemon: Daemon, name: str, steps: object, **fields: object) -> None:
    definition = {"name": name, "description": "for a test", **fields, "steps": steps}
    daemon.apply(json.dumps(definition))


def wait_for(daemon: Daemon, run_id: str, seen: Callable[[pb.Run], bool]) -> pb.Run:
    """Until the run, read whole after each of its changes, is so."""
    for _ in daemon.runs.WatchRun(pb.WatchRunRequest(id=run_id), timeout=60):
        run = daemon.get_run(run_id)
        if seen(run):
            return run
    raise AssertionError(f"it never was: {daemon.get_run(run_id)}")


def decide(daemon: Daemon, run_id: str, step: str, approved: bool, note: str = "") -> pb.Run:
    decision = pb.APPROVAL_DECISION_APPROVED if approved else pb.APPROVAL_DECISION_REJECTED
    asked = pb.DecideApprovalRequest(run_id=run_id, step=step, decision=decision, note=note)
    return daemon.runs.DecideApproval(asked, timeout=20).run


def waiting(run: pb.Run) -> dict[str, str]:
    return {step.id: waits_for(step) for step in run.steps if step.waiting_for}


def test_a_paused_run_starts_nothing_until_it_is_resumed(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    steps = {"a": {"run": f"read _ < {gate.path}"}, "b": {"run": "true", "depends_on": ["a"]}}
    apply(daemon, "paused", steps)
    run_id = daemon.start_run("paused")
    daemon.wait_started(run_id, "a")
    for _ in range(2):
        paused = daemon.runs.PauseRun(pb.PauseRunRequest(id=run_id), timeout=20).run
        assert paused.HasField("paused_at")
    gate.release_now()
    held = wait_for(daemon, run_id, lambda run: step_states(run)["a"] == "SUCCEEDED")
    assert (run_state(held), step_states(held)["b"]) == ("RUNNING", "READY")
    assert waits_for(held) == "RESUME"
    assert waiting(held) == {"b": "RESUME"}
    resumed = daemon.runs.ResumeRun(pb.ResumeRunRequest(id=run_id), timeout=20).run
    assert not resumed.HasField("paused_at")
    assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
    for call in (
        lambda: daemon.runs.PauseRun(pb.PauseRunRequest(id=run_id), timeout=20),
        lambda: daemon.runs.ResumeRun(pb.ResumeRunRequest(id=run_id), timeout=20),
    ):
        assert refused(call).reason == "RUN_ALREADY_TERMINAL"


def test_a_step_that_is_approved_lets_the_run_go_on(daemon: Daemon) -> None:
    steps = {
        "gate": {"job_type": "approval"},
        "after": {"run": "echo {{ steps.gate.result.note }}", "depends_on": ["gate"]},
    }
    apply(daemon, "approved", steps)
    run_id = daemon.start_run("approved")
    held = wait_for(daemon, run_id, lambda run: bool(waiting(run)))
    assert (waiting(held), waits_for(held), list(held.waiting_steps)) == ({"gate": "APPROVAL"}, "APPROVAL", ["gate"])
    assert steps_of(held)["gate"].job_type == pb.JOB_TYPE_APPROVAL
    decide(daemon, run_id, "gate", True, "fine by me")
    run = daemon.wait_run(run_id)
    assert run_state(run) == "SUCCEEDED"
    assert daemon.log_of(run_id)[pb.LOG_STREAM_STDOUT] == b"fine by me\n"
    result = json.loads(steps_of(run)["gate"].result_json)
    assert (result["approved"], result["note"], result["by"]) == (True, "fine by me", run.caller)
    # An answer that was lost is asked for again, even if the run has ended meanwhile.
    decide(daemon, run_id, "gate", True, "fine by me")
    assert refused(lambda: decide(daemon, run_id, "gate", False)).reason == "RUN_ALREADY_TERMINAL"


def test_a_step_that_is_rejected_fails(daemon: Daemon) -> None:
    steps = {
        "gate": {"job_type": "approval"},
        "other": {"job_type": "approval"},
        "idle": {"run": "true", "depends_on": ["gate", "other"]},
    }
    apply(daemon, "rejected", steps)
    run_id = daemon.start_run("rejected")
    wait_for(daemon, run_id, lambda run: len(waiting(run)) == 2)
    early = refused(lambda: decide(daemon, run_id, "idle", True))
    assert (early.code, early.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "STEP_NOT_WAITING")
    assert refused(lambda: decide(daemon, run_id, "none", True)).reason == "STEP_NOT_FOUND"
    assert refused(lambda: decide(daemon, "none", "gate", True)).reason == "RUN_NOT_FOUND"
    half = pb.DecideApprovalRequest(run_id=run_id, step="gate")
    unclear = refused(lambda: daemon.runs.DecideApproval(half, timeout=20))
    assert unclear.violations[0][0] == "decision"
    long = refused(lambda: decide(daemon, run_id, "gate", True, "x" * 1001))
    assert long.violations[0][0] == "note"
    decide(daemon, run_id, "gate", False, "no")
    run = daemon.wait_run(run_id)
    assert (run_state(run), step_states(run)["gate"]) == ("FAILED", "FAILED")


def test_who_is_no_approver_is_told_who_is(daemon: Daemon) -> None:
    apply(daemon, "others", {"gate": {"job_type": "approval", "approvers": ["uid:999999"]}})
    run_id = daemon.start_run("others")
    held = wait_for(daemon, run_id, lambda run: bool(waiting(run)))
    assert waiting(held) == {"gate": "APPROVAL"}
    assert list(steps_of(held)["gate"].approvers) == ["uid:999999"]
    refusal = refused(lambda: decide(daemon, run_id, "gate", True))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.PERMISSION_DENIED,
        "NOT_AN_APPROVER",
    )
    assert refusal.metadata["approvers"] == "uid:999999"
    daemon.cancel(run_id)
    daemon.wait_run(run_id)


def test_an_approver_is_meant_by_its_role(daemon: Daemon) -> None:
    apply(daemon, "by-role", {"gate": {"job_type": "approval", "approvers": ["role:admin"]}})
    run_id = daemon.start_run("by-role")
    wait_for(daemon, run_id, lambda run: bool(waiting(run)))
    decide(daemon, run_id, "gate", True)
    done = daemon.wait_run(run_id)
    assert json.loads(steps_of(done)["gate"].result_json)["by"] == done.caller


def test_a_queued_run_waits_for_its_turn(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    apply(daemon, "queued", [{"name": "only", "run": f"read _ < {gate.path}"}], overlap="queue")
    first, second = daemon.start_run("queued"), daemon.start_run("queued")
    daemon.wait_started(first, "only")
    held = daemon.get_run(second)
    assert (run_state(held), waits_for(held)) == ("PENDING", "QUEUE")
    gate.release_now()
    daemon.wait_started(second, "only")
    gate.release_now()
    assert [run_state(daemon.wait_run(each)) for each in (first, second)] == ["SUCCEEDED"] * 2


def test_a_back_off_is_told_with_its_end(daemon: Daemon) -> None:
    step = {"run": "exit 1", "max_retries": 1, "retry": {"delay": "5m", "jitter": 0}}
    apply(daemon, "backing", {"only": step})
    run_id = daemon.start_run("backing")
    held = wait_for(daemon, run_id, lambda run: bool(waiting(run)))
    (only,) = held.steps
    assert (step_states(held)["only"], waits_for(only)) == ("READY", "BACKOFF")
    assert (only.retries, only.max_retries, only.attempts) == (1, 1, 1)
    (process,) = daemon.processes(run_id)
    begun = only.not_before.ToDatetime(UTC) - timedelta(minutes=5)
    assert process.finished_at.ToDatetime(UTC) <= begun <= datetime.now(UTC)
    daemon.cancel(run_id)
    daemon.wait_run(run_id)


def test_instances_come_in_pages_behind_their_step(daemon: Daemon) -> None:
    steps = {
        "many": {"run": "true", "for_each": [f"i{number}" for number in range(7)]},
        "last": {"run": "true", "depends_on": ["many"]},
    }
    apply(daemon, "instances", steps)
    run = daemon.run("instances")
    assert (run.steps_ended, run.steps_total) == (2, 2)
    assert [(each.id, each.instances, each.instances_ended) for each in run.summary.steps] == [
        ("many", 7, 7),
        ("last", 0, 0),
    ]
    names = ["many", *(f"many[{number}]" for number in range(7)), "last"]
    assert [step.id for step in run.steps] == names
    found: list[pb.Step] = []
    token = ""
    while True:
        asked = pb.GetRunRequest(id=run.id, step_page_size=2, step_page_token=token)
        page = daemon.runs.GetRun(asked, timeout=20)
        found += page.run.steps
        token = page.next_step_page_token
        if not token:
            break
    assert found == list(run.steps)
    assert (found[0].instances, found[3].instance, found[3].parent) == (7, 2, "many")
    assert json.loads(found[3].item_json) == "i2"
    assert {each.step for each in daemon.processes(run.id)} == {*names[1:]}
    (picture,) = daemon.runs.WatchRun(pb.WatchRunRequest(id=run.id), timeout=20)
    assert [step.id for step in picture.run.steps] == names


def test_iterations_and_checks_are_told(daemon: Daemon) -> None:
    check = {"run": "test {{ iteration }} -ge 2"}
    apply(daemon, "loops", {"loop": {"run": "true", "completion_check": check, "max_iterations": 5}})
    run = daemon.run("loops")
    (loop,) = run.steps
    assert run_state(run) == "SUCCEEDED"
    assert (loop.iteration, loop.max_iterations, loop.checks, loop.attempts) == (2, 5, 2, 2)
    told = [(each.step, each.check, each.iteration) for each in daemon.processes(run.id)]
    assert told == [
        ("loop", False, 1),
        ("loop.check", True, 1),
        ("loop", False, 2),
        ("loop.check", True, 2),
    ]


def test_a_child_and_its_parent_know_each_other(daemon: Daemon) -> None:
    apply(daemon, "child", [{"name": "only", "run": "true"}])
    apply(daemon, "parent", {"call": {"job_type": "workflow", "target": "child"}})
    run = daemon.run("parent")
    assert run_state(run) == "SUCCEEDED"
    (call,) = run.steps
    child = daemon.get_run(call.child_run)
    assert (child.workflow, child.parent_run, child.parent_step) == ("child", run.id, "call")
    assert child.triggered_by == pb.TRIGGER_PARENT
    assert json.loads(call.result_json) == {
        "run_id": child.id,
        "number": child.number,
        "state": "SUCCEEDED",
    }
    children = daemon.runs.ListRuns(pb.ListRunsRequest(parent_run=run.id), timeout=20).runs
    assert [each.id for each in children] == [child.id]
    (execution,) = daemon.processes(run.id)
    assert (execution.child_run, execution.pid) == (child.id, 0)
