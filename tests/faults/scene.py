"""One daemon under load, one fault that comes and goes, and the proof that nothing came of it."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import grpc

from faults.checker import Excuse, check, never, report
from faults.history import History, read_history
from faults.leftovers import check_left, end_all
from faults.load import Load
from faults.settings import SEED, announce
from faults.witness import Witness
from faults.workload import workload
from helpers.daemon import Daemon, running_daemon
from helpers.wait import wait_until


class Scene:
    """Given to a test: `daemon` works under load, and must be the same process at the end."""

    def __init__(self, daemon: Daemon, load: Load, directory: Path) -> None:
        self.daemon = daemon
        self.load = load
        self.directory = directory
        self.history: History | None = None

    def wait_ended(self, more: int = 8) -> None:
        """Until so many more runs have been seen to end."""
        goal = len(self.load.ledger.ended) + more
        wait_until(lambda: len(self.load.ledger.ended) >= goal, "runs do not end", 60)

    def last(self, seconds: float) -> None:
        """Lets the fault last."""
        until = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() >= until, "time stands still", seconds + 30)


@contextlib.contextmanager
def daemon_on(disk: Path, log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    """A daemon, not started, with its state on a disk that may fail; its log is elsewhere.

    After a failure it is not asked to end in order, which it may not be able to do.
    """
    daemon = Daemon(disk / "s", environment=environment)
    daemon.log = log
    try:
        yield daemon
    except BaseException:
        end_all(disk)
        if daemon.process is not None:
            daemon.kill()
        raise
    daemon.clear()


@contextlib.contextmanager
def under_load(
    directory: Path,
    *,
    environment: Mapping[str, str] | None = None,
    refusals: Collection[grpc.StatusCode] = (),
    lost: Excuse = never,
    unstarted: Excuse = never,
) -> Iterator[Scene]:
    """Runs end before, and after. The daemon is never restarted. Raises AssertionError with all defects."""
    announce(directory.name)
    rng = random.Random(f"{SEED} {directory.name.rstrip('0123456789')}")
    witness = directory / "witness"
    witness.touch()
    workflows = workload()
    with running_daemon(directory / "s", environment=environment) as daemon:
        for model in workflows.values():
            daemon.apply(model.definition(witness))
        load = Load(daemon.state_dir, workflows, rng.random(), patient_with=refusals)
        scene = Scene(daemon, load, directory)
        pid = daemon.pid
        load.start()
        try:
            scene.wait_ended(4)
            yield scene
            scene.wait_ended()
            load.stop()
        except BaseException:
            load.abandon()
            raise
        assert daemon.process is not None
        assert daemon.process.poll() is None, f"the daemon ended:\n{daemon.tail()}"
        assert daemon.pid == pid, "the daemon was restarted"
        scene.history = read_history(daemon)
        defects = check(
            workflows,
            load.ledger,
            scene.history,
            Witness.read(witness),
            lost=lost,
            unstarted=unstarted,
        )
        defects += check_left(daemon.state_dir)
    assert not defects, report(defects)
