"""A daemon that starts on a state directory with damaged files."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

from fuzz.attempt_targets import FILES
from fuzz.mutation import mutated_bytes, mutated_frames
from fuzz.target import Check, Target
from helpers.daemon import Daemon, process_state, run_state, running_daemon
from helpers.processes import kill, users_of
from helpers.wait import wait_until
from toban.v1 import system_pb2
from toband.supervise.shim import frames

RUNS = 6
_ENDED = 3
_ENDS_WITHIN = 90.0
_SMALL_FILES = ("boot.json", "toband.json", "definition-files.jsonl")


def _source(witness: Path) -> str:
    script = (
        f"echo $TOBAN_RUN_ID >> {witness}/begun; echo before; "
        f"while [ ! -e {witness}/go-{{{{ params.n }}}} ]; do sleep 0.05; done; "
        "echo k=v > $TOBAN_OUTPUT; echo after"
    )
    return (
        "name: gated\ndescription: x\noverlap: allow\nparams: {n: {type: integer}}\n"
        f"steps: [{{name: only, run: '{script}', kill_grace: 1s}}]\n"
    )


class Round:
    """Runs under way when the daemon was killed; some ended meanwhile; the files of some are damaged."""

    def __init__(self, daemon: Daemon, witness: Path, random: Random) -> None:
        self._daemon = daemon
        self._witness = witness
        self._random = random
        daemon.apply(_source(witness))
        self._runs = [daemon.start_run("gated", n=number) for number in range(RUNS)]
        for run_id in self._runs:
            daemon.wait_started(run_id, "only")
        self._victims: dict[str, str] = {}

    def play(self) -> str:
        self._daemon.kill()
        for number in range(_ENDED):
            self._open_gate(number)
        for run_id in self._runs[:_ENDED]:
            wait_until(partial(_ended, self._log(run_id)), "it does not end")
        for run_id in self._random.sample(self._runs, self._random.choice((1, 2, 3))):
            self._victims[run_id] = self._damage(self._log(run_id))
        for name in _SMALL_FILES:
            self._damage_small(self._daemon.state_dir / name)
        self._daemon.start()
        for number in range(_ENDED, RUNS):
            self._open_gate(number)
        self._expect_ends()
        self._expect_health()
        return ", ".join(sorted(self._victims.values()))

    def _open_gate(self, number: int) -> None:
        (self._witness / f"go-{number}").touch()

    def _log(self, run_id: str) -> Path:
        (found,) = (self._daemon.state_dir / "runs" / run_id / "attempts").glob("*.log")
        return found

    def _damage(self, path: Path) -> str:
        """The damage."""
        data = path.read_bytes()
        match self._random.randrange(6):
            case 0:
                path.unlink()
                return "deleted"
            case 1:
                os.truncate(path, self._random.randrange(len(data)))
                return "truncated"
            case 2:
                path.unlink()
                path.write_bytes(mutated_frames(self._random, data, FILES))
                return "replaced"
            case 3:
                shutil.rmtree(path.parent)
                return "directory deleted"
            case _:
                path.write_bytes(mutated_frames(self._random, data, FILES))
                return "changed"

    def _damage_small(self, path: Path) -> None:
        if path.exists() and self._random.randrange(2):
            path.write_bytes(mutated_bytes(self._random, path.read_bytes(), ()))

    def _expect_ends(self) -> None:
        """Others succeed. A victim succeeds or is LOST. Nothing runs twice."""
        for run_id in self._runs:
            run = self._daemon.wait_run(run_id, within=_ENDS_WITHIN)
            attempts = [process_state(each) for each in self._daemon.processes(run_id)]
            shown = f"{self._victims.get(run_id, 'unharmed')}: {run_state(run)}, attempts {attempts}"
            if run_id not in self._victims:
                assert run_state(run) == "SUCCEEDED", shown
            else:
                assert run_state(run) in ("SUCCEEDED", "FAILED"), shown
        begun = (self._witness / "begun").read_text().split()
        assert sorted(begun) == sorted(self._runs), f"{begun} began, {self._victims} were damaged"

    def _expect_health(self) -> None:
        self._daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
        self._daemon.system.Doctor(system_pb2.DoctorRequest(), timeout=60)
        for run_id in self._runs:
            self._daemon.log_of(run_id)
        runs = self._daemon.state_dir / "runs"
        wait_until(lambda: not users_of(runs), f"steps are left: {self._victims}", 60)


def _ended(path: Path) -> bool:
    with path.open("rb") as file:
        return frames.read_end(file.fileno()) is not None


@contextlib.contextmanager
def _rounds(work: Path) -> Iterator[Check]:
    def check(data: bytes) -> str:
        """The start succeeds, other runs finish, and each attempt ends as it did or is LOST."""
        own = work / f"r{len(os.listdir(work))}"
        (own / "w").mkdir(parents=True)
        try:
            with running_daemon(own / "s") as daemon:
                return Round(daemon, own / "w", Random(data)).play()
        finally:
            for left in users_of(own):
                kill(left)
            shutil.rmtree(own, ignore_errors=True)

    yield check


def _another_seed(random: Random, _data: bytes, _others: Sequence[bytes]) -> bytes:
    return str(random.randrange(2**32)).encode()


TARGETS = (
    Target(
        name="state-directory",
        reads="the files of a state directory, when a daemon starts on it",
        samples=(b"1",),
        mutate=_another_seed,
        opened=_rounds,
        seconds=None,
    ),
)
