"""The daemon and its spawner are killed with -9 again and again under load. Nothing is lost, doubled or untrue.

No shim is killed here, so nothing may be LOST but what lost its file for good. See docs/faults.md for how to repeat a
run or make it longer.
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
from faults.saboteur import Saboteur
from faults.settings import KILLS, SEED, announce
from faults.witness import Witness
from faults.workload import workload
from helpers.daemon import running_daemon
from toband.supervise.logs.compressed_log import SUFFIX


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


@pytest.mark.slow
@pytest.mark.timeout(300 + 10 * KILLS)
def test_attempt_files_that_vanish_between_two_lives_repeat_nothing(tmp_path: Path) -> None:
    """Removed, truncated and replaced while the daemon is dead: every start succeeds, and every state is true."""
    lives = KILLS // 5
    announce(f"TOBAN_TEST_KILLS={KILLS}")
    rng = random.Random(f"{SEED} files")
    witness = tmp_path / "witness"
    witness.touch()
    workflows = workload()
    with running_daemon(tmp_path / "s", environment=ENVIRONMENT) as daemon:
        for model in workflows.values():
            daemon.apply(model.definition(witness))
        load = Load(daemon.state_dir, workflows, rng.random())
        killer = Killer(daemon, rng.random())
        saboteur = Saboteur(daemon.state_dir, rng.random())
        load.start()
        try:
            daemon.kill()
            for _ in range(lives):
                killer.next_life()
                saboteur.strike()
            # On a busy machine there may be nothing to strike for a while.
            while saboteur.ways.total() < lives / 2:
                killer.next_life()
                saboteur.strike()
            daemon.start()
            load.stop()
        except BaseException:
            load.abandon()
            raise
        history = read_history(daemon)
        defects = check(workflows, load.ledger, history, Witness.read(witness), lost=saboteur.lost)
        defects += check_left(daemon.state_dir)
    ways = ", ".join(f"{way}: {count}" for way, count in saboteur.ways.most_common())
    print(f"{killer.ways.total()} kills, {len(history.runs)} runs, files {ways}")
    assert not defects, report(defects)
