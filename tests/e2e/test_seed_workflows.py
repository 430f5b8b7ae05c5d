"""The workflows of the requirements, with shell steps instead of agents: their states, values, files and order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from helpers.daemon import Daemon, run_state, running_daemon, step_states, steps_of
from helpers.wait import wait_until
from toban.definition import parse
from toban.definition.schema.unsupported_fields import UNSUPPORTED_STEP_FIELDS
from toban.v1 import event_pb2, job_pb2, run_pb2, schedule_pb2, workflow_pb2

IMPLEMENT_REVIEW_FIX = """
name: implement-review-fix
version: "1"
description: Implements something, tests and reviews it side by side, and mends what was found
timeout: "1h"
concurrency: 2
steps:
  implement:
    description: Fails the first time
    run: |
      test -e tried || { touch tried; exit 1; }
      mkdir -p src
      echo 'export const feature = 1' > src/feature.ts
    timeout: "15m"
    max_retries: 1
    on_failure: retry
    retry: {delay: 10ms}
    outputs:
      - name: implementation
        path: "src/feature.ts"
        type: code

  test:
    depends_on: [implement]
    run: |
      ../meet test review
      cat implementation > tested.txt
      echo 'one test failed' > test-results.txt
      exit {{ params.test_exit }}
    inputs:
      - from: implement
        artifact: implementation
    timeout: "10m"
    on_failure: continue
    outputs:
      - name: test-report
        path: "test-results.txt"
        type: test-report
        optional: true

  review:
    depends_on: [implement]
    run: |
      ../meet review test
      grep -q feature implementation
      echo 'name it better' > review.md
    inputs:
      - from: implement
        artifact: implementation
    timeout: "10m"
    on_failure: abort
    outputs:
      - name: review-comments
        path: "review.md"
        type: review

  fix:
    depends_on: [review, test]
    run: |
      cat review-comments test-report
      echo 'export const betterNamed = 1' > src/feature.ts
    inputs:
      - from: review
        artifact: review-comments
      - from: test
        artifact: test-report
    timeout: "15m"
    max_retries: 2
    on_failure: retry
    outputs:
      - name: fixed-code
        path: "src/feature.ts"
        type: code
params:
  test_exit: {type: integer, default: 0}
defaults:
  workspace: repo
"""

MULTI_REPO = """
name: multi-repo-migration
version: "1"
description: Brings the same change to several repositories
timeout: "2h"
concurrency: 3
steps:
  plan:
    workspace: main
    run: echo 'rename a to b' > migration-plan.md
    timeout: "10m"
    outputs:
      - name: plan
        path: "migration-plan.md"
        type: review

  apply-repo-a:
    workspace: "./repo-a"
    depends_on: [plan]
    run: |
      test -e tried || { touch tried; exit 75; }
      cp plan applied
    inputs:
      - from: plan
        artifact: plan
    timeout: "20m"
    max_retries: 1
    on_failure: retry
    retry: {delay: 10ms}

  apply-repo-b:
    workspace: "./repo-b"
    depends_on: [plan]
    run: |
      cat plan
      exit 1
    inputs:
      - from: plan
        artifact: plan
    timeout: "20m"
    max_retries: 1
    on_failure: continue
    retry: {delay: 10ms}

  verify:
    depends_on: [apply-repo-a, apply-repo-b]
    run: echo {{ steps["apply-repo-a"].status }} {{ steps["apply-repo-b"].status }}
    timeout: "10m"
