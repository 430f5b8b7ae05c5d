"""Limits and users of steps, from the definition to the report of a run."""

from __future__ import annotations

import json
import os
import pwd
import sys
from collections.abc import Iterator

import pytest

from helpers.daemon import Daemon, error_class, process_state, run_state, running_daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    base = tmp_path_factory.mktemp("d")
    # A step of another user has to be able to walk there, as to /var/lib.
    for directory in (base, *base.parents[:2]):
        os.chmod(directory, 0o755)
    with running_daemon(base / "s", environment={"TOBAN_CGROUP": "off"}) as running:
        yield running


def test_a_step_over_its_memory_says_so(daemon: Daemon) -> None:
    script = "import os, time; [os.fork() for _ in range(2)]; x = b'x' * (50 << 20); time.sleep(600)"
    step = {
        "name": "only",
        "job_type": "exec",
        "target": sys.executable,
        "args": ["-I", "-S", "-c", script],
        "resources": {"memory": "128MiB"},
    }
    daemon.apply(json.dumps({"name": "greedy", "description": "x", "steps": [step]}))
    run_id = daemon.start_run("greedy")
    run = daemon.wait_run(run_id)
    process = daemon.process_of(run_id, "only")

    assert run_state(run) == "FAILED"
    assert process_state(process) == "FAILED"
    assert process.ending.limit.startswith("memory: its processes held ")
    assert "the limit is 128MiB" in process.error_message
    assert "the limit is 128MiB" in run.error_message
    assert process.ending.proved_empty


def test_a_limit_that_cannot_be_kept_fails_the_step_before_it_begins(daemon: Daemon) -> None:
    daemon.apply("""
name: idle
description: x
steps:
  - {name: only, run: echo begun, resources: {cpu: 0.5}}
""")
    run_id = daemon.start_run("idle")
    run = daemon.wait_run(run_id)
    process = daemon.process_of(run_id, "only")

    assert (run_state(run), error_class(process)) == ("FAILED", "NON_RETRYABLE")
    assert "cannot keep resources.cpu" in run.error_message
    assert "switched off by the configuration" in run.error_message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root takes on another user")
def test_a_step_of_another_user_does_its_work(daemon: Daemon) -> None:
    try:
        home = pwd.getpwnam("nobody").pw_dir
    except KeyError:
        pytest.skip("there is no user nobody")
    daemon.apply("""
name: other
description: x
params: {word: {type: string, default: hello}}
steps:
  - name: first
    user: nobody
    run: |
      set -e
      test "$(id -un)" = nobody
      cat "$TOBAN_PARAMS" > "$TOBAN_CONTEXT_DIR/params"
      echo "home=$HOME" >> "$TOBAN_OUTPUT"
      echo "$PWD" > here
  - name: second
    depends_on: [first]
    run: cat "$TOBAN_CONTEXT_DIR/params" here
""")
    run_id = daemon.start_run("other")
    run = daemon.wait_run(run_id)

    assert run_state(run) == "SUCCEEDED", run.error_message
    outputs = {step.id: dict(step.outputs) for step in run.steps}
    assert outputs["first"] == {"home": home}
