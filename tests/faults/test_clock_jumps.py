"""The wall clock jumps by hours while runs are under way: no timeout fires early, and none late."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from faults import clock
from faults.heartbeat import Heartbeats, workflow
from faults.settings import LONG
from helpers.daemon import Daemon, cause_name, process_state, run_state
from helpers.gate import Gate

HOURS = 5 * 3600.0
TIMEOUT = 10.0 if LONG else 2.0
OF_RUN = TIMEOUT + 3.0
"""Its second step must begin before that is over, on a busy machine too."""
GRACE = 1.0
"""Heartbeats may be late by that."""

pytestmark = pytest.mark.skipif(bool(clock.why_not()), reason=f"no clock: {clock.why_not()}")


@pytest.fixture(scope="module")
def jumping(tmp_path_factory: pytest.TempPathFactory) -> clock.Clock:
    made = clock.Clock(tmp_path_factory.mktemp("clock"))
    assert made.works()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("offset", [HOURS, -HOURS], ids=["forwards", "back"])
def test_timeouts_hold_when_the_clock_jumps(tmp_path: Path, jumping: clock.Clock, offset: float) -> None:
    of_step, of_run = Heartbeats(tmp_path / "step"), Heartbeats(tmp_path / "run")
    gate, jumped = Gate(f"{tmp_path}/gate"), Gate(f"{tmp_path}/jumped")
    limit, grace = f"{TIMEOUT}s", f"{GRACE}s"
    daemon = Daemon(tmp_path / "s", environment=jumping.environment)
    daemon.program = jumping.program
    jumping.set(0)
    try:
        daemon.start()
        daemon.apply(workflow("step", {"slow": of_step.step(timeout=limit, kill_grace=grace)}))
        # Its second step starts after the jump, with what is left of the run's time.
        daemon.apply(
            workflow(
                "run",
                {
                    "a": {"run": f"read _ < {jumped.path}"},
                    "slow": of_run.step(depends_on=["a"], kill_grace=grace),
                },
                timeout=f"{OF_RUN}s",
            )
        )
        # Two of its three hours must not pass with the jump.
        held = {"run": f"read _ < {gate.path}"}
        after = {"run": "echo after", "depends_on": ["held"]}
        daemon.apply(workflow("patient", {"held": held, "after": after}, timeout="3h"))
        asked = time.monotonic()
        ids = {name: daemon.start_run(name) for name in ("patient", "step", "run")}
        of_step.began()
        jumping.set(offset)
        jumped.release_now()
        step, run = (daemon.wait_run(ids[name]) for name in ("step", "run"))
        gate.release_now()
        patient = daemon.wait_run(ids["patient"])
        process = daemon.process_of(ids["step"], "slow")
        of_run_process = daemon.process_of(ids["run"], "slow")
        last_of_step, last_of_run = of_step.ended(), of_run.ended()
    finally:
        jumping.set(0)
        daemon.clear()
        of_step.close()
        of_run.close()
    assert (run_state(step), step.error_message) == ("FAILED", "step slow failed: timed out")
    assert (process_state(process), cause_name(process.ending)) == ("TIMED_OUT", "timeout")
    assert last_of_step >= asked + TIMEOUT
    assert run_state(run) == "TIMED_OUT", run.error_message
    assert cause_name(of_run_process.ending) == "run_timeout"
    assert last_of_run >= asked + OF_RUN
    assert run_state(patient) == "SUCCEEDED", patient.error_message
