from __future__ import annotations

import pytest

from doubles.daemon.fake_daemon import FakeDaemon, RunRecord
from toban.v1 import run_pb2

from .conftest import Cli, OnTerminal

RUNNING = run_pb2.STEP_STATE_RUNNING
APPROVAL = run_pb2.WAITING_FOR_APPROVAL


@pytest.fixture
def failed(daemon: FakeDaemon) -> RunRecord:
    daemon.add_workflow("nightly")
    record = daemon.add_run("nightly", steps=["fetch", "build"])
    daemon.finish(record, run_pb2.RUN_STATE_FAILED, "step build: exit code 2")
    return record


@pytest.fixture
def active(daemon: FakeDaemon) -> RunRecord:
    daemon.add_workflow("nightly")
    return daemon.add_run("nightly", steps=["fetch", "sign-off", "other"])


def test_retry(cli: Cli, failed: RunRecord, daemon: FakeDaemon) -> None:
    result = cli("runs", "retry", "nightly")
    new = list(daemon.runs.values())[-1].run
    assert result.code == 0
    assert result.out == f"started nightly#2 ({new.id}) as a retry of nightly#1\n"
    assert new.retry_of == failed.run.id


def test_what_a_retry_asks_for(cli: Cli, failed: RunRecord, daemon: FakeDaemon) -> None:
    arguments = ["--from", "fetch", "--from", "build", "--newest", "--request-id", "abc"]
    arguments += ["-p", "day=monday", "--skip", "lint", "--note", "known"]
    assert cli("runs", "retry", "nightly#1", *arguments, "-o", "name").code == 0
    asked = daemon.seen[-1]
    assert isinstance(asked, run_pb2.RetryRunRequest)
    assert list(asked.from_steps) == ["fetch", "build"]
    assert (asked.newest_version, asked.everything, asked.request_id) == (True, False, "abc")
    assert (dict(asked.params), list(asked.skip)) == ({"day": "monday"}, ["lint"])
    assert asked.skip_note == "known"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--skip", "lint"], "cannot use --skip without --note"),
        (["--note", "known"], "cannot use --note without --skip"),
        (["--all", "--skip", "lint", "--note", "known"], "cannot use --all with --skip"),
    ],
)
def test_options_of_a_retry_that_do_not_fit(cli: Cli, failed: RunRecord, arguments: list[str], message: str) -> None:
    result = cli("runs", "retry", "nightly#1", *arguments)
    assert result.code == 2
    assert message in result.err


def test_retry_and_wait(cli: Cli, failed: RunRecord, daemon: FakeDaemon) -> None:
    def work() -> None:
        daemon.finish(list(daemon.runs.values())[-1], run_pb2.RUN_STATE_SUCCEEDED)

    daemon.on_call["WatchRun"] = work
    result = cli("runs", "retry", "nightly#1", "--all", "--wait")
    assert result.code == 0
    assert result.out.startswith("nightly#2 succeeded after ")
    assert result.err.startswith("started nightly#2 (")


@pytest.mark.parametrize(
    ("state", "message", "hint"),
    [
        (run_pb2.RUN_STATE_RUNNING, "the run goes on", "toban runs cancel"),
        (run_pb2.RUN_STATE_SUCCEEDED, "all of it succeeded", "--all runs all steps again"),
    ],
)
def test_a_run_that_cannot_be_retried(
    cli: Cli, daemon: FakeDaemon, state: run_pb2.RunState.ValueType, message: str, hint: str
) -> None:
    daemon.add_workflow("nightly")
    daemon.add_run("nightly", state=state)
    result = cli("runs", "retry", "nightly")
    assert result.code == 6
    first, second = result.err.splitlines()
    assert first == f"toban: cannot retry run nightly: {message}"
    assert hint in second


@pytest.mark.parametrize("arguments", [["--all", "--from", "build"], ["--wait", "--follow"]], ids=["what", "how"])
def test_a_retry_that_contradicts_itself(cli: Cli, failed: RunRecord, daemon: FakeDaemon, arguments: list[str]) -> None:
    result = cli("runs", "retry", "nightly", *arguments)
    assert result.code == 2
    assert "choose one" in result.err
    assert daemon.calls["RetryRun"] == 0


