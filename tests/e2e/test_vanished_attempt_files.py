"""Attempt files that are removed or replaced, by the step itself or while the daemon is down: nothing runs twice.

Each step writes a line into a witness file of its own when it begins.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.daemon import Daemon, process_state, run_state, running_daemon
from helpers.gate import Gate
from helpers.processes import Process, alive, kill, seen, stat_of
from helpers.wait import wait_until
from toban.v1 import run_pb2
from toband.supervise.shim import frames

OUT = run_pb2.LOG_STREAM_STDOUT


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("d") / "s") as running:
        yield running


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    path = tmp_path / "witness"
    path.touch()
    return path


def begins(witness: Path) -> int:
    return len(witness.read_text().splitlines())


def apply(daemon: Daemon, name: str, script: str, **fields: object) -> str:
    step: dict[str, object] = {"name": "only", "on_lost": "rerun", "run": script, **fields}
    daemon.apply(json.dumps({"name": name, "description": "x", "steps": [step]}))
    return name


def claims(daemon: Daemon) -> Path:
    return daemon.state_dir / "runs" / ".claims"


def attempts(daemon: Daemon, run_id: str) -> Path:
    return daemon.state_dir / "runs" / run_id / "attempts"


def supervisor(daemon: Daemon, run_id: str) -> tuple[Process, Process]:
    """Shim and step, once the database knows that it runs."""
    step = seen(daemon.wait_started(run_id, "only"))
    stat = stat_of(step.pid)
    assert stat is not None
    return seen(stat.parent), step


REMOVALS = {
    "log": 'rm "$(dirname "$TOBAN_OUTPUT")"/*.log',
    "attempts": 'rm -r "$(dirname "$TOBAN_OUTPUT")"',
    "run": 'cd /; rm -r "$(dirname "$(dirname "$TOBAN_OUTPUT")")"',
}


@pytest.mark.parametrize("what", REMOVALS)
@pytest.mark.parametrize("lasts", ["0", "0.5"])
def test_a_step_that_removes_its_own_files_runs_once_and_its_end_is_known(
    daemon: Daemon, witness: Path, what: str, lasts: str
) -> None:
    script = f"echo x >> {witness}; echo said; {REMOVALS[what]}; sleep {lasts}"
    run = daemon.run(apply(daemon, f"removes-{what}-{lasts.replace('.', '-')}", script))

    assert (run_state(run), begins(witness)) == ("SUCCEEDED", 1)
    assert daemon.log_of(run.id) == {OUT: b"said\n"}
    wait_until(lambda: not list(claims(daemon).iterdir()), "a second name stays")


@pytest.mark.parametrize("lasts", ["0", "0.5"])
def test_a_step_that_removes_both_names_of_its_file_is_lost_and_not_run_again(
    daemon: Daemon, witness: Path, lasts: str
) -> None:
    # The second name first: the daemon would give the file its first one back.
    both = f"rm -r {claims(daemon)}; {REMOVALS['run']}"
    script = f"echo x >> {witness}; {both}; sleep {lasts}"
    name = apply(daemon, f"removes-both-{lasts.replace('.', '-')}", script, on_lost="fail")
    run = daemon.run(name)
    process = daemon.process_of(run.id, "only")

    assert (run_state(run), process_state(process), begins(witness)) == ("FAILED", "LOST", 1)
    assert "its attempt file is gone" in process.error_message


FORGED_VOID = """
import json, os, sys, time
from toband.supervise.shim import frames
with open(sys.argv[1], "a") as file:
    file.write("x\\n")
folder = os.path.dirname(os.environ["TOBAN_OUTPUT"])
(name,) = [each for each in os.listdir(folder) if each.endswith(".log")]
with open(f"{folder}/{name}", "rb") as file:
    claim = frames.read_claim(file.fileno())
void = {"format": 1, "attempt": claim["attempt"], "token": claim["token"], "void": True}
# Into the very file, so that both names say so.
with open(f"{folder}/{name}", "r+b") as file:
    file.truncate(0)
    file.write(frames.encode_json(frames.CLAIM, 1, void))