"""

IMPLEMENT_FROM_TODO = """
name: implement-from-todo
version: "1"
description: Does what todo.md says until all of it is done
timeout: "2h"
params: {most: {type: integer, default: 20}}
steps:
  implement-all:
    run: |
      mkdir -p src
      line=$(grep -n -m1 -- '- \\[ \\]' todo.md | cut -d: -f1)
      echo "iteration "{{ iteration }}" after: "{{ check.stdout }} >> src/done.txt
      sed -i "${line}s/\\[ \\]/[x]/" todo.md
    workspace: work
    timeout: "10m"
    max_retries: 1
    on_failure: retry
    completion_check:
      run: |
        left=$(grep -c -- '- \\[ \\]' todo.md)
        test "$left" -eq 0 || { echo "$left left"; exit 1; }
      timeout: "2m"
    max_iterations: MOST
    on_iterations_exhausted: abort
    outputs:
      - name: completed-code
        path: "src/"
        type: code
      - name: final-todo
        path: "todo.md"
        type: review

  verify:
    depends_on: [implement-all]
    workspace: check
    run: cat completed-code/done.txt
    inputs:
      - from: implement-all
        artifact: completed-code
    timeout: "10m"
    on_failure: abort
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("seed") / "state") as running:
        yield running


def notes(daemon: Daemon, run: run_pb2.Run) -> tuple[Path, dict[str, Any]]:
    context = daemon.state_dir / "runs" / run.id / "context"
    return context, json.loads((context / "_workflow.json").read_text())


