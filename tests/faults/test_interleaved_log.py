"""A million lines to both streams, the daemon killed twice on the way: not a byte is missing, or too many."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from faults import interleaving_step
from helpers.daemon import run_state, running_daemon
from helpers.gate import Gate
from toban.v1 import run_pb2

LINES = 1_000_000


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
