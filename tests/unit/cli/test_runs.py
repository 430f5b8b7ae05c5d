from __future__ import annotations

import pytest

from doubles.daemon.fake_daemon import FakeDaemon, RunRecord
from toban.cli.wait.run_views import ProgressLines
from toban.v1 import run_pb2

from .conftest import Cli


@pytest.fixture
def failed(daemon: FakeDaemon) -> RunRecord:
    daemon.add_workflow("nightly")
    daemon.add_run("nightly", state=run_pb2.RUN_STATE_SUCCEEDED)
    record = daemon.add_run("nightly", steps=["fetch", "build", "publish"])
    run = record.run
    run.created_at.FromJsonString("2026-02-01T00:15:30Z")
    run.started_at.FromJsonString("2026-02-01T00:15:30Z")
    daemon.step(record, "fetch", run_pb2.STEP_STATE_RUNNING)
    daemon.step(record, "fetch", run_pb2.STEP_STATE_SUCCEEDED, exit_code=0)
    daemon.step(record, "build", run_pb2.STEP_STATE_RUNNING, attempts=2)
    daemon.write(record, "build", *(b"line %d\n" % number for number in range(30)))
    daemon.write(record, "build", b"\x1b[31mbad\x1b[0m\x07 end", stream=run_pb2.LOG_STREAM_STDERR)
    daemon.step(record, "build", run_pb2.STEP_STATE_FAILED, exit_code=2, reason="exit code 2")
    daemon.step(record, "publish", run_pb2.STEP_STATE_SKIPPED, skip_reason=run_pb2.SKIP_REASON_UPSTREAM)
    daemon.finish(record, run_pb2.RUN_STATE_FAILED, "step build: exit code 2")
    for state in (run_pb2.STEP_STATE_SUCCEEDED, run_pb2.STEP_STATE_FAILED, run_pb2.STEP_STATE_SKIPPED):
        run.summary.counts.add(state=state, count=1)
    run.finished_at.FromJsonString("2026-02-01T00:16:32Z")
    return record


def test_show_draws_the_steps_and_what_failed(cli: Cli, failed: RunRecord) -> None:
    result = cli("runs", "show", "nightly")
    assert result.code == 0
    lines = result.out.splitlines()
    assert "run:        nightly#2 (version 1)" in lines
    assert "state:      failed" in lines
    assert "error:      step build: exit code 2" in lines
    assert "started:    2026-02-01 09:15:30 JST" in lines
    assert "took:       1m 02s" in lines
    assert "steps:      1 failed, 1 succeeded, 1 skipped" in lines
    rows = {line.split()[0]: line for line in lines if line}
    assert rows["fetch"].split()[1:3] == ["succeeded", "0"]
    assert rows["build"].split()[1:3] == ["failed", "2"]
    assert rows["build"].endswith("exit code 2, 2 attempts")
    assert rows["publish"].split()[1:5] == ["skipped", "-", "-", "-"]
    assert rows["publish"].endswith("a step before it did not succeed")
    tail = lines[lines.index("Last lines of build (attempt 2):") + 1 :]
    assert tail == [*(f"  line {number}" for number in range(21, 30)), "  bad\\x07 end"]
    assert "`toban logs nightly#2 --step build`" in result.err


@pytest.mark.parametrize("name", ["nightly", "nightly#2", "ID", "id"])
def test_a_run_has_several_names(cli: Cli, failed: RunRecord, name: str) -> None:
    if name.lower() == "id":
        name = failed.run.id.upper() if name == "ID" else failed.run.id
    assert cli("runs", "show", name, "-o", "name").out == f"{failed.run.id}\n"


def test_an_older_run_by_its_number(cli: Cli, failed: RunRecord) -> None:
    assert cli("runs", "show", "nightly#1", "-o", "json").data["number"] == 1


def test_a_run_by_a_part_of_its_id(cli: Cli, failed: RunRecord, daemon: FakeDaemon) -> None:
    run_id = failed.run.id
    for part in (run_id[:13], run_id[-6:], run_id[-6:].upper()):
        assert cli("show", part, "-o", "name").out == f"{run_id}\n"
    other = daemon.add_run("nightly")
    del daemon.runs[other.run.id]
    other.run.id = f"{run_id[:-8]}{'0' * 8}"
    daemon.runs[other.run.id] = other
    result = cli("runs", "delete", run_id[:20])
    assert result.code == 2
    assert result.err.startswith(f"toban: cannot choose a run: 2 ids begin or end with {run_id[:20]}\n")
    assert f"  {run_id} nightly#2\n" in result.err
    assert f"  {other.run.id} nightly#3\n" in result.err
    # A name of a workflow comes first.
    daemon.add_workflow(run_id[:8])
    assert "has no run" in cli("show", run_id[:8]).err
    assert "the name alone is ambiguous" in cli("runs", "delete", run_id[:8]).err
    for unknown in ("0000ffff", "nightly#9", "nightly#99999999999999999999"):
        assert cli("show", unknown).code == 5


