"""Moving the database: every row arrives, whatever is killed, and the daemon goes on with the new one only."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.daemon import CALL_WITHIN, Daemon, run_state
from helpers.json_output import check_output
from helpers.postgres import postgres_schema
from toban.v1 import run_pb2, secret_pb2, secret_pb2_grpc

RUNS = int(os.environ.get("TOBAN_TEST_MIGRATED_RUNS", "2000"))
"""The runs that are moved; 100000 in the long form."""
WITHIN = 120 + RUNS / 50

DEFINITION = """
name: steps
steps:
  one: {run: "echo one; echo 目 > $TOBAN_CONTEXT_DIR/file"}
  two: {run: "exit 3", on_failure: continue, depends_on: [one]}
"""


def offline(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toban.cli", "system", "migrate-store", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )


def moved(*arguments: str) -> dict[str, Any]:
    done = offline(*arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    check_output("system migrate-store", answer)
    return answer


def refusal(*arguments: str, code: int = 4) -> str:
    done = offline(*arguments)
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()
    return line


def multiply(path: Path, runs: int) -> None:
    """Copies the run that is there, with its steps, processes and history."""
    with sqlite3.connect(path) as connection:
        (first,) = connection.execute("SELECT id FROM runs WHERE workflow = 'steps'").fetchone()
        new = f"substr('{first}', 1, 24) || printf('%012x', n)"
        attempt = "substr(id, 1, 24) || printf('%012x', n * 8 + ordinal)"
        for table, key, changed in (
            ("runs", "id", {"id": new, "number": "n + 1"}),
            ("step_runs", "run_id", {"run_id": new, "attempt_id": "NULL"}),
            ("run_history", "run_id", {"run_id": new, "position": "position + n * 1000"}),
            ("process_executions", "run_id", {"run_id": new, "id": attempt}),
        ):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            values = ", ".join(changed.get(column, f'"{column}"') for column in columns)
            connection.execute(
                f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {runs - 1}) "
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM numbers, "
                f"(SELECT * FROM {table} WHERE {key} = '{first}')"
            )


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "state")
    try:
        yield made
    finally:
        made.clear()


@pytest.fixture
def postgres() -> Iterator[str]:
    with postgres_schema() as url:
        yield url


def test_every_run_is_moved_to_postgresql_and_back_even_if_the_move_is_killed(
    daemon: Daemon, postgres: str, tmp_path: Path
) -> None:
    daemon.start()
    daemon.apply(DEFINITION)
    first = daemon.run("steps").id
    secrets = secret_pb2_grpc.SecretServiceStub(daemon.channel)
    secrets.SetSecret(secret_pb2.SetSecretRequest(name="password", value="hunter2hunter2"), timeout=CALL_WITHIN)
    where = ("--state-dir", str(daemon.state_dir))
    assert f"another toband (pid {daemon.pid}) has it" in refusal("--to", postgres, *where)
    daemon.stop()
    multiply(daemon.state_dir / "toban.db", RUNS)

    for armed in ("copy.batch=kill@1", "copy.batch=kill@3", "copy.verified=kill"):
        assert offline("--to", postgres, *where, TOBAN_FAILPOINTS=armed).returncode != 0
    daemon.arguments = ("--database", postgres)
    daemon.start(wait=False)
    assert daemon.wait() == 1
    assert "it is an unfinished copy of another one" in daemon.tail(1)
    began = time.monotonic()
    there = moved("--to", postgres, *where)
    took = time.monotonic() - began
    counts = {table["table"]: table["rows"] for table in there["tables"]}
    assert counts["runs"] == RUNS
    assert counts["step_runs"] == 2 * RUNS
    print(f"{there['rows']} rows of {RUNS} runs in {took:.1f} s")
    assert "it was moved there at" in refusal("--to", postgres, *where)

    daemon.arguments = ()
    daemon.start(wait=False)
    assert daemon.wait() == 1
    assert "toban.db: it was moved to postgresql" in daemon.tail(1)
    daemon.arguments = ("--database", postgres)
    daemon.start()
    run = daemon.get_run(first)
    assert run_state(run) == "SUCCEEDED"
    assert daemon.log_of(first) == {1: b"one\n"}
    assert run_state(daemon.run("steps")) == "SUCCEEDED"
    assert len(daemon.runs.ListRuns(run_pb2.ListRunsRequest(page_size=1000), timeout=CALL_WITHIN).runs) == 1000
    daemon.stop()

    # And back, to another file: what happened since is there too.
    target = f"sqlite:///{tmp_path}/back.db"
    back = moved("--to", target, *where, "--database", postgres)
    assert {table["table"]: table["rows"] for table in back["tables"]}["runs"] == RUNS + 1
    daemon.arguments = ("--database", target)
    daemon.start()
    assert run_state(daemon.run("steps")) == "SUCCEEDED"
    same = {table["table"]: table["sha256"] for table in there["tables"]}
    assert (
        same["workflow_versions"] == {table["table"]: table["sha256"] for table in back["tables"]}["workflow_versions"]
    )


def test_a_target_with_tables_a_missing_source_and_a_used_copy_are_refused(daemon: Daemon, tmp_path: Path) -> None:
    where = ("--state-dir", str(daemon.state_dir))
    target = f"sqlite:///{tmp_path}/target.db"
    assert "does not exist" in refusal("--to", target, *where)
    daemon.start()
    daemon.stop()
    used = tmp_path / "used"
    other = Daemon(used)
    other.start()
    other.stop()
    line = refusal("--to", f"sqlite:///{used}/toban.db", *where)
    assert "the target has tables of toban; name an empty database" in line
    assert "source and target are the same" in refusal("--to", f"sqlite:///{daemon.state_dir}/toban.db", *where)
    assert "cannot use a database of kind 'mysql'" in refusal("--to", "mysql://x/y", *where)
    # A copy that was interrupted begins anew if a daemon has used the source since.
    assert offline("--to", target, *where, TOBAN_FAILPOINTS="copy.verified=kill").returncode != 0
    os.unlink(daemon.state_dir / "database-moved.json")
    daemon.start()
    daemon.apply(DEFINITION)
    daemon.stop()
    assert {table["table"]: table["rows"] for table in moved("--to", target, *where)["tables"]}["workflows"] == 1