def test_a_cancel_says_that_finally_steps_run(cli: Cli, active: RunRecord) -> None:
    active.run.finally_part.state = run_pb2.RUN_STATE_FAILED
    result = cli("runs", "cancel", "nightly")
    assert (result.code, result.out) == (0, f"cancelling nightly#1 ({active.run.id})\n")
    assert result.err == "hint: its finally steps run; `toban runs cancel nightly#1` again ends them too\n"


def test_pause_and_resume(cli: Cli, active: RunRecord, daemon: FakeDaemon) -> None:
    run = active.run
    assert cli("runs", "pause", "nightly").out == f"paused nightly#1 ({run.id})\n"
    assert run.HasField("paused_at")
    shown = cli("runs", "show", "nightly")
    assert "state:      running (paused)" in shown.out
    assert "`toban runs resume nightly#1` resumes it" in shown.err
    assert cli("runs", "resume", "nightly").out == f"resumed nightly#1 ({run.id})\n"
    assert not run.HasField("paused_at")
    daemon.finish(active, run_pb2.RUN_STATE_CANCELLED)
    again = cli("runs", "pause", "nightly")
    assert (again.code, again.err) == (6, "toban: cannot pause run nightly: the run has ended\n")


def test_approve_the_only_step_that_waits(cli: Cli, active: RunRecord, daemon: FakeDaemon) -> None:
    daemon.step(active, "sign-off", RUNNING, waiting_for=APPROVAL, approvers=["alice"])
    shown = cli("runs", "show", "nightly")
    assert "waits for approval by alice" in shown.out
    assert "`toban runs approve nightly#1 sign-off` approves sign-off" in shown.err
    result = cli("runs", "approve", "nightly", "--note", "fine")
    assert (result.code, result.out) == (0, "approved sign-off of nightly#1\n")
    asked = daemon.seen[-1]
    assert isinstance(asked, run_pb2.DecideApprovalRequest)
    assert (asked.decision, asked.note) == (run_pb2.APPROVAL_DECISION_APPROVED, "fine")


def test_reject(cli: Cli, active: RunRecord, daemon: FakeDaemon) -> None:
    daemon.step(active, "sign-off", RUNNING, waiting_for=APPROVAL)
    daemon.step(active, "other", RUNNING, waiting_for=APPROVAL)
    unclear = cli("runs", "approve", "nightly")
    assert unclear.code == 2
    assert unclear.err.splitlines() == [
        "toban: cannot approve a step of nightly#1: 2 steps wait for approval",
        "hint: choose one: sign-off, other",
    ]
    result = cli("runs", "approve", "nightly", "other", "--reject")
    assert result.out == "rejected other of nightly#1\n"
    assert active.run.steps[2].state == run_pb2.STEP_STATE_FAILED
    assert cli("runs", "approve", "nightly", "-o", "name").out == f"{active.run.id}\n"


def test_nothing_to_approve(cli: Cli, active: RunRecord) -> None:
    result = cli("runs", "approve", "nightly")
    assert result.code == 6
    assert "no step waits for approval" in result.err
    named = cli("runs", "approve", "nightly", "fetch")
    assert named.code == 6
    assert named.err == "toban: cannot approve fetch of nightly: fetch waits for nobody\n"


def test_delete(cli: Cli, failed: RunRecord, daemon: FakeDaemon) -> None:
    other = daemon.add_run("nightly", state=run_pb2.RUN_STATE_CANCELLED)
    result = cli("runs", "delete", "nightly#1", other.run.id)
    assert result.code == 0
    assert result.out == "deleted nightly#1\ndeleted nightly#2\n"
    assert daemon.runs == {}


def test_a_dry_run_names_a_run_as_the_command_does(cli: Cli, failed: RunRecord) -> None:
    named = cli("runs", "retry", "nightly", "--dry-run")
    assert (named.code, named.err) == (0, "would retry 1 run\n")
    assert named.out.splitlines()[1].startswith("nightly#1 ")
    deleted = cli("runs", "delete", "nightly", "--dry-run")
    assert (deleted.code, deleted.out) == (2, "")
    assert "the name alone is ambiguous" in deleted.err