time.sleep(float(sys.argv[2]))
os.kill(os.getppid(), 9)
time.sleep(600)
"""


@pytest.mark.parametrize("lasts", ["0", "0.5"])
def test_a_step_that_says_that_it_never_began_is_lost(daemon: Daemon, witness: Path, lasts: str) -> None:
    args = ["-c", FORGED_VOID, str(witness), lasts]
    step = {"name": "only", "job_type": "exec", "target": sys.executable, "args": args}
    name = f"void-{lasts.replace('.', '-')}"
    daemon.apply(json.dumps({"name": name, "description": "x", "steps": [step]}))
    run = daemon.run(name)
    process = daemon.process_of(run.id, "only")

    assert (run_state(run), process_state(process), begins(witness)) == ("FAILED", "LOST", 1)


def remove_log(daemon: Daemon, run_id: str) -> None:
    for path in attempts(daemon, run_id).glob("*.log"):
        path.unlink()


def remove_run(daemon: Daemon, run_id: str) -> None:
    shutil.rmtree(daemon.state_dir / "runs" / run_id)


def replace_log(daemon: Daemon, run_id: str) -> None:
    for path in attempts(daemon, run_id).glob("*.log"):
        path.with_suffix(".new").write_bytes(frames.encode_json(frames.CLAIM, 1, {"void": True}))
        path.with_suffix(".new").rename(path)


def remove_both(daemon: Daemon, run_id: str) -> None:
    remove_run(daemon, run_id)
    for path in claims(daemon).iterdir():
        path.unlink()


def truncate(daemon: Daemon, run_id: str) -> None:
    for path in attempts(daemon, run_id).glob("*.log"):
        path.write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "known"),
    [
        (remove_log, True),
        (remove_run, True),
        (replace_log, True),
        (remove_both, False),
        (truncate, False),
    ],
)
def test_a_file_damaged_while_the_daemon_is_down_gives_no_second_copy(
    tmp_path: Path, witness: Path, damage: Callable[[Daemon, str], None], known: bool
) -> None:
    """The step lives: it is found, supervised, and ended by a cancel."""
    with running_daemon(tmp_path / "s") as daemon:
        gate = Gate(f"{tmp_path}/gate")
        # It works in its run's directory, which may go.
        script = f"cd /; echo x >> {witness}; echo said; read _ < {gate.path}"
        kept = daemon.start_run(apply(daemon, "ends", script, on_lost="fail"))
        shim, step = supervisor(daemon, kept)
        daemon.kill()
        damage(daemon, kept)
        daemon.start()
        wait_until(lambda: len(recoveries(daemon)) == 2, "it is not looked for")
        assert recoveries(daemon)[-1] == 1
        assert (alive(shim), alive(step), begins(witness)) == (True, True, 1)
        gate.release_now()
        run = daemon.wait_run(kept)
        process = daemon.process_of(kept, "only")
        expected = ("SUCCEEDED", "COMPLETED") if known else ("FAILED", "LOST")
        assert (run_state(run), process_state(process)) == expected
        assert begins(witness) == 1
        if known:
            assert daemon.log_of(kept) == {OUT: b"said\n"}

        stopped = daemon.start_run(apply(daemon, "stays", f"cd /; echo x >> {witness}; sleep 600"))
        _, step = supervisor(daemon, stopped)
        daemon.kill()
        damage(daemon, stopped)
        daemon.start()
        wait_until(lambda: len(recoveries(daemon)) == 3, "it is not looked for")
        assert recoveries(daemon)[-1] == 1
        daemon.cancel(stopped)
        run = daemon.wait_run(stopped)
        assert not alive(step), "the cancel left it running"
        assert run_state(run) == ("CANCELLED" if known else "FAILED")
        assert begins(witness) == 2


def test_a_lost_step_without_a_file_is_not_launched_again(tmp_path: Path, witness: Path) -> None:
    """Shim and step are killed, and all names of the file removed, while the daemon is down."""
    with running_daemon(tmp_path / "s") as daemon:
        name = apply(daemon, "gone", f"cd /; echo x >> {witness}; sleep 600", on_lost="fail")
        run_id = daemon.start_run(name)
        shim, step = supervisor(daemon, run_id)
        daemon.kill()
        for process in (shim, step):
            kill(process)
            wait_until(lambda process=process: not alive(process), "it lives on")  # type: ignore[misc]
        remove_both(daemon, run_id)
        daemon.start()
        run = daemon.wait_run(run_id)
        process_seen = daemon.process_of(run_id, "only")
        assert (run_state(run), process_state(process_seen)) == ("FAILED", "LOST")
        assert "its attempt file is gone" in process_seen.error_message
        assert begins(witness) == 1


def recoveries(daemon: Daemon) -> list[int]:
    """How many attempts each start of the daemon found alive, as far as it has looked."""
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if line[:1] == "{"]
    return [each["reattached"] for each in lines if each.get("action") == "recovered"]
