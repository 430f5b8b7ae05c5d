"""Limits and users of steps, from the definition to the report of a run."""

from __future__ import annotations

import json
import os
import platform
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.command import Toban
from helpers.daemon import Daemon, error_class, process_state, run_state, running_daemon
from helpers.others_may_enter import let_others_enter

# Refuses system calls to itself and all that it starts: the name is not known, or not permitted.
WITHOUT = """
import ctypes, errno, os, struct, sys
unknown, forbidden = 444, 272  # landlock_create_ruleset, unshare
rules = ((0x20, 0, 0, 0), (0x15, 2, 0, unknown), (0x15, 2, 0, forbidden), (0x06, 0, 0, 0x7fff0000),
         (0x06, 0, 0, 0x50000 | errno.ENOSYS), (0x06, 0, 0, 0x50000 | errno.EPERM))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.executable, [sys.executable, "-m", "toband", *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    base = tmp_path_factory.mktemp("d")
    # A step of another user has to be able to walk there, as to /var/lib.
    let_others_enter(base)
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


@pytest.mark.skipif(platform.machine() != "x86_64", reason="knows the numbers of its system calls")
def test_no_step_runs_without_its_sandbox(tmp_path: Path) -> None:
    """The system has neither Landlock nor namespaces, as far as the daemon and its steps can tell."""
    daemon = Daemon(tmp_path / "s")
    daemon.program = (sys.executable, "-c", WITHOUT)
    daemon.start()
    try:
        reasons = {
            "{network: host}": "cannot sandbox it: Landlock is missing in this kernel",
            "{network: none}": "cannot sandbox it: the system allows no network namespace (Operation not permitted)",
        }
        for number, (sandbox, reason) in enumerate(reasons.items()):
            name, witness = f"boxed-{number}", tmp_path / f"ran-{number}"
            step = f"{{name: a, run: 'touch {witness}', sandbox: {sandbox}}}"
            daemon.apply(f"name: {name}\ndescription: x\nsteps: [{step}]\n")
            run = daemon.run(name)
            assert run_state(run) == "FAILED"
            assert reason in run.error_message
            assert not witness.exists()
        (found,) = (each for each in Toban(daemon)("system", "doctor", "-o", "json").data if each["check"] == "sandbox")
        assert "files: not available: Landlock is missing in this kernel" in found["detail"]
        assert "network: none: not available: the system allows no network namespace" in found["detail"]
    finally:
        daemon.clear()
