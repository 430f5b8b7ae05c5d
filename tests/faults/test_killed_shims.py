"""Shims are killed too: only their attempts may be LOST. Nothing runs twice, and no process is left."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from faults.checker import check, report
from faults.history import read_history
from faults.leftovers import check_left
from faults.load import ENVIRONMENT, Load
from faults.settings import SEED, SHIM_ROUNDS, announce
from faults.shims import ShimKiller
from faults.witness import Witness
from faults.workload import workload
from helpers.daemon import process_state, running_daemon


@pytest.mark.slow
@pytest.mark.timeout(300 + 6 * SHIM_ROUNDS)
def test_only_what_a_killed_shim_served_is_lost(tmp_path: Path) -> None:
    announce(f"TOBAN_TEST_SHIM_ROUNDS={SHIM_ROUNDS}")
    rng = random.Random(SEED)
    witness = tmp_path / "witness"
    witness.touch()
    workflows = workload(rerun=True)
    with running_daemon(tmp_path / "s", environment=ENVIRONMENT) as daemon:
        for model in workflows.values():
            daemon.apply(model.definition(witness))
        load = Load(daemon.state_dir, workflows, rng.random())
        killer = ShimKiller(daemon, rng.random())
        load.start()
        try:
            daemon.kill()
            for _ in range(SHIM_ROUNDS):
                killer.next_life()
            killer.kill_one_that_serves()
            daemon.start()
            load.stop()
        except BaseException:
            load.abandon()
            raise
        history = read_history(daemon)
        found = Witness.read(witness)
        defects = check(
            workflows,
            load.ledger,
            history,
            found,
            lost=killer.lost,
            unstarted=killer.unstarted,
        )
        defects += check_left(daemon.state_dir)
    lost = [
        process for processes in history.processes.values() for process in processes if process_state(process) == "LOST"
    ]
    ways = ", ".join(f"{way}: {count}" for way, count in killer.ways.most_common())
    print(f"{SHIM_ROUNDS} rounds ({ways}), {len(history.runs)} runs, {len(lost)} lost attempts")
    assert not defects, report(defects)
    assert lost, "too little happened to prove anything"
