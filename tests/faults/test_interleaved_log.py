"""A million lines to both streams, the daemon killed twice on the way: not a byte is missing, or too many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from faults import interleaving_step
from faults.settings import LONG
from helpers.daemon import run_state, running_daemon
from helpers.gate import Gate
from helpers.wait import wait_until
from toban.v1 import run_pb2

LINES = 1_000_000
RESTARTS = 50 if LONG else 4


@pytest.mark.slow
def test_a_million_lines_outlive_two_kills_to_the_byte(tmp_path: Path) -> None:
    gates = [Gate(f"{tmp_path}/gate{n}") for n in range(2)]
    program = str(Path(interleaving_step.__file__).resolve())
    step = {
        "job_type": "exec",
        "target": sys.executable,
        "args": ["-I", "-S", program, str(LINES), *(gate.path for gate in gates)],
    }
    with running_daemon(tmp_path / "s") as daemon:
        daemon.apply(json.dumps({"name": "loud", "description": "x", "steps": {"only": step}}))
        run_id = daemon.start_run("loud")
        for gate in gates:
            # It goes on printing, and nobody is there.
            gate.release_now()
            daemon.kill()
            daemon.start()
        printed = daemon.log_of(run_id, follow=True)
        run = daemon.wait_run(run_id)
        process = daemon.process_of(run_id, "only")
        again = daemon.log_of(run_id)
    expected = interleaving_step.text(LINES)
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert (process.stdout_log_bytes, process.stderr_log_bytes) == tuple(map(len, expected))
    # Not compared by assert itself, which would describe the difference of megabytes.
    for got in (printed, again):
        assert set(got) == {run_pb2.LOG_STREAM_STDOUT, run_pb2.LOG_STREAM_STDERR}
        same = [got[stream] == text for stream, text in zip(sorted(got), expected, strict=True)]
        assert same == [True, True], "the log is not what the step wrote"
    assert sum(text.count(b"\n") for text in expected) == LINES


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_logs_f_shows_the_same_whatever_happens_to_the_daemon(tmp_path: Path) -> None:
    """`toban logs -f` of two parallel steps, with a kill or a clean stop of the daemon between any two lines."""
    names = ("a", "b")
    gates = {name: Gate(f"{tmp_path}/{name}") for name in names}
    script = "n=0; while [ $n -lt {0} ]; do read _ < {1}; n=$((n + 1)); echo line $n; done"
    steps = {name: {"run": script.format(RESTARTS, gates[name].path)} for name in names}
    shown = tmp_path / "shown"
    with running_daemon(tmp_path / "s") as daemon, shown.open("wb") as out:
        daemon.apply(json.dumps({"name": "lines", "description": "x", "steps": steps}))
        run_id = daemon.start_run("lines")
        follow = ["-m", "toban.cli", "--server", daemon.socket, "logs", "-f", run_id]
        with subprocess.Popen([sys.executable, *follow], stdout=out, stderr=subprocess.PIPE) as client:
            expected: list[str] = []
            try:
                for restart in range(RESTARTS):
                    for name in names if restart % 2 else reversed(names):
                        gates[name].release_now()
                        expected.append(f"{name} | line {restart + 1}\n")
                        if name == "a":
                            daemon.kill() if restart % 3 else daemon.stop()
                            daemon.start()
                        wait_until(lambda: _lines(shown) == len(expected), "a line", 120)
                assert client.wait(60) == 0, client.stderr and client.stderr.read()
            finally:
                client.kill()
        daemon.wait_run(run_id)
    assert shown.read_text() == "".join(expected)