def meta(context: Path, step: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((context / step / "_meta.json").read_text())
    return found


def launched(daemon: Daemon, run: run_pb2.Run) -> list[str]:
    return [execution.step for execution in daemon.processes(run.id)]


def meeting(place: Path) -> None:
    """A program with which two steps wait for each other: it ends only if both run at the same time."""
    program = place / "meet"
    program.write_text(
        "#!/bin/sh\n"
        'dir=$(dirname "$0"); : > "$dir/$1.here"; n=0\n'
        'while [ ! -e "$dir/$2.here" ]; do n=$((n + 1)); [ $n -lt 3000 ] || exit 64; sleep 0.01; done\n'
    )
    program.chmod(0o755)


@pytest.mark.parametrize(("test_exit", "test_state"), [(0, "SUCCEEDED"), (1, "FAILED")])
def test_implement_review_fix(daemon: Daemon, tmp_path: Path, test_exit: int, test_state: str) -> None:
    (tmp_path / "repo").mkdir()
    meeting(tmp_path)
    source = IMPLEMENT_REVIEW_FIX.replace("name: implement-review-fix", f"name: implement-review-fix-{test_exit}", 1)
    daemon.apply(source, base_dir=str(tmp_path))
    run = daemon.run(f"implement-review-fix-{test_exit}", test_exit=test_exit)
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert run.failed_steps == test_exit
    assert step_states(run) == {
        "implement": "SUCCEEDED",
        "test": test_state,
        "review": "SUCCEEDED",
        "fix": "SUCCEEDED",
    }
    order = launched(daemon, run)
    assert order[:2] == ["implement", "implement"], "it was tried again"
    assert set(order[2:4]) == {"test", "review"}, "they ran at the same time, or meet would have failed"
    assert order[4] == "fix"

    context, workflow = notes(daemon, run)
    assert workflow.keys() == {
        "runId",
        "name",
        "version",
        "status",
        "startedAt",
        "completedAt",
        "steps",
    }
    assert (workflow["runId"], workflow["status"]) == (run.id, "SUCCEEDED")
    assert workflow["steps"]["test"]["status"] == test_state
    implement = context / "implement" / "implementation" / "src" / "feature.ts"
    assert implement.read_text() == "export const feature = 1\n", "as it was then, not as it is now"
    fixed = context / "fix" / "fixed-code" / "src" / "feature.ts"
    assert "betterNamed" in fixed.read_text()
    told = meta(context, "implement")
    assert told["attempts"] == 2
    assert told["artifacts"] == [
        {"name": "implementation", "path": "implementation/src/feature.ts", "type": "code", "state": "COMPLETED"}
    ]
    assert told["wallTimeMs"] == told["completedAt"] - told["startedAt"]
    assert (told["stepId"], told["status"], told["workerKind"]) == (
        "implement",
        "SUCCEEDED",
        "shell",
    )
    read = daemon.log_of(run.id, "fix")[run_pb2.LOG_STREAM_STDOUT]
    # The report of a test that failed is handed on too.
    assert read == b"name it better\none test failed\n"


def test_multi_repo_migration(daemon: Daemon, tmp_path: Path) -> None:
    for name in ("main", "repo-a", "repo-b"):
        (tmp_path / name).mkdir()
    daemon.apply(MULTI_REPO, base_dir=str(tmp_path))
    run = daemon.run("multi-repo-migration")
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert (run.failed_steps, step_states(run)) == (
        1,
        {
            "plan": "SUCCEEDED",
            "apply-repo-a": "SUCCEEDED",
            "apply-repo-b": "FAILED",
            "verify": "SUCCEEDED",
        },
    )
    steps = steps_of(run)
    assert steps["apply-repo-a"].attempts == steps["apply-repo-b"].attempts == 2
    order = launched(daemon, run)
    assert (order[0], order[-1]) == ("plan", "verify")
    assert (tmp_path / "repo-a" / "applied").read_text() == "rename a to b\n"
    printed = daemon.log_of(run.id, "verify")[run_pb2.LOG_STREAM_STDOUT]
    assert printed == b"SUCCEEDED FAILED\n"
    context, _ = notes(daemon, run)
    assert (context / "plan" / "plan" / "migration-plan.md").exists()
    assert meta(context, "apply-repo-b")["status"] == "FAILED"


@pytest.mark.parametrize("most", [20, 2])
def test_implement_from_todo(daemon: Daemon, tmp_path: Path, most: int) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "check").mkdir()
    todo = tmp_path / "work" / "todo.md"
    todo.write_text("- [ ] one\n- [ ] two\n- [ ] three\n")
    name = f"implement-from-todo-{most}"
    source = IMPLEMENT_FROM_TODO.replace("name: implement-from-todo", f"name: {name}", 1)
    daemon.apply(source.replace("MOST", str(most)), base_dir=str(tmp_path))
    run = daemon.run(name)
    enough = most > 3
    assert run_state(run) == ("SUCCEEDED" if enough else "FAILED"), run.error_message
    assert step_states(run) == {
        "implement-all": "SUCCEEDED" if enough else "FAILED",
        "verify": "SUCCEEDED" if enough else "SKIPPED(aborted)",
    }
    rounds = 3 if enough else 2
    expected = ["implement-all", "implement-all.check"] * rounds + ["verify"] * enough
    assert launched(daemon, run) == expected
    step = steps_of(run)["implement-all"]
    assert (step.attempts, step.iteration, step.checks) == (rounds, rounds, rounds)

    context, _ = notes(daemon, run)
    told = meta(context, "implement-all")
    assert (told["iterations"], told["maxIterations"]) == (rounds, most)
    if not enough:
        assert told["status"] == "FAILED"
        assert "not complete after 2 iterations" in run.error_message
        return
    assert todo.read_text().count("[x]") == 3
    done = context / "implement-all" / "completed-code" / "src" / "done.txt"
    assert done.read_text().splitlines() == [
        "iteration 1 after: ",
        "iteration 2 after: 2 left",
        "iteration 3 after: 1 left",
    ]
    first = context / "implement-all" / "iteration-1" / "final-todo" / "todo.md"
    assert first.read_text().count("[x]") == 1, "what each iteration left is kept"
    printed = daemon.log_of(run.id, "verify")[run_pb2.LOG_STREAM_STDOUT]
    assert printed.decode() == done.read_text()


# Rows of a table of steps, in any order.

TABLE_OF_STEPS = """
{
  "id": "nightly-batch",
  "name": "夜間バッチ",
  "description": "データを集計して知らせる",
  "schedule": "0 3 * * *",
  "is_enabled": false,
  "steps": [
    {"step_order": 4, "name": "never", "job_type": "shell", "target": "echo", "args": ["never"], "kwargs": {},
     "on_failure": "stop", "timeout": 300},
    {"step_order": 2, "name": "count", "job_type": "python", "target": "batch.tools.count", "args": [],
     "kwargs": {"upto": 3}, "on_failure": "continue", "timeout": 300},
    {"step_order": 1, "name": "挨拶", "job_type": "shell", "target": "echo", "args": ["a", "b"], "kwargs": {},
     "on_failure": "stop", "timeout": 300},
    {"step_order": 3, "name": "hand-on", "job_type": "shell",
     "target": "echo {{steps.count.stdout}}; exit {{params.ending}}", "args": [], "kwargs": {},
     "on_failure": "stop", "timeout": 300}
  ],
  "params": {"ending": {"type": "integer", "default": 0}}
}
"""
GREET = "step-886c45f2"