def test_of_several_runs_those_that_can_be_are_deleted(cli: Cli, failed: RunRecord, daemon: FakeDaemon) -> None:
    active = daemon.add_run("nightly")
    last = daemon.add_run("nightly", state=run_pb2.RUN_STATE_CANCELLED)
    ambiguous = cli("runs", "delete", "nightly#1", "nightly")
    assert (ambiguous.code, ambiguous.out, len(daemon.runs)) == (2, "", 3)
    result = cli("runs", "delete", "nightly#9", "nightly#2", "nightly#1", "-o", "name")
    assert (result.code, result.out) == (6, f"{failed.run.id}\n")
    assert result.err.splitlines() == [
        "toban: cannot find run nightly#9: no such run",
        "hint: `toban runs list --workflow nightly` lists its runs",
        "toban: cannot delete run nightly#2: the run goes on",
        "hint: `toban runs cancel nightly#2 --wait` cancels it first",
        "delete: 1 of 3 runs done, 2 failed",
    ]
    quiet = cli("-q", "runs", "delete", "nightly#2", "nightly#3", "-o", "json")
    assert [(each["id"], each["outcome"]) for each in quiet.data] == [(active.run.id, "failed"), (last.run.id, "done")]
    assert [run.run.id for run in daemon.runs.values()] == [active.run.id]
    gone = cli("runs", "delete", "nightly#1", "nightly#3")
    assert (gone.code, gone.out, gone.err.splitlines()[-1]) == (6, "", "delete: 0 of 2 runs done, 2 failed")


def test_a_name_alone_is_not_enough_to_delete(cli: Cli, failed: RunRecord, daemon: FakeDaemon) -> None:
    result = cli("runs", "delete", "nightly")
    assert result.code == 2
    assert "nightly#number" in result.err
    assert len(daemon.runs) == 1


def test_an_active_run_is_not_deleted(cli: Cli, active: RunRecord) -> None:
    result = cli("runs", "delete", "nightly#1", "-o", "json")
    assert result.code == 6
    assert result.err.splitlines()[-1] == ("hint: `toban runs cancel nightly#1 --wait` cancels it first")


def test_a_pinned_run_is_kept(cli: Cli, failed: RunRecord) -> None:
    assert cli("runs", "pin", "nightly", "--note", "n").code == 2
    assert "PINNED" not in cli("runs", "list").out
    result = cli("runs", "pin", "nightly#1", "--note", "evidence")
    assert (result.code, result.out) == (0, f"pinned nightly#1 ({failed.run.id})\n")
    assert failed.run.pin.note == "evidence"
    assert "PINNED" in cli("runs", "list").out
    assert "by uid:1000: evidence" in cli("runs", "show", "nightly#1").out
    refused = cli("runs", "delete", "nightly#1")
    assert (refused.code, refused.err.splitlines()[-1]) == (6, "hint: `toban runs unpin nightly#1` unpins it")
    assert cli("runs", "unpin", "nightly#1").out == f"unpinned nightly#1 ({failed.run.id})\n"
    assert cli("runs", "delete", "nightly#1").code == 0


@pytest.fixture
def many(daemon: FakeDaemon) -> list[RunRecord]:
    daemon.add_workflow("nightly")
    daemon.add_workflow("other")
    states = [
        run_pb2.RUN_STATE_FAILED,
        run_pb2.RUN_STATE_TIMED_OUT,
        run_pb2.RUN_STATE_RUNNING,
        run_pb2.RUN_STATE_PENDING,
    ]
    made = [daemon.add_run("nightly", state=state) for state in states]
    made[0].run.created_at.FromJsonString("2026-02-01T00:00:00Z")
    return [*made, daemon.add_run("other")]


def test_many_runs_are_cancelled(cli: Cli, many: list[RunRecord]) -> None:
    listed = cli("runs", "cancel", "--workflow", "nightly", "--dry-run")
    assert listed.code == 0
    assert listed.err == "would cancel 2 runs\n"
    assert [line.split()[0] for line in listed.out.splitlines()] == ["RUN", "nightly#4", "nightly#3"]
    refused = cli("runs", "cancel", "-w", "nightly")
    assert refused.code == 2
    assert refused.err == (
        "toban: cannot cancel 2 runs: there is no terminal to ask\n"
        "hint: --dry-run lists them, --yes does it without a question\n"
    )
    assert many[2].run.state == run_pb2.RUN_STATE_RUNNING
    done = cli("runs", "cancel", "-w", "nightly", "--yes", "--reason", "enough")
    assert (done.code, done.out) == (0, "cancelling nightly#4\ncancelling nightly#3\n")
    assert many[2].run.error_message == "enough"
    assert many[4].run.state == run_pb2.RUN_STATE_RUNNING
    again = cli("runs", "cancel", "-w", "nightly", "--yes")
    assert (again.code, again.err) == (0, "no runs to cancel\n")


