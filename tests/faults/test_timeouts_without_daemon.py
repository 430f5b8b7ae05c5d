"""Timeouts are enforced without a daemon: the step's own heartbeats show when it was ended."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from faults.heartbeat import Heartbeats, workflow
from faults.settings import LONG
from helpers.daemon import cause_name, process_state, run_state, running_daemon, step_states
from helpers.wait import wait_until

TIMEOUT, KILLED_AFTER = (10.0, 1.0) if LONG else (4.0, 0.3)
"""The run's step must begin before the time of its run is over, on a busy machine too."""
GRACE = 1.0
"""Its heartbeats may be late by that."""


def passed(since: float, seconds: float) -> bool:
    return time.monotonic() - since >= seconds


@pytest.mark.slow
def test_timeouts_of_a_step_and_of_a_run_hold_while_the_daemon_is_down(tmp_path: Path) -> None:
    limit, grace = f"{TIMEOUT}s", f"{GRACE}s"
    with (
        closing(Heartbeats(tmp_path / "step")) as of_step,
        closing(Heartbeats(tmp_path / "run")) as of_run,
        running_daemon(tmp_path / "s") as daemon,
    ):
        daemon.apply(
            workflow("step", {"slow": of_step.step(timeout=limit, kill_grace=grace), "other": {"run": "sleep 0.1"}})
        )
        never = {"run": "true", "depends_on": ["slow"]}
        daemon.apply(workflow("run", {"slow": of_run.step(kill_grace=grace), "never": never}, timeout=limit))
        asked = time.monotonic()
        ids = {name: daemon.start_run(name) for name in ("step", "run")}
        began = max(of_step.began(), of_run.began())
        wait_until(lambda: passed(began, KILLED_AFTER), "time stands still")
        daemon.kill()
        # Nobody is there who could end them but their shims.
        assert min(of_step.ended(), of_run.ended()) >= asked + TIMEOUT
        before = [of_step.times(), of_run.times()]
        daemon.start()
        step, run = (daemon.wait_run(ids[name]) for name in ("step", "run"))
        assert (run_state(step), step.error_message) == ("FAILED", "step slow failed: timed out")
        assert run_state(run) == "TIMED_OUT"
        assert step_states(run) == {"slow": "CANCELLED", "never": "SKIPPED(timed_out)"}
        for name, cause in (("step", "timeout"), ("run", "run_timeout")):
            process = daemon.process_of(ids[name], "slow")
            assert (process_state(process), cause_name(process.ending)) == ("TIMED_OUT", cause)
            assert list(process.ending.signals) == ["TERM", "KILL"]
            assert process.ending.proved_empty
        assert [of_step.times(), of_run.times()] == before, "nobody was started again"
