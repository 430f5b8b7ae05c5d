"""Workflows and programs in Python against a real daemon: what only it finds wrong, and its restarts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.daemon import Daemon, running_daemon
from toban.cli.args.python_file import workflows_in
from toban.sdk import InvalidArgument, InvalidDefinition, RunFailed, RunState, StepState, SyncClient

WITHIN = 60.0
FLOWS = """
import time
from pathlib import Path

from toban.workflow import add_step, step, workflow


@step(env={"HERE": "x"})
def slow(go: str) -> list[int]:
    print("begun", flush=True)
    while not Path(go).exists():
        time.sleep(0.02)
    print("あ\\nend without a newline", end="")
    return [1, 2]


@step
async def total(numbers: list[int], *, context: object) -> int:
    if sum(numbers) != 3:
        raise ValueError(f"odd numbers: {numbers}")
    return sum(numbers)


@workflow
def steady(go: str) -> None:
    "Survives its daemon."
    numbers = slow(go)
    total(numbers)  # type: ignore[arg-type]
    add_step("say", run=f"echo {numbers}")


@workflow
def failing() -> None:
    "Fails."
    total([1])


@workflow
def unknown() -> None:
    "Uses a job that does not exist."
    add_step("a", run="true")
    add_step("b", job="nowhere")
"""


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    path = tmp_path / "flows.py"
    path.write_text(FLOWS, "utf-8")
    return path


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "state") as daemon:
        yield daemon


def test_a_run_is_followed_over_a_crash(daemon: Daemon, flows: Path, tmp_path: Path) -> None:
    steady, failing, _ = workflows_in(str(flows), flows.read_bytes())
    go = tmp_path / "go"
    with SyncClient(daemon.socket) as toban:
        toban.apply_definitions([steady, failing])
        run = toban.run("steady", {"go": str(go)})
        logs = run.logs()
        assert next(logs).text == "begun"
        watched = run.watch()
        next(watched)
        daemon.kill()
        go.touch()
        daemon.start()
        rest = [(line.step, line.text) for line in logs]
        assert sorted(rest) == [("say", "[1,2]"), ("slow", "end without a newline"), ("slow", "あ")]
        seen = [str(each.state) for each in watched]
        assert seen[-1] == "succeeded"
        run.wait(timeout=WITHIN, check=True)
        assert {name: step.result for name, step in run.steps.items()} == {"slow": [1, 2], "total": 3, "say": None}
        assert run.params == {"go": str(go)}
        assert toban.find_run("steady#1").id == run.id
        assert [each.id for each in toban.find_runs(created_after=run.created_at)] == [run.id]
        assert run.created_at is not None
        assert run.duration is not None
        with pytest.raises(RunFailed, match=r"run failing#1 failed: .*ValueError: odd numbers: \[1\]") as caught:
            toban.run("failing").wait(timeout=WITHIN, check=True)
        assert caught.value.run.state is RunState.FAILED
        assert caught.value.run.steps["total"].state is StepState.FAILED
        with pytest.raises(InvalidArgument) as wrong:
            toban.run("steady", {"gone": 1})
        assert str(wrong.value).count("gone") == 1
        assert "go" in str(wrong.value)


def test_a_mistake_that_only_the_daemon_finds_has_its_line(daemon: Daemon, flows: Path) -> None:
    line = FLOWS[: FLOWS.index("nowhere")].count("\n") + 1
    with SyncClient(daemon.socket) as toban, pytest.raises(InvalidDefinition) as caught:
        toban.apply_definitions(workflows_in(str(flows), flows.read_bytes()))
    assert f"\n  {flows}:{line}:1: steps.b.job: " in str(caught.value)
    command = [sys.executable, "-m", "toban.cli", "--server", daemon.socket, "apply", str(flows)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN)
    assert done.returncode == 7
    assert f"{flows}:{line}:1: steps.b.job: " in done.stderr
