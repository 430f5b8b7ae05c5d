"""The power fails under load, again and again: acknowledged changes are there, and every report is true.

The state directory is on a disk that is shut down without writing back; every process of the daemon is ended, the disk
is mounted again, and the next daemon believes that the machine was started anew. The witness file is on another disk.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from faults import power
from faults.checker import check, report
from faults.history import AttemptOnDisk, read_history
from faults.leftovers import check_left, end_all
from faults.load import ENVIRONMENT, Load
from faults.saboteur import Saboteur
from faults.scene import daemon_on
from faults.settings import CUTS, SEED, announce
from faults.witness import Witness
from faults.workload import workload
from helpers.daemon import Daemon
from helpers.processes import Process, alive, seen, state_of
from toban.v1 import run_pb2

pytestmark = pytest.mark.skipif(bool(power.why_not()), reason=f"no power cuts: {power.why_not()}")

# Stopping there, and not going on: the cut comes on one side of something that is to be durable.
DAEMON_STOPS = (
    "store.before_commit",
    "store.after_commit",
    "launch.before_send",
    "launch.after_send",
)
SHIM_STOPS = (
    "claim.linked",
    "shim.claimed",
    "shim.started",
    "end.before",
    "end.written",
    "end.durable",
)
LIFE = 1.5


class Machine:
    """A daemon, its disk and its boots."""

    def __init__(self, daemon: Daemon, disk: power.Disk, scratch: Path, seed: float) -> None:
        self.daemon = daemon
        self.cuts: list[float] = []
        self.ways: Counter[str] = Counter()
        self._disk = disk
        self._scratch = scratch
        self._rng = random.Random(seed)

    def boot(self, environment: dict[str, str] | None = None) -> Process:
        boot_id = {"TOBAN_BOOT_ID": f"boot-{len(self.cuts)}"}
        self.daemon.start({**boot_id, **(environment or {})}, wait=False)
        process = seen(self.daemon.pid)
        # It may be stopped before it serves.
        while not _stopped(process) and not self._serves():
            assert alive(process), f"the daemon did not start:\n{self.daemon.tail()}"
            signal.sigtimedwait([], 0.005)
        return process

    def live_until_cut(self) -> None:
        way, environment = self._chosen()
        process = self.boot(environment)
        deadline = time.monotonic() + self._rng.uniform(0.3, LIFE)
        while time.monotonic() < deadline and not _stopped(process):
            signal.sigtimedwait([], 0.005)
        self._disk.cut()
        self.cuts.append(time.time())
        self.ways[way] += 1
        end_all(self._disk.directory, process)
        self.daemon.kill()
        self._disk.off()
        self._disk.on()
        database = self.daemon.state_dir / "toban.db"
        assert power.integrity(database, self._scratch) == "ok"

    def _chosen(self) -> tuple[str, dict[str, str]]:
        choice = self._rng.random()
        if choice < 0.3:
            name = self._rng.choice(DAEMON_STOPS)
            return name, {"TOBAN_FAILPOINTS": f"{name}=stop@{self._rng.randint(1, 30)}"}
        if choice < 0.6:
            name = self._rng.choice(SHIM_STOPS)
            return name, {"TOBAN_FAILPOINTS_SPAWNER": f"{name}=stop@1"}
        return "at any moment", {}

    def _serves(self) -> bool:
        return self.daemon.announced() == self.daemon.pid

    def excuse(self, process: run_pb2.ProcessExecution, file: AttemptOnDisk | None) -> str:
        """Exactly the steps that ran when the power failed are LOST."""
        started = process.started_at.ToMicroseconds() / 1e6
        finished = process.finished_at.ToMicroseconds() / 1e6
        if not any(started <= cut <= finished for cut in self.cuts):
            return f"no cut between {started} and {finished}"
        if file is None:
            return "there is no claim"
        if process.error_message != "the machine went down while the step ran":
            return "it does not say why"
        return "there is an end record" if file.ended else ""

    def unkept(self, process: run_pb2.ProcessExecution, step: run_pb2.Step) -> str:
        """What a step left in its workspace is gone if the power failed before it was kept."""
        done = process.finished_at.ToMicroseconds() / 1e6
        failed = step.finished_at.ToMicroseconds() / 1e6
        if any(done <= cut <= failed for cut in self.cuts):
            return ""
        return f"no cut between {done} and {failed}"


def _stopped(process: Process) -> bool:
    return state_of(process.pid) == "T"


@pytest.mark.slow
@pytest.mark.timeout(300 + 10 * CUTS)
@pytest.mark.parametrize("files", ["whole", "damaged"])
def test_power_cuts_lose_nothing_that_was_acknowledged(tmp_path: Path, files: str) -> None:
    """With `damaged`, files of active attempts are removed, truncated and replaced while the power is off."""
    announce(f"TOBAN_TEST_CUTS={CUTS}")
    rng = random.Random(SEED)
    witness = tmp_path / "witness"
    witness.touch()
    workflows = workload()
    with (
        power.disk(tmp_path) as disk,
        daemon_on(disk.directory, tmp_path / "daemon.log", ENVIRONMENT) as daemon,
    ):
        machine = Machine(daemon, disk, tmp_path / "copy", rng.random())
        load = Load(daemon.state_dir, workflows, rng.random())
        saboteur = Saboteur(daemon.state_dir, rng.random())
        machine.boot()
        for model in workflows.values():
            daemon.apply(model.definition(witness))
        daemon.stop()
        load.start()
        try:
            for _ in range(CUTS):
                machine.live_until_cut()
                if files == "damaged":
                    saboteur.strike()
            # On a busy machine lives are over before much has happened.
            while len(load.ledger.workflows) < CUTS:
                machine.live_until_cut()
            machine.boot()
            load.stop()
        except BaseException:
            load.abandon()
            raise
        history = read_history(daemon)
        found = Witness.read(witness)

        def lost(process: run_pb2.ProcessExecution, file: AttemptOnDisk | None) -> str:
            return machine.excuse(process, file) and saboteur.lost(process, file)

        defects = check(workflows, load.ledger, history, found, lost=lost, unkept=machine.unkept)
        defects += check_left(daemon.state_dir)
    count = sum(
        process.state == run_pb2.PROCESS_STATE_LOST for processes in history.processes.values() for process in processes
    )
    ways = ", ".join(f"{way}: {count}" for way, count in machine.ways.most_common())
    print(f"{CUTS} cuts ({ways}), {len(history.runs)} runs, {count} lost attempts, files {saboteur.ways}")
    assert not defects, report(defects)
    assert len(history.runs) >= CUTS, "too little happened to prove anything"
