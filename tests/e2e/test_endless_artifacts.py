"""Artifact work that never ends, and outputs that are too large: only their own step is affected."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from helpers.daemon import (
    Daemon,
    process_state,
    run_state,
    running_daemon,
    step_states,
    steps_of,
)
from helpers.small_disk import MIB, fill, small_disk
from helpers.wait import wait_until
from toban.v1 import system_pb2

SPARSE = """
name: sparse
description: four steps that watch ten terabytes of nothing, again and again
steps:
%(steps)s
"""
SPARSE_STEP = """
  step%(number)d:
    run: echo {{ iteration }} > huge-%(number)d && truncate -s 10T huge-%(number)d
    workspace: "{{ run.dir }}"
    completion_check: {run: "false"}
    max_iterations: 1000
    stop_when_unchanged: huge-%(number)d
"""
NORMAL = """
name: normal
description: one step makes a file, the next one reads it
steps:
  make:
    run: echo made > out
    workspace: "{{ run.dir }}"
    outputs: [{name: out, path: out}]
  read:
    run: test "$(cat given)" = made
    workspace: "{{ run.dir }}"
    depends_on: [make]
    inputs: [{from: make, artifact: out, as: given}]
"""
WITHIN = 60.0
"""Seconds on a busy machine; before, it was for ever."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "s", environment={"TOBAN_LIMITS_ARTIFACT_TIME": "3s"}) as made:
        yield made


def takes_huge_files(directory: Path) -> bool:
    probe = directory / "probe"
    try:
        probe.touch()
        os.truncate(probe, 10 * 1024**4)
    except OSError:
        return False
    finally:
        probe.unlink()
    return True


def test_four_steps_that_watch_ten_terabytes_disturb_no_other_run(daemon: Daemon, tmp_path: Path) -> None:
    if not takes_huge_files(tmp_path):
        pytest.skip("no file of 10 TiB here")
    steps = "".join(SPARSE_STEP % {"number": number} for number in range(4))
    daemon.apply(SPARSE % {"steps": steps})
    daemon.apply(NORMAL)
    bad = daemon.start_run("sparse")
    wait_until(
        lambda: all(step.iteration >= 2 for step in daemon.get_run(bad).steps),
        "the huge files are still being read",
        WITHIN,
    )
    for _ in range(3):
        assert run_state(daemon.wait_run(daemon.start_run("normal"), WITHIN)) == "SUCCEEDED"
    began = time.monotonic()
    daemon.cancel(bad)
    assert run_state(daemon.wait_run(bad, WITHIN)) == "CANCELLED"
    assert time.monotonic() - began < WITHIN

    again = daemon.start_run("sparse")
    daemon.wait_started(again, "step0")
    began = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - began < WITHIN
    daemon.start()
    assert run_state(daemon.wait_run(daemon.start_run("normal"), WITHIN)) == "SUCCEEDED"
    daemon.cancel(again)
    assert run_state(daemon.wait_run(again, WITHIN)) == "CANCELLED"


DENSE = """
name: dense
description: watches more than is read in an hour at the rate that the test allows
max_active_runs: 6
steps:
  only:
    run: head -c 8000000 /dev/urandom > dense
    workspace: "{{ run.dir }}"
    completion_check: {run: "false"}
    max_iterations: 1000
    stop_when_unchanged: dense
"""


def is_collecting(daemon: Daemon, run_id: str) -> bool:
    """Its process has ended, and its step has not."""
    return any(process_state(each) == "COMPLETED" for each in daemon.processes(run_id))


def test_runs_whose_files_take_hours_disturb_no_other_and_end_at_once(tmp_path: Path) -> None:
    environment = {"TOBAN_LIMITS_ARTIFACT_RATE": "1KiB"}
    with running_daemon(tmp_path / "s", environment=environment) as daemon:
        daemon.apply(DENSE)
        daemon.apply(NORMAL)
        bad = [daemon.start_run("dense") for _ in range(6)]
        for run_id in bad:
            wait_until(partial(is_collecting, daemon, run_id), "it does not begin")
        for _ in range(3):
            assert run_state(daemon.wait_run(daemon.start_run("normal"), WITHIN)) == "SUCCEEDED"
        daemon.cancel(bad[0])
        run = daemon.wait_run(bad[0], WITHIN)
        assert (run_state(run), step_states(run)) == ("CANCELLED", {"only": "CANCELLED"})

        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < WITHIN
        daemon.start()
        assert run_state(daemon.wait_run(daemon.start_run("normal"), WITHIN)) == "SUCCEEDED"
        for run_id in bad[1:]:
            daemon.cancel(run_id)
            assert run_state(daemon.wait_run(run_id, WITHIN)) == "CANCELLED"
            assert len(daemon.processes(run_id)) == 1, "its process was started again"


needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small disk needs root"
)
FULL = """
name: full
description: leaves more than there is room for
context_dir: %(disk)s/context
steps:
  make:
    run: head -c 4000000 /dev/zero | tr '\\\\0' x > out
    workspace: "{{ run.dir }}"
    outputs: [{name: out, path: out}]
"""


def conditions(daemon: Daemon) -> dict[str, str]:
    found = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).health.conditions
    return {each.name: each.detail for each in found}


@needs_mounts
def test_outputs_that_do_not_fit_fail_the_step_when_its_time_is_over(daemon: Daemon, tmp_path: Path) -> None:
    daemon.apply(NORMAL)
    with small_disk(tmp_path / "small", 8 * MIB) as disk:
        fill(disk / "filling", leave=MIB)
        daemon.apply(FULL % {"disk": disk})
        run_id = daemon.start_run("full")
        said = wait_until(lambda: conditions(daemon).get("outputs"), "the health does not say so")
        assert "No space left on device" in said
        assert run_state(daemon.run("normal")) == "SUCCEEDED"
        run = daemon.wait_run(run_id, WITHIN)
        assert step_states(run) == {"make": "FAILED"}
        reason = steps_of(run)["make"].reason
        assert reason.startswith("cannot keep its outputs within 3s: "), reason
        assert "No space left on device" in reason
        assert "outputs" not in conditions(daemon)
        # With room again the same step succeeds.
        (disk / "filling").unlink()
        assert run_state(daemon.run("full")) == "SUCCEEDED"


@needs_mounts
def test_a_run_whose_outputs_do_not_fit_is_cancelled_at_once(tmp_path: Path) -> None:
    with (
        running_daemon(tmp_path / "s") as daemon,
        small_disk(tmp_path / "small", 8 * MIB) as disk,
    ):
        fill(disk / "filling", leave=MIB)
        daemon.apply(FULL % {"disk": disk})
        run_id = daemon.start_run("full")
        wait_until(lambda: "outputs" in conditions(daemon), "the health does not say so")
        daemon.cancel(run_id)
        run = daemon.wait_run(run_id, WITHIN)
        assert run_state(run) == "CANCELLED"
        assert step_states(run) == {"make": "CANCELLED"}
        assert "outputs" not in conditions(daemon)
