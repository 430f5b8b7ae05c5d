"""The effect of a failed or slow step on its run."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.daemon import Daemon, cause_name, error_class, process_state, run_state, step_states, steps_of
from toban.v1 import run_pb2


def test_continue_goes_on_and_is_counted(daemon: Daemon) -> None:
    daemon.apply("""
name: continue
description: x
steps:
  - {name: bad, run: exit 7, on_failure: continue}
  - {name: next, run: "echo saw {{ steps.bad.status }} {{ steps.bad.exit_code }}"}
""")
    run = daemon.run("continue")
    assert (run_state(run), run.failed_steps, run.error_message) == ("SUCCEEDED", 1, "")
    assert step_states(run) == {"bad": "FAILED", "next": "SUCCEEDED"}
    bad = steps_of(run)["bad"]
    assert (bad.exit_code, bad.reason, error_class(bad)) == (
        7,
        "exit code 7",
        "RETRYABLE_TRANSIENT",
    )
    assert daemon.log_of(run.id, "next") == {1: b"saw FAILED 7\n"}


def test_abort_cancels_what_runs_and_skips_what_waits(daemon: Daemon, tmp_path: Path) -> None:
    daemon.apply(f"""
name: abort
description: x
concurrency: 2
steps:
  long: {{run: "touch {tmp_path}/ready; exec sleep 60"}}
  bad: {{run: "while ! test -e {tmp_path}/ready; do sleep 0.01; done; exit 5"}}
  waiting: {{run: "true"}}
  after-bad: {{run: "true", depends_on: [bad]}}
  after-long: {{run: "true", depends_on: [long]}}
""")
    run = daemon.run("abort")
    assert (run_state(run), run.failed_steps) == ("FAILED", 1)
    assert run.error_message == "step bad failed: exit code 5"
    assert cause_name(run.ending) == "aborted"
    assert step_states(run) == {
        "long": "CANCELLED",
        "bad": "FAILED",
        "waiting": "SKIPPED(aborted)",
        "after-bad": "SKIPPED(aborted)",
        "after-long": "SKIPPED(aborted)",
    }
    long = daemon.process_of(run.id, "long")
    assert (process_state(long), cause_name(long.ending), long.signal) == ("CANCELLED", "cancel", 15)
    assert list(long.ending.signals) == ["TERM"]
    assert long.ending.proved_empty
    assert not long.HasField("exit_code")
    assert {each.step for each in daemon.processes(run.id)} == {"long", "bad"}


@pytest.mark.parametrize(
    ("run", "code", "cls"),
    [
        ("exit 1", 1, "RETRYABLE_TRANSIENT"),
        ("exit 75", 75, "RETRYABLE_TRANSIENT"),
        ("exit 64", 64, "NON_RETRYABLE"),
        ("exit 78", 78, "NON_RETRYABLE"),
        ("no-such-program", 127, "NON_RETRYABLE"),
        ("/etc/passwd", 126, "NON_RETRYABLE"),
        ("exit 255", 255, "RETRYABLE_TRANSIENT"),
    ],
)
def test_every_failure_has_a_class(daemon: Daemon, run: str, code: int, cls: str) -> None:
    name = f"class-{code}"
    daemon.apply(f"name: {name}\ndescription: x\nsteps: [{{name: only, run: {run}}}]\n")
    ended = daemon.run(name)
    step, process = ended.steps[0], daemon.process_of(ended.id, "only")
    assert run_state(ended) == "FAILED"
    assert (step.exit_code, process.exit_code) == (code, code)
    assert (error_class(step), error_class(process)) == (cls, cls)
    assert (process_state(process), cause_name(process.ending)) == ("FAILED", "exited")


def test_a_step_that_is_killed_by_a_signal_says_so(daemon: Daemon) -> None:
    daemon.apply("name: signal\ndescription: x\nsteps: [{name: only, run: kill -9 $$}]\n")
    run = daemon.run("signal")
    process = daemon.process_of(run.id, "only")
    assert run_state(run) == "FAILED"
    assert run.steps[0].reason == "killed by signal 9"
    assert (process_state(process), process.signal) == ("FAILED", 9)
    assert not process.HasField("exit_code")
    assert not run.steps[0].HasField("exit_code")
    assert cause_name(process.ending) == "exited", "nobody of ours sent it"


def test_success_codes_say_what_success_is(daemon: Daemon) -> None:
    daemon.apply("""