@pytest.mark.parametrize("ending", [0, 3])
def test_rows_of_a_table_of_steps(daemon: Daemon, tmp_path: Path, ending: int) -> None:
    (tmp_path / "batch").mkdir()
    (tmp_path / "batch" / "tools.py").write_text("def count(upto):\n    print(upto + 1)\n    raise SystemExit(5)\n")
    name = f"nightly-batch-{ending}"
    daemon.apply(TABLE_OF_STEPS.replace("nightly-batch", name), base_dir=str(tmp_path))
    run = daemon.run(name, ending=ending)
    assert run.workflow_title == "夜間バッチ"
    assert launched(daemon, run) == [GREET, "count", "hand-on", *([] if ending else ["never"])], "in their order"
    assert steps_of(run)[GREET].title == "挨拶"
    assert daemon.log_of(run.id, GREET)[run_pb2.LOG_STREAM_STDOUT] == b"a b\n"
    assert daemon.log_of(run.id, "hand-on")[run_pb2.LOG_STREAM_STDOUT] == b"4\n"
    assert run_state(run) == ("FAILED" if ending else "SUCCEEDED"), run.error_message
    assert step_states(run) == {
        GREET: "SUCCEEDED",
        "count": "FAILED",
        "hand-on": "FAILED" if ending else "SUCCEEDED",
        "never": "SKIPPED(aborted)" if ending else "SUCCEEDED",
    }
    assert [steps_of(run)[step].index for step in (GREET, "count", "hand-on", "never")] == [0, 1, 2, 3]
    schedule = workflow_pb2.PreviewScheduleRequest(workflow=name, count=1)
    (due,) = daemon.workflows.PreviewSchedule(schedule, timeout=20).due_times
    assert due.local[11:16] == "03:00"


def problems(source: str) -> dict[str, str]:
    return {problem.path: problem.message for problem in parse(source).errors}


def test_the_keys_of_a_table_are_not_written() -> None:
    found = problems(
        "{id: 1, name: a, steps: [{id: 7, workflow_id: 1, step_order: 1, name: b, job_type: shell, target: x}]}"
    )
    assert found == {
        "id": "expected a string, found the number 1: remove it if a database made it, or put it in quotes",
        "steps[0].id": "expected a string, found the number 7: remove it if a database made it, or put it in quotes",
        "steps[0].workflow_id": 'unknown field "workflow_id": remove it: a step belongs to the workflow that lists it',
    }


# A scenario of stored jobs.

JOBS = """
jobs:
  task_a: {name: 準備, run: "echo a; exit {{ run.number == 1 ? 4 : 0 }}"}
  task_b: {job_type: shell, target: echo, args: [b]}
"""
SCENARIO = """
{
  "id": "scenario",
  "name": "毎朝のシナリオ",
  "description": "二つのジョブを順に実行する",
  "steps": [{"job_id": "task_a", "on_fail": "stop"}, {"job_id": "task_b", "args": ["overridden"]}]
}
"""


