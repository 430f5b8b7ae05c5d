"""Every example, applied and run as the README says: its result, order and output."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from helpers.daemon import (
    Daemon,
    error_class,
    run_state,
    running_daemon,
    step_states,
    steps_of,
    texts,
)
from helpers.wait import wait_until
from toban.cli.args.python_file import workflows_in
from toban.definition import parse
from toban.v1 import dead_letter_pb2, run_pb2
from toband.supervise.shim import confinement

EXAMPLES = Path(__file__).parents[2] / "examples"
OUT = run_pb2.LOG_STREAM_STDOUT
CASES: list[dict[str, Any]] = YAML(typ="safe").load(
    Path(__file__).with_name("example_cases.yaml").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: whatever a run should leave beside its definition is found, and is not left in the sources."""
    copy = tmp_path_factory.mktemp("of") / "examples"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("__pycache__", "integrations"))
    return copy


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, examples: Path) -> Iterator[Daemon]:
    """All examples are stored."""
    with running_daemon(tmp_path_factory.mktemp("daemon") / "state") as daemon:
        toban(daemon, "apply", str(examples), *map(str, written_in_python(examples)))
        yield daemon


def toban(daemon: Daemon, *arguments: str, stdin: str = "") -> str:
    command = [sys.executable, "-m", "toban.cli", "--server", daemon.socket, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def written_in_python(examples: Path) -> list[Path]:
    return [path for path in examples.glob("*.py") if "@workflow" in path.read_text("utf-8")]


def names_in(examples: Path) -> set[str]:
    """What the examples define: workflows and jobs."""
    in_python = {
        each.name for path in written_in_python(examples) for each in workflows_in(str(path), path.read_bytes())
    }
    return in_python | {
        document.name
        for path in examples.glob("*.yaml")
        for document in parse(path.read_bytes(), file=path.name).documents
    }


def left_in(examples: Path) -> list[str]:
    return sorted(str(path.relative_to(examples)) for path in examples.rglob("*") if "__pycache__" not in path.parts)


def test_every_example_has_a_case() -> None:
    assert names_in(EXAMPLES) == {case["workflow"] for case in CASES}


def test_every_example_is_listed() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    files = [*EXAMPLES.glob("*.yaml"), *written_in_python(EXAMPLES)]
    assert [path.name for path in files if f"[{path.name}]({path.name})" not in text] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join([case["workflow"], *case.get("params", ())]))
def test_example(daemon: Daemon, examples: Path, case: dict[str, Any]) -> None:
    expect = dict(case)
    if expect.pop("needs", "") == "sandbox" and (missing := sandbox_missing()):
        pytest.skip(f"no sandbox: {missing}")
    before = left_in(examples)
    for name, value in expect.pop("secrets", {}).items():
        toban(daemon, "secrets", "set", name, "--workflows", case["workflow"], stdin=value)
    run_id = daemon.start_run(expect.pop("workflow"), **expect.pop("params", {}))
    if "approves" in expect:
        approve(daemon, run_id, expect.pop("approves"))
    for step, payload in expect.pop("emits", {}).items():
        emit(daemon, run_id, step, payload)
    run = daemon.wait_run(run_id)
    steps, states = steps_of(run), step_states(run)
    printed = texts(daemon.chunks(run_id))

    assert run_state(run) == expect.pop("ends", "SUCCEEDED"), run.error_message
    assert_same(expect.pop("steps", {}), states)
    assert_same(
        expect.pop("prints", {}),
        {step: text.decode().splitlines() for (step, stream), text in printed.items() if stream == OUT},
    )
    repeated = {step.id: step.attempts for step in run.steps if step.attempts > 1 and not step.instances}
    assert repeated == expect.pop("attempts", {})
    assert_same(expect.pop("classes", {}), {step.id: error_class(step) for step in run.steps})
    assert_same(expect.pop("progress", {}), {step.id: progress_text(step) for step in run.steps})
    assert len(dead_letters(daemon, run_id)) == expect.pop("dead_letters", 0)
    assert not expect, "a case expects what nobody looks at"
    failed = [name for name, state in states.items() if state == "FAILED" and not steps[name].parent]
    assert run.failed_steps == len(failed)
    assert_in_order(run)
    assert left_in(examples) == before


