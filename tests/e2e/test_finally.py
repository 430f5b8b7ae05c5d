"""The daemon is killed with -9 while finally steps run, and time goes on without it: they run once."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.daemon import Daemon, cause_name, process_state, run_state, running_daemon, step_states, steps_of
from helpers.gate import Gate
from helpers.processes import gone, seen
from helpers.wait import wait_until
from toban.v1 import run_pb2


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "s") as running:
        yield running


def definition(gate: Gate, witness: Path, *, end: str = "exit 3", fields: str = "") -> str:
    return f"""
name: tidied
description: x
{fields}
steps:
  - {{name: work, run: "read _ < {gate.path}; {end}"}}
  - {{name: never, run: "true"}}
finally:
  - {{name: first, run: "echo first >> {witness}"}}
  - {{name: held, run: "echo held >> {witness}; read _ < {gate.path}"}}
  - {{name: last, run: "echo {{{{ run.state }}}} >> {witness}", when: "run.failed_steps == ['work']"}}
"""


@pytest.mark.parametrize(
    "place",
    [
        # The last of the other steps has ended, and the first finally step …
        "launch.before_send=kill@1",  # … is not known to a supervisor
        "launch.after_send=kill@1",  # … is, and the daemon does not know that
        "store.after_commit=kill@4",  # … may have begun
    ],
)
def test_they_run_once_wherever_the_daemon_dies(daemon: Daemon, tmp_path: Path, place: str) -> None:
    gate, witness = Gate(f"{tmp_path}/gate"), tmp_path / "witness"
    daemon.apply(definition(gate, witness))
    run_id = daemon.start_run("tidied")
    daemon.wait_started(run_id, "work")
    daemon.kill()
    gate.release_now()
    daemon.start({"TOBAN_FAILPOINTS": place}, wait=False)
    assert daemon.wait() == -signal.SIGKILL
    daemon.start()
    daemon.wait_started(run_id, "held")
    daemon.kill()
    daemon.start()
    run = daemon.get_run(run_id)
    assert run_pb2.RunState.Name(run.finally_part.state) == "RUN_STATE_FAILED"
    gate.release_now()
    run = daemon.wait_run(run_id)
    assert (run_state(run), run.error_message) == ("FAILED", "step work failed: exit code 3")
    assert step_states(run) == {
        "work": "FAILED",
        "never": "SKIPPED(aborted)",
        "first": "SUCCEEDED",
        "held": "SUCCEEDED",
        "last": "SUCCEEDED",
    }
    assert witness.read_text().split() == ["first", "held", "FAILED"]


def test_a_cancel_is_remembered_and_a_second_one_counts(daemon: Daemon, tmp_path: Path) -> None:
    """Of the two cancels each comes in another life of the daemon."""
    gate, witness = Gate(f"{tmp_path}/gate"), tmp_path / "witness"
    daemon.apply(definition(gate, witness))
    run_id = daemon.start_run("tidied")
    daemon.wait_started(run_id, "work")
    daemon.cancel(run_id, "enough")
    step = seen(daemon.wait_started(run_id, "held"))
    daemon.kill()
    daemon.start()
    wait_until(lambda: run_state(daemon.get_run(run_id)) == "RUNNING", "it is not known any more")
    daemon.cancel(run_id)
    run = daemon.wait_run(run_id)
    assert gone(step)
    assert (run_state(run), run.error_message) == ("CANCELLED", "cancelled: enough")
    assert step_states(run) == {
        "work": "CANCELLED",
        "never": "SKIPPED(cancelled)",
        "first": "SUCCEEDED",
        "held": "CANCELLED",
        "last": "SKIPPED(cancelled)",
    }
    assert witness.read_text().split() == ["first", "held"]


def test_finally_timeout_passes_without_the_daemon(daemon: Daemon, tmp_path: Path) -> None:
    gate, witness = Gate(f"{tmp_path}/gate"), tmp_path / "witness"
    daemon.apply(definition(gate, witness, end="exit 0", fields="finally_timeout: 2s"))
    run_id = daemon.start_run("tidied")
    gate.release_now()
    step = seen(daemon.wait_started(run_id, "held"))
    daemon.kill()
    wait_until(lambda: gone(step), "its supervisor does not end it")
    daemon.start()
    run = daemon.wait_run(run_id)
    assert run_state(run) == "SUCCEEDED"
    assert step_states(run) == {
        "work": "SUCCEEDED",
        "never": "SUCCEEDED",
        "first": "SUCCEEDED",
        "held": "CANCELLED",
        "last": "SKIPPED(timed_out)",
    }
    held = daemon.process_of(run_id, "held")
    assert (process_state(held), cause_name(held.ending)) == ("TIMED_OUT", "finally_timeout")
    assert steps_of(run)["held"].reason == "finally_timeout passed"
    assert cause_name(run.finally_part.ending) == "timed_out"


def test_an_outage_takes_nothing_of_their_time(daemon: Daemon, tmp_path: Path) -> None:
    """The last of the other steps ended long before the daemon came back: finally_timeout counts from then on."""
    gate, witness = Gate(f"{tmp_path}/gate"), tmp_path / "witness"
    daemon.apply(definition(gate, witness, fields="finally_timeout: 3s"))
    run_id = daemon.start_run("tidied")
    step = seen(daemon.wait_started(run_id, "work"))
    daemon.kill()
    gate.release_now()
    wait_until(lambda: gone(step), "it does not end")
    later = time.monotonic() + 4
    wait_until(lambda: time.monotonic() > later, "time stands still")
    daemon.start()
    daemon.wait_started(run_id, "held")
    gate.release_now()
    run = daemon.wait_run(run_id)
    assert run_state(run) == "FAILED"
    assert witness.read_text().split() == ["first", "held", "FAILED"]