def test_a_scenario_of_jobs(daemon: Daemon) -> None:
    for document in parse(JOBS).documents:
        definition = workflow_pb2.Definition(source=document.source)
        daemon.jobs.CreateJob(job_pb2.CreateJobRequest(definition=definition), timeout=20)
    daemon.apply(SCENARIO)
    failed = daemon.run("scenario")
    assert (run_state(failed), failed.error_message) == ("FAILED", "step task_a failed: exit code 4")
    assert step_states(failed) == {"task_a": "FAILED", "task_b": "SKIPPED(aborted)"}
    assert (failed.workflow, failed.workflow_title) == ("scenario", "毎朝のシナリオ")
    run = daemon.run("scenario")
    assert run_state(run) == "SUCCEEDED", run.error_message
    first, second = daemon.processes(run.id)
    assert (first.job, second.job) == ("task_a", "task_b")
    assert [each.exit_code for each in (first, second)] == [0, 0]
    assert {each.state for each in (first, second)} == {run_pb2.PROCESS_STATE_COMPLETED}
    assert first.finished_at.ToDatetime() <= second.started_at.ToDatetime(), "each waits for the one before"
    assert daemon.log_of(run.id, "task_b")[run_pb2.LOG_STREAM_STDOUT] == b"overridden\n"
    table = problems(SCENARIO.replace('"id":', '"created_at": "2026-01-01", "updated_at": null, "id":'))
    assert all(message.endswith("the daemon records when a version was stored") for message in table.values())
    assert table.keys() == {"created_at", "updated_at"}


# Workflows that events start, with an executor.

ANALYZE = """
{
  "name": "AnalyzeNewIssue",
  "description": "新しいIssueを分析する",
  "triggers": {
    "eventTypes": ["DATA_CHANGED"],
    "condition": "event.payload.entity == 'issue' && event.payload.action == 'created'",
    "priority": 30
  },
  "steps": [{"name": "execute", "job_type": "python", "target": "issues.analyze"}]
}
"""
ESCALATE = """
name: EscalateIssue
description: 優先度の高いIssueを知らせる
triggers: {eventTypes: [HIGH_PRIORITY_DETECTED], priority: 80}
steps: [{name: execute, run: "echo {{ event.payload.issueId }} {{ event.payload.priority }}"}]
"""
ISSUES = """
from toban.step import WorkflowResult

async def analyze(event, context, emitter):
    issue = event.payload["data"]
    if "priority" not in issue:
        return WorkflowResult(False, error=ValueError(f"issue {issue['id']} has no priority"))
    if issue["priority"] > 80:
        emitter.emit({"type": "HIGH_PRIORITY_DETECTED", "payload": {"issueId": issue["id"], "priority": 90}})
    return WorkflowResult(True, output={"analyzed": issue["id"]})
"""


def runs_of(daemon: Daemon, name: str) -> list[run_pb2.Run]:
    request = run_pb2.ListRunsRequest(workflow=name, page_size=1000)
    return sorted(daemon.runs.ListRuns(request, timeout=20).runs, key=lambda run: run.number)


def ended_runs(daemon: Daemon, event: event_pb2.Event) -> list[run_pb2.Run] | None:
    found = daemon.events.GetEvent(event_pb2.GetEventRequest(id=event.id), timeout=20)
    return [daemon.get_run(each.run_id) for each in found.event.runs] if found.all_ended else None


def test_a_workflow_of_events_and_an_executor(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "issues.py").write_text(ISSUES)
    daemon.apply(ANALYZE, base_dir=str(tmp_path))
    daemon.apply(ESCALATE)
    payload = {"entity": "issue", "action": "created", "data": {"id": "i-1", "priority": 90}}
    event = daemon.emit("DATA_CHANGED", payload)
    (run,) = wait_until(lambda: ended_runs(daemon, event), "the issue was not analyzed")
    assert (run_state(run), run.priority) == ("SUCCEEDED", 30), run.error_message
    assert json.loads(steps_of(run)["execute"].result_json) == {"analyzed": "i-1"}
    (escalated,) = wait_until(lambda: runs_of(daemon, "EscalateIssue"), "the issue was not escalated")
    escalated = daemon.wait_run(escalated.id)
    assert (run_state(escalated), escalated.priority, escalated.depth) == ("SUCCEEDED", 80, 1)
    assert daemon.log_of(escalated.id)[run_pb2.LOG_STREAM_STDOUT] == b"i-1 90\n"

    event = daemon.emit("DATA_CHANGED", {**payload, "action": "updated"})
    assert wait_until(lambda: ended_runs(daemon, event) == [], "it was not resolved"), "the condition excludes it"
    event = daemon.emit("DATA_CHANGED", {**payload, "data": {"id": "i-2"}})
    (failed,) = wait_until(lambda: ended_runs(daemon, event), "the issue was not analyzed")
    assert run_state(failed) == "FAILED"
    assert "issue i-2 has no priority" in failed.error_message

    executor = problems(ANALYZE.replace('"steps":', '"executor":'))
    assert executor["executor"] == 'unknown field "executor": write steps, with job_type: python and target'