def sandbox_missing() -> str:
    return "; ".join(filter(None, (confinement.problem_of_files(), confinement.problem_of_network())))


def assert_same(expected: dict[str, Any], found: dict[str, Any]) -> None:
    """What is expected of some is so; the others may be as they are."""
    assert {name: found.get(name) for name in expected} == expected


def progress_text(step: run_pb2.Step) -> str:
    return f"{step.progress_current:g}/{step.progress_total:g} {step.progress_message}"


def approve(daemon: Daemon, run_id: str, step: str) -> None:
    wait_until(lambda: steps_of(daemon.get_run(run_id))[step].waiting_for, f"{step} does not wait")
    request = run_pb2.DecideApprovalRequest(
        run_id=run_id, step=step, decision=run_pb2.APPROVAL_DECISION_APPROVED, note="go ahead"
    )
    daemon.runs.DecideApproval(request, timeout=20)


def emit(daemon: Daemon, run_id: str, step: str, payload: Any) -> None:
    wait_until(lambda: steps_of(daemon.get_run(run_id))[step].waiting_for, f"{step} does not wait")
    daemon.emit(steps_of(daemon.get_run(run_id))[step].awaited.event_types[0], payload)


def dead_letters(daemon: Daemon, run_id: str) -> list[dead_letter_pb2.DeadLetter]:
    request = dead_letter_pb2.ListDeadLettersRequest(page_size=1000)
    found = daemon.dead_letters.ListDeadLetters(request, timeout=20).dead_letters
    return [letter for letter in found if letter.run_id == run_id]


def assert_in_order(run: run_pb2.Run) -> None:
    """Nothing began before what it depends on had ended."""
    steps = steps_of(run)
    for step in run.steps:
        if not step.HasField("started_at"):
            continue
        for needed in step.depends_on:
            ended = steps[needed].finished_at.ToMicroseconds()
            assert ended <= step.started_at.ToMicroseconds(), f"{step.id} before {needed}"


def test_queued_runs_take_turns(daemon: Daemon) -> None:
    ids = [daemon.start_run("queue", ticket=ticket) for ticket in (1, 2, 3)]
    runs = [daemon.wait_run(run_id) for run_id in ids]
    assert [run_state(run) for run in runs] == ["SUCCEEDED"] * 3
    for first, second in pairwise(runs):
        assert first.finished_at.ToMicroseconds() <= second.started_at.ToMicroseconds()


def test_a_scope_runs_alone_on_what_was_built_before(daemon: Daemon) -> None:
    whole = daemon.run("scopes")
    built = f"built by run {whole.number}"
    request = run_pb2.StartRunRequest(workflow="scopes", scope="publishing")
    part = daemon.wait_run(daemon.runs.StartRun(request, timeout=20).run.id)
    assert step_states(part) == {
        "build": "SKIPPED(scope)",
        "lint": "SKIPPED(scope)",
        "test": "SKIPPED(scope)",
        "publish": "SUCCEEDED",
        "unlock": "SKIPPED(scope)",
    }
    assert steps_of(part)["build"].source_run == whole.id
    assert texts(daemon.chunks(part.id))[("publish", OUT)].decode().splitlines() == [
        f"publishing {len(built) + 1} bytes, scope: publishing",
        built,
    ]


def test_a_rejected_approval_fails_the_run(daemon: Daemon) -> None:
    run_id = daemon.start_run("approval")
    wait_until(lambda: steps_of(daemon.get_run(run_id))["agree"].waiting_for, "it does not wait")
    toban(daemon, "runs", "approve", run_id, "--reject", "--note", "not on a Friday")
    run = daemon.wait_run(run_id)
    assert (run_state(run), step_states(run)["release"]) == ("FAILED", "SKIPPED(aborted)")