name: codes
description: x
steps:
  - {name: three, run: exit 3, success_codes: [0, 3]}
  - {name: zero, run: exit 0, success_codes: [3], on_failure: continue}
  - {name: defaulted, run: exit 3, on_failure: continue}
""")
    run = daemon.run("codes")
    assert step_states(run) == {"three": "SUCCEEDED", "zero": "FAILED", "defaulted": "FAILED"}
    assert [step.exit_code for step in run.steps] == [3, 0, 3]
    states = {each.step: process_state(each) for each in daemon.processes(run.id)}
    assert states == {"three": "COMPLETED", "zero": "FAILED", "defaulted": "FAILED"}


def test_the_timeout_of_a_step_fails_it(daemon: Daemon) -> None:
    def timed_out(timeout: str) -> run_pb2.Run:
        daemon.apply(f"""
name: step-timeout-{timeout}
description: x
steps:
  - {{name: slow, run: echo begun; sleep 60, timeout: {timeout}, on_failure: continue}}
  - {{name: next, run: "echo after"}}
  - {{name: last, run: sleep 60, timeout: 50ms}}
  - {{name: never, run: "true"}}
""")
        return daemon.run(f"step-timeout-{timeout}")

    run = timed_out("200ms")
    for longer in ("2s", "20s"):
        # A machine may be so slow that nothing was printed by then.
        if not daemon.log_of(run.id, "slow"):
            run = timed_out(longer)
    assert step_states(run) == {
        "slow": "FAILED",
        "next": "SUCCEEDED",
        "last": "FAILED",
        "never": "SKIPPED(aborted)",
    }
    assert run_state(run) == "FAILED"
    assert run.error_message == "step last failed: timed out"
    slow = daemon.process_of(run.id, "slow")
    assert (process_state(slow), cause_name(slow.ending)) == ("TIMED_OUT", "timeout")
    assert error_class(slow) == "RETRYABLE_TRANSIENT"
    assert slow.ending.proved_empty
    took = slow.finished_at.ToMicroseconds() - slow.started_at.ToMicroseconds()
    assert took >= 150_000
    assert daemon.log_of(run.id, "slow") == {1: b"begun\n"}


def test_the_timeout_of_the_run_ends_it(daemon: Daemon) -> None:
    def timed_out(timeout: str) -> run_pb2.Run:
        daemon.apply(f"""
name: run-timeout-{timeout}
description: x
timeout: {timeout}
steps:
  quick: {{run: "true"}}
  slow: {{run: sleep 60, on_failure: continue}}
  slower: {{run: sleep 60, timeout: 60s}}
  after: {{run: "true", depends_on: [slow]}}
""")
        return daemon.run(f"run-timeout-{timeout}")

    run = timed_out("300ms")
    for longer in ("3s", "30s"):
        # A machine may be so slow that not all of them had begun by then, or the first had not ended.
        begun = {each.step for each in daemon.processes(run.id) if each.pid}
        if len(begun) < 3 or step_states(run)["quick"] != "SUCCEEDED":
            run = timed_out(longer)
    assert run_state(run) == "TIMED_OUT"
    assert cause_name(run.ending) == "timed_out"
    assert run.error_message == "the run's timeout passed"
    assert step_states(run) == {
        "quick": "SUCCEEDED",
        "slow": "CANCELLED",
        "slower": "CANCELLED",
        "after": "SKIPPED(timed_out)",
    }
    for step in ("slow", "slower"):
        process = daemon.process_of(run.id, step)
        assert (process_state(process), cause_name(process.ending)) == ("TIMED_OUT", "run_timeout")
    took = run.finished_at.ToMicroseconds() - run.started_at.ToMicroseconds()
    assert took >= 300_000