@pytest.mark.parametrize("schedule", ["{interval: 1000}", "{cron: '* * * * * *'}"])
def test_triggers_with_a_schedule(daemon: Daemon, schedule: str) -> None:
    name = f"often-{schedule[1]}"
    daemon.apply(
        f"name: {name}\ndescription: d\ntriggers: {{schedule: {schedule}, priority: -10}}\nsteps: [{{name: a, run: x}}]"
    )
    run = wait_until(lambda: runs_of(daemon, name), "it was never due")[0]
    off = workflow_pb2.SetWorkflowEnabledRequest(name=name, enabled=False)
    daemon.workflows.SetWorkflowEnabled(off, timeout=20)
    assert (run.triggered_by, run.priority) == (run_pb2.TRIGGER_SCHEDULE, -10)


# Schedules of an issue.

SCHEDULER = """
def main(context):
    first = context.scheduler.schedule("issue-1", "3日後の朝9時にリマインド", "reminder", timezone="Asia/Tokyo")
    daily = {"dedupe_key": "daily-check", "max_occurrences": 7}
    checks = [context.scheduler.schedule("issue-1", "毎日午後3時に進捗確認", "check_progress", **daily) for _ in "ab"]
    other = context.scheduler.schedule("issue-2", "毎日午後3時に進捗確認", "check_progress", **daily)
    listed = context.scheduler.list_by_issue("issue-1")
    cancelled = context.scheduler.cancel_by_issue("issue-1")
    return {"first": first, "checks": checks, "other": other, "listed": listed, "cancelled": cancelled}
"""


def test_schedules_of_an_issue(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "plan.py").write_text(SCHEDULER)
    daemon.apply(
        "name: plan\ndescription: d\nsteps: [{name: a, job_type: python, target: plan.main}]", base_dir=str(tmp_path)
    )
    before = datetime.now(UTC)
    run = daemon.run("plan")
    after = datetime.now(UTC)
    assert run_state(run) == "SUCCEEDED", run.error_message
    result = json.loads(steps_of(run)["a"].result_json)
    due = datetime.fromisoformat(result["first"]["next_due"]).astimezone(ZoneInfo("Asia/Tokyo"))
    days = {(at.astimezone(ZoneInfo("Asia/Tokyo")) + timedelta(days=3)).date() for at in (before, after)}
    assert (due.hour, due.minute) == (9, 0)
    assert due.date() in days
    first, again = result["checks"]
    assert first["id"] == again["id"] != result["other"]["id"], "a key is unique within its issue"
    assert first["max_occurrences"] == 7
    assert {each["id"] for each in result["listed"]} == {result["first"]["id"], first["id"]}
    assert result["cancelled"] == 2
    left = daemon.schedules.ListSchedules(schedule_pb2.ListSchedulesRequest(), timeout=20).schedules
    assert [each.subject for each in left] == ["issue-2"]


# Workers are not supported yet.

WORKER_STEP = """
name: with-workers
version: "1"
description: d
timeout: "1h"
steps:
  implement:
    description: 機能の初期実装を行う
    worker: CODEX_CLI
    workspace: "."
    instructions: 仕様は instructions.md を参照。
    capabilities: [READ, EDIT]
    max_steps: 10
    max_command_time: "1m"
    timeout: "15m"
    completion_check:
      worker: CLAUDE_CODE
      instructions: 完了か判定してください。
      capabilities: [READ]
      timeout: "2m"
    max_iterations: 20
"""