def test_list_by_time(cli: Cli, failed: RunRecord) -> None:
    def names(*options: str) -> list[int]:
        return [run["number"] for run in cli("runs", "list", *options, "-o", "json").data]

    assert names("--until", "2026-02-01T09:15:30+09:00") == []
    assert names("--until", "2026-02-01T09:15:31+09:00") == names("--failed") == [2]
    assert names("--since", "1h") == [1]
    assert names("--since", "2026-02-01T00:15:30Z") == [2, 1]
    assert "--since: expected a duration" in cli("runs", "list", "--since", "soon").err


def test_list_of_an_unknown_workflow(cli: Cli, failed: RunRecord, daemon: FakeDaemon) -> None:
    result = cli("runs", "list", "--workflow", "nigtly")
    assert (result.code, result.out) == (5, "")
    assert result.err == ("toban: cannot list runs of nigtly: no workflow nigtly\nhint: did you mean nightly?\n")
    daemon.add_job("fetch")
    for known in ("nightly", "fetch"):
        assert cli("runs", "list", "--workflow", known, "--state", "cancelled").err == "no runs\n"
    # Its runs stay when a workflow is deleted.
    del daemon.workflows["nightly"]
    assert cli("runs", "list", "--workflow", "nightly", "--state", "cancelled").code == 0


def test_ps_lists_active_runs_with_their_steps(cli: Cli, failed: RunRecord, daemon: FakeDaemon) -> None:
    assert cli("ps").err == "no active runs\n"
    daemon.add_run("nightly").run.current_step = "build"
    header, row = cli("ps").out.splitlines()
    assert header.split() == ["RUN", "STATE", "STEPS", "STEP", "CREATED", "(JST)", "TOOK", "ID"]
    assert row.split()[:4] == ["nightly#3", "running", "0/1", "build"]


def test_show_for_programs(cli: Cli, failed: RunRecord, daemon: FakeDaemon) -> None:
    result = cli("runs", "show", "nightly", "-o", "json")
    assert result.data["state"] == "failed"
    assert result.data["created_at"] == "2026-02-01T00:15:30Z"
    assert [step["id"] for step in result.data["steps"]] == ["fetch", "build", "publish"]
    assert list(result.data)[:4] == ["id", "workflow", "version", "number"]
    assert daemon.calls["StreamLogs"] == 0


def test_list(cli: Cli, failed: RunRecord) -> None:
    result = cli("runs", "list")
    assert result.code == 0
    header, first, second = result.out.splitlines()
    assert header.split() == ["RUN", "STATE", "STEPS", "CREATED", "(JST)", "TOOK", "ID"]
    assert first.split() == [
        "nightly#2",
        "failed",
        "3/3",
        "2026-02-01",
        "09:15:30",
        "1m",
        "02s",
        failed.run.id,
    ]
    assert second.startswith("nightly#1")
    assert cli("runs", "list", "--state", "failed", "-o", "name").out == f"{failed.run.id}\n"
    assert len(cli("runs", "list", "-w", "nightly", "-o", "json").data) == 2
    limited = cli("runs", "list", "--limit", "1", "-o", "name")
    assert limited.out == f"{failed.run.id}\n"
    assert limited.err.startswith("more available")
    assert cli("runs", "list", "--state", "timed-out").err == "no runs\n"


def test_cancel(cli: Cli, failed: RunRecord, daemon: FakeDaemon) -> None:
    record = daemon.add_run("nightly")
    result = cli("runs", "cancel", "nightly", "--reason", "enough")
    assert result.out == f"cancelling nightly#3 ({record.run.id})\n"
    assert record.run.error_message == "enough"
    again = cli("runs", "cancel", "nightly")
    assert again.code == 6
    assert again.err == "toban: cannot cancel run nightly: the run has ended\n"


