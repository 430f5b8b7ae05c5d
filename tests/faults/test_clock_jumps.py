"""The wall clock jumps by hours while runs are under way: no timeout fires early, and none late."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from faults import clock
from faults.heartbeat import Heartbeats, workflow
from faults.settings import LONG
from helpers.daemon import Daemon, process_state, run_state
from helpers.gate import Gate

HOURS = 5 * 3600.0
TIMEOUT = 10.0 if LONG else 2.0
A_WHILE = 0.5
GRACE = 0.3

pytestmark = pytest.mark.skipif(bool(clock.why_not()), reason=f"no clock: {clock.why_not()}")


@pytest.fixture(scope="module")
def jumping(tmp_path_factory: pytest.TempPathFactory) -> clock.Clock:
    made = clock.Clock(tmp_path_factory.mktemp("clock"))
    assert made.works()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("offset", [HOURS, -HOURS], ids=["forwards", "back"])
def test_timeouts_hold_when_the_clock_jumps(
    tmp_path: Path, jumping: clock.Clock, offset: float
) -> None:
    of_step, of_run = Heartbeats(tmp_path / "step"), Heartbeats(tmp_path / "run")
    gate = Gate(f"{tmp_path}/gate")
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
                    "a": {"run": f"sleep {A_WHILE}"},
                    "slow": of_run.step(depends_on=["a"], kill_grace=grace),
                },
                timeout=limit,
            )
        )
        # Two of its three hours must not pass with the jump.
        held = {"run": f"read _ < {gate.path}"}
        after = {"run": "echo after", "depends_on": ["held"]}
        daemon.apply(workflow("patient", {"held": held, "after": after}, timeout="3h"))
        ids = {name: daemon.start_run(name) for name in ("patient", "step")}
        began = time.monotonic()
        ids["run"] = daemon.start_run("run")
        of_step.began()
        jumping.set(offset)
        step, run = (daemon.wait_run(ids[name]) for name in ("step", "run"))
        gate.release_now()
        patient = daemon.wait_run(ids["patient"])
        process = daemon.process_of(ids["step"], "slow")
        of_run_process = daemon.process_of(ids["run"], "slow")
    finally:
        jumping.set(0)
        daemon.clear()
    assert (run_state(step), step.error_message) == ("FAILED", "step slow failed: timed out")
    assert (process_state(process), process.ending.cause) == ("TIMED_OUT", "timeout")
    assert TIMEOUT <= of_step.lasted() <= TIMEOUT + GRACE + 1.0
    assert run_state(run) == "TIMED_OUT", run.error_message
    assert of_run_process.ending.cause == "run_timeout"
    assert of_run.lasted() <= TIMEOUT - A_WHILE + GRACE + 1.0
    assert of_run.began() + of_run.lasted() >= began + TIMEOUT
    assert run_state(patient) == "SUCCEEDED", patient.error_message