def test_workers_are_refused_field_by_field() -> None:
    own = {f"steps.implement.{name}" for name in UNSUPPORTED_STEP_FIELDS}
    of_check = {f"steps.implement.completion_check.{name}" for name in ("worker", "instructions", "capabilities")}
    found = problems(WORKER_STEP)
    assert found.keys() == own | of_check
    assert all(message.endswith("is not supported yet: remove it") for message in found.values())


# The scopes of a pipeline.

PIPELINE = """
name: glossary
description: 用語集を作る
scopes:
  full: [load, provisional, issues, refined]
  extract: [extract]
  generate: [provisional]
  review: [issues]
  refine: [refined]
env: {DB: "{{ run.base_dir }}"}
defaults: {workspace: "{{ env.DB }}"}
steps:
  - name: load
    title: ドキュメント読み込み
    run: test -s documents || { echo "Cannot execute pipeline without documents" >&2; exit 1; }
  - name: extract
    title: 用語抽出
    run: sort -u documents > terms
  - name: provisional
    title: 用語集生成
    run: |
      test -s terms || { echo "error=1" >> "$TOBAN_OUTPUT"; echo "no extracted terms" >&2; exit 1; }
      n=0; total=$(wc -l < terms)
      while read -r term; do n=$((n + 1)); echo "::progress $n/$total $term"; done < terms
      cp terms provisional
  - name: issues
    title: 精査
    run: if grep -q wrong provisional; then echo found=yes >> "$TOBAN_OUTPUT"; else echo found=no >> "$TOBAN_OUTPUT"; fi
  - name: refined
    title: 改善
    run: sed s/wrong/right/ provisional > refined
"""


def test_scopes_of_a_pipeline(daemon: Daemon, tmp_path: Path) -> None:
    daemon.apply(PIPELINE, base_dir=str(tmp_path))
    failed = daemon.run("glossary")
    assert (failed.scope, run_state(failed)) == ("full", "FAILED")
    assert step_states(failed)["provisional"] == "SKIPPED(aborted)", (
        "it waits for load, although extract is out of scope"
    )
    assert failed.error_message == "step ドキュメント読み込み (load) failed: exit code 1"
    (tmp_path / "documents").write_text("量子コンピュータ\nwrong\n量子コンピュータ\n")
    failed = daemon.run("glossary")
    assert failed.error_message == "step 用語集生成 (provisional) failed: exit code 1", "no terms were extracted yet"

    def scoped(scope: str) -> run_pb2.Run:
        started = daemon.runs.StartRun(run_pb2.StartRunRequest(workflow="glossary", scope=scope), timeout=20)
        run = daemon.wait_run(started.run.id)
        assert (run.scope, run_state(run)) == (scope, "SUCCEEDED"), run.error_message
        return run

    extracted = scoped("extract")
    skipped = dict.fromkeys(("load", "provisional", "issues", "refined"), "SKIPPED(scope)")
    assert step_states(extracted) == {"extract": "SUCCEEDED", **skipped}
    assert (tmp_path / "terms").read_text() == "wrong\n量子コンピュータ\n", "a repeated term is stored once"
    whole = daemon.run("glossary")
    assert (whole.scope, run_state(whole)) == ("full", "SUCCEEDED"), whole.error_message
    assert step_states(whole)["extract"] == "SKIPPED(scope)", "full is without the extraction"
    assert launched(daemon, whole) == ["load", "provisional", "issues", "refined"]
    assert (whole.progress_current, whole.progress_total, whole.progress_message) == (2, 2, "量子コンピュータ")
    assert steps_of(whole)["issues"].outputs == {"found": "yes"}
    assert (tmp_path / "refined").read_text() == "right\n量子コンピュータ\n"
    for scope, step in (("generate", "provisional"), ("review", "issues"), ("refine", "refined")):
        assert launched(daemon, scoped(scope)) == [step]
