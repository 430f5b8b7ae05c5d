"""Loops, artifacts, overlaps and children on a real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.daemon import Daemon, error_class, run_state, running_daemon, step_states, steps_of
from helpers.wait import wait_until
from toban.v1 import run_pb2

OUT = run_pb2.LOG_STREAM_STDOUT


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("language") / "state") as running:
        yield running


@pytest.mark.parametrize(
    ("name", "watched", "work"),
    [
        ("path", "out", "mkdir -p out; [ {{ iteration }} -gt 2 ] || echo x >> out/log"),
        ("output", "output", "[ {{ iteration }} -gt 2 ] && echo same || echo {{ iteration }}"),
    ],
)
def test_a_loop_that_changes_nothing_ends(daemon: Daemon, name: str, watched: str, work: str) -> None:
    # The second iteration changes something, the third does not; of what is printed the fourth is the first.
    daemon.apply(f"""
name: stuck-{name}
description: x
steps:
  loop:
    run: '{work}'
    workspace: "{{{{ run.dir }}}}"
    completion_check: {{run: exit 75}}
    max_iterations: 20
    on_iterations_exhausted: continue
    stop_when_unchanged: {watched}
  after: {{run: "true", depends_on: [loop]}}
""")
    run = daemon.run(f"stuck-{name}")
    assert (run_state(run), run.incomplete_steps) == ("SUCCEEDED", 1)
    assert step_states(run) == {"loop": "INCOMPLETE", "after": "SUCCEEDED"}
    step = steps_of(run)["loop"]
    assert step.iteration == (3 if name == "path" else 4)
    assert "nothing changed" in step.reason


@pytest.mark.parametrize("absolute", [True, False])
def test_artifacts_are_kept_where_the_definition_says(daemon: Daemon, tmp_path: Path, absolute: bool) -> None:
    place = str(tmp_path / "kept") if absolute else "kept"
    name = f"elsewhere-{absolute}"
    daemon.apply(
        f"""
name: {name}
description: x
context_dir: {place}
steps:
  make: {{run: "echo made > file; echo $TOBAN_CONTEXT_DIR", outputs: [{{name: thing, path: file}}]}}
""",
        base_dir=str(tmp_path),
    )
    run = daemon.run(name)
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert (tmp_path / "kept" / "make" / "thing" / "file").read_text() == "made\n"
    assert (tmp_path / "kept" / "_workflow.json").exists()
    printed = daemon.log_of(run.id, "make")[OUT].decode()
    assert printed == f"{tmp_path / 'kept'}\n"


def test_a_new_run_replaces_the_one_that_is_active(daemon: Daemon) -> None:
    daemon.apply("""
name: newest
description: x
overlap: replace
steps: {wait: {run: sleep 60, kill_grace: 1s}}
""")
    first, second, third = (daemon.start_run("newest") for _ in range(3))
    for replaced in (first, second):
        run = daemon.wait_run(replaced)
        assert run_state(run) == "CANCELLED"
        assert "replaced by run newest#" in run.error_message
    daemon.wait_started(third, "wait")
    daemon.cancel(third)


def test_every_combination_runs_once_and_in_order(daemon: Daemon) -> None:
    daemon.apply("""
name: combinations
description: x
params: {systems: {type: list, default: [linux, windows]}}
steps:
  build:
    for_each: {os: params.systems, version: [1, 2]}
    run: echo {{ item.os }}-{{ item.version }}
    max_parallel: 2
  all: {run: "echo {{ steps.build.stdout }}", depends_on: [build]}
""")
    run = daemon.run("combinations")
    assert run_state(run) == "SUCCEEDED", run.error_message
    printed = daemon.log_of(run.id, "all")[OUT].decode()
    assert printed == '["linux-1","linux-2","windows-1","windows-2"]\n'


@pytest.mark.parametrize(("said", "attempts"), [("FATAL", 1), ("NON_RETRYABLE", 1), ("RETRYABLE_TRANSIENT", 2)])
def test_a_step_says_itself_what_kind_of_failure_it_was(daemon: Daemon, said: str, attempts: int) -> None:
    name = f"says-{said.lower().replace('_', '-')}"
    daemon.apply(f"""
name: {name}
description: x
steps:
  a:
    run: echo toban.error_class={said} >> $TOBAN_OUTPUT; echo toban.retry_after=10ms >> $TOBAN_OUTPUT; exit 1
    on_failure: continue
    max_retries: 1
    retry: {{delay: 1h}}
""")
    run = daemon.run(name)
    assert run_state(run) == ("FAILED" if said == "FATAL" else "SUCCEEDED")
    step = steps_of(run)["a"]
    assert (error_class(step), step.attempts) == (said, attempts)


def test_a_cancelled_parent_ends_its_child_and_a_cancelled_child_fails_its_step(
    daemon: Daemon,
) -> None:
    daemon.apply("name: inner\ndescription: x\nsteps: {wait: {run: sleep 60, kill_grace: 1s}}\n")
    daemon.apply("""
name: outer
description: x
max_active_runs: 2
steps: {sub: {job_type: workflow, target: inner, on_failure: retry, retry: {delay: 1ms}}}
""")
    outer = daemon.start_run("outer")
    child = wait_until(lambda: _child_of(daemon, outer), "there is no child")
    daemon.wait_started(child.id, "wait")
    daemon.cancel(outer)
    assert run_state(daemon.wait_run(outer)) == "CANCELLED"
    assert run_state(daemon.wait_run(child.id)) == "CANCELLED"
    again = daemon.start_run("outer")
    child = wait_until(lambda: _child_of(daemon, again), "there is no child")
    daemon.wait_started(child.id, "wait")
    daemon.cancel(child.id)
    run = daemon.wait_run(again)
    assert (run_state(run), steps_of(run)["sub"].attempts) == ("FAILED", 1)
    assert error_class(steps_of(run)["sub"]) == "NON_RETRYABLE"


def _child_of(daemon: Daemon, run_id: str) -> run_pb2.Run | None:
    request = run_pb2.ListRunsRequest(parent_run=run_id)
    return next(iter(daemon.runs.ListRuns(request, timeout=20).runs), None)


def test_a_large_result_reaches_the_next_step_and_not_the_database(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(
        "def make():\n    return {'text': 'x' * 200_000, 'count': 7}\ndef size(text):\n    print(len(text))\n"
    )
    daemon.apply(
        """
name: large
description: x
steps:
  make: {job_type: python, target: "large:make"}
  size: {run: "echo {{ size(steps.make.result.text) }} {{ steps.make.result.count }}", depends_on: [make]}
""",
        base_dir=str(tmp_path),
    )
    run = daemon.run("large")
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert daemon.log_of(run.id, "size")[OUT] == b"200000 7\n"
    make = steps_of(run)["make"]
    assert make.result_json == ""
    assert make.result_bytes > 200_000