def test_cancel_and_wait(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    daemon.add_run("nightly").run.finally_part.state = run_pb2.RUN_STATE_CANCELLED
    result = cli("runs", "cancel", "nightly", "--wait")
    assert (result.code, result.out) == (0, "nightly#1 cancelled\n")
    assert "finally" not in result.err


def test_watch(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    record = daemon.add_run("nightly", steps=["a", "b"])
    child = daemon.add_run("cleanup")

    def work() -> None:
        daemon.on_call.clear()
        daemon.step(record, "b", run_pb2.STEP_STATE_RUNNING, child_run=child.run.id)
        daemon.step(record, "a", run_pb2.STEP_STATE_FAILED, reason="exit code 1", progress_current=5, progress_total=20)
        daemon.finish(record, run_pb2.RUN_STATE_FAILED)

    daemon.on_call["WatchRun"] = work
    result = cli("runs", "watch", "nightly")
    assert result.code == 1
    told = [line.split("  ", 1)[-1] for line in result.out.splitlines()]
    assert told[:3] == ["step a failed: exit code 1", "step b running: child run cleanup#1", "run failed"]
    assert told[3].startswith("nightly#1 failed after ")
    assert "5/20 (25%); exit code 1" in cli("runs", "show", "nightly").out
    objects = cli("runs", "watch", "nightly", "-o", "json")
    assert objects.code == 1
    assert objects.objects[0]["run"]["state"] == "failed"
    assert cli("runs", "watch", "nightly", "-o", "name").out == f"{record.run.id}\n"


def test_some_reports_of_progress_are_worth_a_line() -> None:
    now = 0.0
    lines = ProgressLines(lambda: now)

    def of(current: float, total: float = 0, *, attempt: int = 1) -> list[str]:
        step = run_pb2.Step(id="a", attempts=attempt, progress_current=current, progress_total=total)
        return lines.of([step])

    assert lines.of([run_pb2.Step(id="a")]) == []
    assert (of(1), of(2)) == (["a: 1"], [])
    now = 61.0
    assert (of(3), of(4)) == (["a: 3"], [])
    assert (of(1, 20, attempt=2), of(2, 20, attempt=2)) == (["a: 1/20 (5%)"], ["a: 2/20 (10%)"])
    assert (of(1, 20, attempt=2), of(3, 20, attempt=2)) == ([], [])
    assert of(1, 20, attempt=3) == ["a: 1/20 (5%)"]
    shown = [line for number in range(1, 4001) for line in of(number, 4000, attempt=4)]
    assert shown == [f"a: {400 * tenth or 1}/4000 ({10 * tenth}%)" for tenth in range(11)]


def test_processes(cli: Cli, failed: RunRecord) -> None:
    failed.processes.extend(
        [
            run_pb2.ProcessExecution(
                id="p2",
                step="build",
                attempt=2,
                state=run_pb2.PROCESS_STATE_FAILED,
                signal=9,
                pid=77,
                error_message="killed",
                stdout_log_bytes=1536,
            ),
            run_pb2.ProcessExecution(
                id="p1", step="build", attempt=1, state=run_pb2.PROCESS_STATE_COMPLETED, exit_code=0
            ),
            run_pb2.ProcessExecution(id="p0", step="test", attempt=1, state=run_pb2.PROCESS_STATE_RUNNING, pid=78),
        ]
    )
    result = cli("runs", "processes", "nightly")
    first, second, running = result.out.splitlines()[1:]
    assert first.split("  ")[0] == "build"
    for word in ("failed", "signal 9", "77", "1.5 KiB", "killed", "p2"):
        assert word in first
    assert ("completed" in second, "0 B" in second) == (True, True)
    assert "0 B" not in running, "output is counted when the process has ended"
    assert cli("runs", "processes", "nightly", "-o", "name").out == "p2\np1\np0\n"
    assert cli("runs", "processes", "nightly", "-o", "json").data[0]["signal"] == 9
    assert cli("runs", "processes", "nightly#1").err == "no processes\n"


def test_processes_of_all_runs(cli: Cli, failed: RunRecord, daemon: FakeDaemon) -> None:
    failed.processes.append(
        run_pb2.ProcessExecution(
            id="p1",
            workflow="nightly",
            run_id=failed.run.id,
            step="build",
            attempt=1,
            command="make it",
            state=run_pb2.PROCESS_STATE_FAILED,
            exit_code=2,
            stdout="".join(f"line {number}\n" for number in range(30)),
            stderr="bad\x07 end",
        )
    )
    arguments = ["-w", "nightly", "-j", "build", "--run", "nightly#2", "-s", "failed", "-s", "timed-out"]
    result = cli("processes", "list", *arguments, "--since", "2026-02-01T09:00Z", "--until", "2026-02-02T09:00Z")
    assert result.out.splitlines()[1].split()[:4] == ["nightly#2", "build", "1", "failed"]
    asked = next(each for each in reversed(daemon.seen) if isinstance(each, run_pb2.ListProcessExecutionsRequest))
    assert (asked.workflow, asked.job, asked.run_id) == ("nightly", "build", failed.run.id)
    assert list(asked.states) == [run_pb2.PROCESS_STATE_FAILED, run_pb2.PROCESS_STATE_TIMED_OUT]
    times = (asked.launched_after.ToJsonString(), asked.launched_before.ToJsonString())
    assert times == ("2026-02-01T09:00:00Z", "2026-02-02T09:00:00Z")
    assert cli("processes", "list", "-s", "lost").err == "no processes\n"
    assert cli("processes", "list", "--since", "soon").code == 2
    unknown = cli("processes", "list", "-w", "nigthly")
    assert (unknown.code, "did you mean nightly?" in unknown.err) == (5, True)

    shown = cli("processes", "show", "p1")
    lines = shown.out.splitlines()
    assert "run:     nightly#2" in lines
    assert "command: make it" in lines
    output = lines[lines.index("Last lines of standard output:") :]
    assert output[1:22] == [*(f"  line {number}" for number in range(10, 30)), ""]
    assert output[22:] == ["All of standard error:", "  bad\\x07 end"]
    assert "`toban logs --process p1`" in shown.err
    assert cli("processes", "show", "p1", "-o", "json").data["stderr"] == "bad\x07 end"
    assert cli("processes", "show", "p2").code == 5
