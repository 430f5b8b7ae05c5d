"""Steps and runs in words, and the lines that a run is drawn with."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from toban.cli.human_text import clock
from toban.cli.render.run_text import run_state, run_style, shortfall
from toban.cli.render.step_table import step_rows
from toban.cli.render.step_text import step_note
from toban.cli.session import Session
from toban.cli.wait.run_views import PlainOutput, Tracker
from toban.v1 import run_pb2

NOW = datetime(2026, 2, 1, 12, 0, tzinfo=UTC)

PENDING = run_pb2.STEP_STATE_PENDING
READY = run_pb2.STEP_STATE_READY
RUNNING = run_pb2.STEP_STATE_RUNNING
APPROVAL = run_pb2.WAITING_FOR_APPROVAL
CHECKING = run_pb2.STEP_STATE_CHECKING
SUCCEEDED = run_pb2.STEP_STATE_SUCCEEDED
FAILED = run_pb2.STEP_STATE_FAILED
SKIPPED = run_pb2.STEP_STATE_SKIPPED


def step(**fields: Any) -> run_pb2.Step:
    return run_pb2.Step(id="build", **fields)


def decision(approved: bool, note: str = "") -> str:
    return json.dumps({"approved": approved, "by": "alice", "at": NOW.isoformat(), "note": note})


def backing_off(seconds: float) -> run_pb2.Step:
    found = step(state=READY, attempts=2, reason="exit code 7")
    found.not_before.FromDatetime(NOW + timedelta(seconds=seconds))
    return found


def between_iterations(seconds: float) -> run_pb2.Step:
    found = step(state=READY, attempts=2, iteration=2, max_iterations=5, waiting_for=run_pb2.WAITING_FOR_INTERVAL)
    found.not_before.FromDatetime(NOW + timedelta(seconds=seconds))
    return found


def waiting_step(**awaited: Any) -> run_pb2.Step:
    found = step(state=RUNNING, job_type=run_pb2.JOB_TYPE_WAIT, waiting_for=run_pb2.WAITING_FOR_TIME, attempts=1)
    for name in ("until", "timeout_at"):
        if name in awaited:
            getattr(found.awaited, name).FromDatetime(NOW + timedelta(seconds=awaited.pop(name)))
    found.awaited.MergeFrom(run_pb2.Awaited(**awaited))
    return found


def came(reason: str) -> str:
    return json.dumps({"reason": reason, "event": {"id": "e1", "type": "order.paid"}, "file": "/x"})


def group(count: int, **states: int) -> list[run_pb2.Step]:
    """A step with so many instances, the given ones in other states than the rest."""
    found = [run_pb2.Step(id="build", index=1, state=RUNNING, instances=count)]
    for number in range(count):
        state = states.get(f"i{number}", SUCCEEDED)
        found.append(
            run_pb2.Step(
                id=f"build[{number}]",
                index=1,
                parent="build",
                instance=number,
                item_json=f'"{number}"',
                state=state,  # type: ignore[arg-type]
            )
        )
    return found


@pytest.mark.parametrize(
    ("found", "note"),
    [
        (step(state=SUCCEEDED), ""),
        (step(state=FAILED, exit_code=3, attempts=1), "exit code 3"),
        (step(state=FAILED, reason="timed out", attempts=3), "timed out, 3 attempts"),
        (step(state=SKIPPED, skip_reason=run_pb2.SKIP_REASON_UPSTREAM), "a step before it did not succeed"),
        (step(state=SKIPPED, skip_reason=run_pb2.SKIP_REASON_WHEN), "its condition is false"),
        (step(state=SKIPPED, skip_reason=run_pb2.SKIP_REASON_EMPTY), "no items"),
        (step(state=SKIPPED, skip_reason=run_pb2.SKIP_REASON_SCOPE), "not selected"),
        (
            step(state=SKIPPED, skip_reason=run_pb2.SKIP_REASON_SCOPE, source_run="r1"),
            "not selected, results of deploy#12",
        ),
        (backing_off(12.5), "exit code 7, retrying in 12s, 2 attempts"),
        (backing_off(-1), "exit code 7, retrying now, 2 attempts"),
        (between_iterations(12.5), "iteration 2/5, next iteration in 12s"),
        (between_iterations(-1), "iteration 2/5, next iteration now"),
        (step(state=CHECKING, iteration=3, max_iterations=20, attempts=3), "iteration 3/20"),
        (step(state=RUNNING, waiting_for=APPROVAL, approvers=["alice"]), "waits for approval by alice"),
        (waiting_step(event_types=["a", "b"]), "waits for the event a or b"),
        (
            step(state=SUCCEEDED, job_type=run_pb2.JOB_TYPE_WAIT, result_json=came("event")),
            "event order.paid e1",
        ),
        (step(state=SUCCEEDED, job_type=run_pb2.JOB_TYPE_WAIT, result_json=came("file")), "file /x"),
        (step(state=SUCCEEDED, job_type=run_pb2.JOB_TYPE_WAIT, result_json=came("time")), ""),
        (step(state=SUCCEEDED, source_run="r1", attempts=2), "kept from deploy#12"),
        (step(state=SUCCEEDED, source_run="gone"), "kept from gone"),
        (step(state=RUNNING, child_run="r2"), "child run cleanup#4"),
        (
            step(state=FAILED, iteration=3, max_iterations=3, reason="not after 3 iterations"),
            "not after 3 iterations",
        ),
        (
            step(state=SUCCEEDED, job_type=run_pb2.JOB_TYPE_APPROVAL, result_json=decision(True, "go on")),
            "approved by alice: go on",
        ),
        (
            step(state=FAILED, job_type=run_pb2.JOB_TYPE_APPROVAL, result_json=decision(False), reason="no"),
            "rejected by alice",
        ),
        (step(state=FAILED, job_type=run_pb2.JOB_TYPE_APPROVAL, result_json="[]", reason="no"), "no"),
    ],
)
def test_what_is_worth_knowing_of_a_step(found: run_pb2.Step, note: str) -> None:
    names = {"r1": "deploy#12", "r2": "cleanup#4"}
    assert step_note(found, now=NOW, names=names) == note


def test_until_when_a_step_waits() -> None:
    def shown(seconds: float) -> str:
        at = Timestamp()
        at.FromDatetime(NOW + timedelta(seconds=seconds))
        return clock(at)

    assert step_note(waiting_step(until=90), now=NOW) == f"waits for {shown(90)} (in 1m 30s)"
    assert step_note(waiting_step(until=-5), now=NOW) == f"waits for {shown(-5)}"
    timed = waiting_step(file="/x", timeout_at=60)
    assert step_note(timed, now=NOW) == f"waits for the file /x until {shown(60)}"


def test_a_run_that_nobody_has_the_name_of() -> None:
    found = step(state=SUCCEEDED, source_run="0192f3a4", child_run="0192ffff")
    assert step_note(found) == "kept from an earlier run, child run 0192ffff"


def test_a_run_in_words() -> None:
    run = run_pb2.Run(state=run_pb2.RUN_STATE_SUCCEEDED)
    assert (run_state(run), shortfall(run), run_style(run)) == ("succeeded", "", "green")
    run.incomplete_steps = 2
    assert (run_state(run), run_style(run)) == ("succeeded, incomplete", "yellow")
    assert shortfall(run) == "2 steps are incomplete"
    run.failed_steps = 1
    assert run_state(run) == "succeeded with failures"
    assert shortfall(run) == "1 step failed, 2 steps are incomplete"
    run.state = run_pb2.RUN_STATE_FAILED
    assert shortfall(run) == ""


def test_a_run_that_stands_still() -> None:
    queued = run_pb2.Run(state=run_pb2.RUN_STATE_PENDING, waiting_for=run_pb2.WAITING_FOR_QUEUE)
    assert run_state(queued) == "pending (waits for its turn)"
    held = run_pb2.Run(state=run_pb2.RUN_STATE_RUNNING, waiting_for=APPROVAL, waiting_steps=["a", "b"])
    assert run_state(held) == "running (waits for approval for a, b)"
    waits = run_pb2.Run(state=run_pb2.RUN_STATE_RUNNING, waiting_for=run_pb2.WAITING_FOR_EVENT, waiting_steps=["a"])
    assert run_state(waits) == "running (waits for an event (step a))"
    waits.waiting_steps.append("b")
    assert run_state(waits) == "running (waits for an event (steps a, b))"
    paused = run_pb2.Run(state=run_pb2.RUN_STATE_RUNNING)
    paused.paused_at.FromDatetime(NOW)
    assert (run_state(paused), run_style(paused)) == ("running (paused)", "yellow")
    paused.state = run_pb2.RUN_STATE_CANCELLED
    assert run_state(paused) == "cancelled"


def test_a_run_whose_finally_steps_run() -> None:
    run = run_pb2.Run(state=run_pb2.RUN_STATE_RUNNING)
    run.ending.cause = run_pb2.RUN_ENDING_CAUSE_TIMED_OUT
    run.finally_part.state = run_pb2.RUN_STATE_TIMED_OUT
    assert run_state(run) == "running (timed out, finally steps run)"
    run.finally_part.ending.cause = run_pb2.RUN_ENDING_CAUSE_CANCELLED
    assert run_state(run) == "running (timed out, finally steps cancelled, ending)"
    run.state = run_pb2.RUN_STATE_TIMED_OUT
    assert run_state(run) == "timed out"
    step = run_pb2.Step(id="a", is_finally=True, state=run_pb2.STEP_STATE_SKIPPED)
    notes = {
        run_pb2.SKIP_REASON_ABORTED: "finally, another finally step failed",
        run_pb2.SKIP_REASON_CANCELLED: "finally, the run was cancelled",
        run_pb2.SKIP_REASON_TIMED_OUT: "finally, finally_timeout passed",
        run_pb2.SKIP_REASON_WHEN: "finally, its condition is false",
    }
    for reason, note in notes.items():
        step.skip_reason = reason
        assert step_note(step) == note


def test_instances_stand_below_their_step() -> None:
    steps = [run_pb2.Step(id="after", index=2, state=PENDING), *reversed(group(3, i1=FAILED))]
    rows = step_rows(steps, now=NOW)
    assert [row.label for row in rows] == [
        "build",
        "  build[0]",
        "  build[1]",
        "  build[2]",
        "after",
    ]
    assert rows[0].note == "3 instances: 1 failed, 2 succeeded"
    assert rows[1].note == 'item "0"'


def test_many_instances_become_a_count() -> None:
    rows = step_rows(group(100, i7=FAILED, i50=RUNNING, i60=PENDING), now=NOW)
    assert [row.label for row in rows] == ["build", "  build[7]", "  build[50]", "  … 98 more"]
    assert rows[0].note == "100 instances: 1 failed, 1 running, 97 succeeded, 1 pending"
    assert rows[-1].note == "97 succeeded, 1 pending"
    assert (rows[-1].state, rows[-1].exit_code, rows[-1].started) == ("", "", "")
    assert len(step_rows(group(100), now=NOW, every=True)) == 101


def test_when_everything_fails_the_first_ones_are_enough() -> None:
    rows = step_rows(group(100, **{f"i{number}": FAILED for number in range(100)}), now=NOW)
    assert len(rows) == 12
    assert rows[-1].label == "  … 90 more"


def test_a_long_item_is_cut() -> None:
    found = group(1)
    found[1].item_json = '"' + "x" * 100 + '"'
    (_, row) = step_rows(found, now=NOW)
    assert len(row.note) == 45
    assert row.note.endswith("…")


def test_an_item_that_was_left_out_is_told_by_its_size() -> None:
    found = group(1)
    found[1].item_json, found[1].item_bytes = "", 2_000_000
    (_, row) = step_rows(found, now=NOW)
    assert "item of 2,000,000 bytes" in row.note


def test_who_follows_plain_output_is_told_what_matters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tracker, view = Tracker(), PlainOutput(Session())
    waiting = run_pb2.Step(id="sign-off", state=RUNNING, waiting_for=APPROVAL, approvers=["alice"])
    kept = run_pb2.Step(id="old", state=FAILED, source_run="r1")
    change = run_pb2.WatchRunResponse(
        run=run_pb2.Run(
            workflow="nightly",
            number=3,
            steps=[backing_off(-1), waiting, kept, run_pb2.Step(id="x", state=RUNNING)],
        )
    )
    view.changed(tracker, change, tracker.take(change))
    assert capsys.readouterr().err.splitlines() == [
        "toban: step build: attempt 2 failed (exit code 7), retrying now",
        "toban: step sign-off running: waits for approval by alice",
        "hint: `toban runs approve nightly#3 sign-off` approves it",
    ]


def test_what_waits_for_locks_names_their_holders() -> None:
    users = [run_pb2.LockUser(run_id="i", workflow="backup", run_number=7, step="dump"), run_pb2.LockUser(run_id="i")]
    locks = [run_pb2.LockWait(lock="db", held_by=users), run_pb2.LockWait(lock="gpu")]
    run = run_pb2.Run(state=run_pb2.RUN_STATE_PENDING, waiting_for=run_pb2.WAITING_FOR_LOCK, waiting_for_locks=locks)
    assert run_state(run) == "pending (waits for lock db (held by backup#7 step dump, i), lock gpu)"
    found = step(state=RUNNING, waiting_for=run_pb2.WAITING_FOR_LOCK, waiting_for_locks=locks[1:])
    assert "waits for lock gpu" in step_note(found)