def test_some_of_many_runs_fail(cli: Cli, many: list[RunRecord]) -> None:
    result = cli("runs", "cancel", "nightly#1", "nightly#3")
    assert (result.code, result.out) == (6, "cancelling nightly#3\n")
    assert result.err.splitlines() == [
        "toban: cannot cancel run nightly#1: the run has ended",
        "cancel: 1 of 2 runs done, 1 failed",
    ]
    outcomes = cli("runs", "cancel", "nightly#1", "nightly#4", "-o", "json")
    assert outcomes.code == 6
    assert [(each["run"], each["outcome"]) for each in outcomes.data] == [
        ("nightly#1", "failed"),
        ("nightly#4", "done"),
    ]
    assert outcomes.data[0]["error"] == "cannot cancel run nightly#1: the run has ended"


def test_many_failed_runs_are_retried_once(cli: Cli, many: list[RunRecord], daemon: FakeDaemon) -> None:
    listed = cli("retry", "--failed", "-w", "nightly", "--dry-run", "-o", "name").out.split()
    assert listed == [many[0].run.id, many[1].run.id]
    assert cli("retry", "--failed", "--since", "1h", "--dry-run", "-o", "name").out.split() == [many[1].run.id]
    for active in many[2:]:
        daemon.finish(active, run_pb2.RUN_STATE_SUCCEEDED)
    result = cli("retry", "-s", "failed", "-w", "nightly", "-y", "--newest", "-p", "day=monday")
    assert (result.code, result.out) == (0, "started nightly#5 as a retry of nightly#1\n")
    asked = next(each for each in reversed(daemon.seen) if isinstance(each, run_pb2.RetryRunRequest))
    assert (asked.newest_version, dict(asked.params)) == (True, {"day": "monday"})
    assert cli("retry", "-s", "failed", "-w", "nightly", "-y").err == "no runs to retry\n"
    assert cli("retry", "--failed", "--wait").code == 2


def test_many_runs_are_deleted_paused_resumed_and_pinned(cli: Cli, many: list[RunRecord]) -> None:
    assert cli("runs", "pin", "-w", "nightly", "--until", "2026-03-01T00:00:00Z", "-y").out == "pinned nightly#1\n"
    assert cli("runs", "pause", "--workflow", "other", "-y").out == "paused other#1\n"
    assert cli("runs", "pause", "--workflow", "other", "-y").err == "no runs to pause\n"
    assert cli("runs", "resume", "--workflow", "other", "-y").out == "resumed other#1\n"
    assert cli("runs", "delete", "-w", "nightly", "-s", "timed-out", "-y").out == "deleted nightly#2\n"
    assert cli("runs", "delete", "nightly#1", "--dry-run").err == "would delete 1 run\n"


@pytest.mark.parametrize("verb", ["cancel", "retry", "delete", "pause", "resume", "pin"])
def test_which_runs_must_be_said(cli: Cli, many: list[RunRecord], verb: str) -> None:
    nothing = cli("runs", verb)
    assert nothing.code == 2
    assert nothing.err.startswith(f"toban: cannot {verb} runs: give RUN or options that select runs\n")
    both = cli("runs", verb, "nightly#1", "--failed")
    assert (both.code, both.out) == (2, "")
    assert f"cannot {verb} runs: give either RUN or options" in both.err
    unknown = cli("runs", verb, "--workflow", "nigtly", "--yes")
    assert unknown.code == 5
    assert "did you mean nightly?" in unknown.err


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 130), ("\n", 130)])
def test_many_runs_need_a_confirmation(
    on_terminal: OnTerminal, daemon: FakeDaemon, many: list[RunRecord], answer: str, code: int
) -> None:
    terminal = on_terminal("--server", daemon.address, "cancel", "--workflow", "nightly")
    terminal.wait_for("cancel 2 runs? [y/N] ")
    assert "nightly#3 running" in terminal.text
    terminal.press(answer)
    assert terminal.end() == code
    assert (many[2].run.state == run_pb2.RUN_STATE_CANCELLED) is (code == 0)
