"""The daemon and its spawner are killed with -9 again and again under load. Nothing is lost, doubled or untrue.

No shim is killed here, so nothing may be LOST. See docs/faults.md for how to repeat a run or make it longer.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from faults.checker import check, report
from faults.history import read_history
from faults.killers import Killer
from faults.leftovers import check_left
from faults.load import ENVIRONMENT, Load
from faults.settings import KILLS, SEED, announce
from faults.witness import Witness
from faults.workload import workload
from helpers.daemon import running_daemon
from toband.supervise.compressed import SUFFIX


@pytest.mark.slow
@pytest.mark.timeout(300 + 10 * KILLS)
def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    announce(f"TOBAN_TEST_KILLS={KILLS}")
    rng = random.Random(SEED)
    witness = tmp_path / "witness"
    witness.touch()
    workflows = workload()
    with running_daemon(tmp_path / "s", environment=ENVIRONMENT) as daemon:
        for model in workflows.values():
            daemon.apply(model.definition(witness))
        load = Load(daemon.state_dir, workflows, rng.random())
        killer = Killer(daemon, rng.random())
        load.start()
        try:
            daemon.kill()
            for _ in range(KILLS - 1):
                killer.next_life()
            # On a busy machine lives are over before much has happened.
            while len(load.ledger.workflows) < KILLS / 3:
                killer.next_life()
            daemon.start()
            load.stop()
        except BaseException:
            load.abandon()
            raise
        history = read_history(daemon)
        defects = check(workflows, load.ledger, history, Witness.read(witness))
        defects += check_left(daemon.state_dir)
        packed = len(list(daemon.state_dir.glob(f"runs/*/attempts/*{SUFFIX}")))
    steps = sum(len(processes) for processes in history.processes.values())
    ways = ", ".join(f"{way}: {count}" for way, count in killer.ways.most_common())
    done = f"{len(history.runs)} runs, {steps} processes, {packed} compressed logs"
    print(f"{KILLS} kills ({ways}), {done}")
    assert not defects, report(defects)
    assert len(history.runs) >= KILLS / 3, "too little happened to prove anything"
