"""Three workflows for agents, with shell steps instead of agents: their states, files and order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.daemon import Daemon, run_state, running_daemon, step_states, steps_of
from toban.v1 import run_pb2

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


TABLE_OF_STEPS = """
{
  "name": "nightly-batch",
  "description": "夜間バッチ",
  "schedule": "0 3 * * *",
  "is_enabled": false,
  "steps": [
    {"name": "greet", "job_type": "shell", "target": "echo", "args": ["a", "b"], "kwargs": {},
     "on_failure": "stop", "timeout": 300},
    {"name": "count", "job_type": "python", "target": "batch.tools.count", "args": [], "kwargs": {"upto": 3},
     "on_failure": "continue", "timeout": 300}
  ]
}
"""


def test_rows_of_a_table_of_steps(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "batch").mkdir()
    (tmp_path / "batch" / "tools.py").write_text("def count(upto):\n    print(upto + 1)\n")
    daemon.apply(TABLE_OF_STEPS, base_dir=str(tmp_path))
    run = daemon.run("nightly-batch")
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert daemon.log_of(run.id, "greet")[run_pb2.LOG_STREAM_STDOUT] == b"a b\n"
    assert daemon.log_of(run.id, "count")[run_pb2.LOG_STREAM_STDOUT] == b"4\n"
