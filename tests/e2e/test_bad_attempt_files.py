"""Attempt files with content that no shim wrote: each costs its own attempt only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.daemon import Daemon, process_state, run_state, running_daemon
from helpers.gate import Gate
from helpers.processes import alive, kill, seen
from helpers.wait import wait_until
from toban.v1 import run_pb2, system_pb2
from toband.supervise.shim import frames


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "s") as running:
        yield running


def log_file(daemon: Daemon, run_id: str) -> Path:
    (found,) = (daemon.state_dir / "runs" / run_id / "attempts").glob("*.log")
    return found


def claim_in(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        claim = frames.read_claim(file.fileno())
    assert claim is not None
    return claim


def rewritten(claim: Any, *more: bytes) -> bytes:
    return frames.encode_json(frames.CLAIM, 1, claim) + b"".join(more)


def end_frame(claim: dict[str, Any], **facts: Any) -> bytes:
    return frames.encode_end(2, {"seal": claim["seal"], **facts})


WHOLE = {
    "cause": "exited",
    "error": "",
    "pid": 7,
    "started_at": 1,
    "finished_at": 2,
    "exit_code": 0,
    "signal": None,
    "signals": [],
    "leftovers": 0,
    "survivors": 0,
    "proved_empty": True,
    "took": 0.0,
    "stdout_bytes": 1,
    "stderr_bytes": 2,
    "dropped": 0,
    "user_time": 0.0,
    "system_time": 0.0,
    "max_rss": 0,
}
BAD: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "end-without-keys": lambda claim: rewritten(claim, end_frame(claim)),
    "claim-is-a-list": lambda _: rewritten([1, 2, 3]),
    "claim-is-no-json": lambda _: frames.encode(frames.CLAIM, 1, b"{nonsense"),
    "claim-has-nan": lambda claim: rewritten(claim | {"pid": float("nan")}),
    "claim-lacks-its-boot": lambda claim: rewritten({k: v for k, v in claim.items() if k != "boot_id"}),
    "claim-of-another": lambda claim: rewritten(claim | {"token": "other"}),
    "negative-times": lambda claim: rewritten(claim, end_frame(claim, **{**WHOLE, "finished_at": -1})),
    "huge-number": lambda claim: rewritten(claim, end_frame(claim, **{**WHOLE, "stdout_bytes": 1 << 80})),
    "unknown-cause": lambda claim: rewritten(claim, end_frame(claim, **{**WHOLE, "cause": "luck"})),
    "garbage": lambda _: b"\xff" * 5000,
    "empty": lambda _: b"",
}


def test_bad_attempt_files_stop_neither_the_start_nor_another_run(daemon: Daemon, tmp_path: Path) -> None:
    witness, gate = tmp_path / "witness", Gate(f"{tmp_path}/gate")
    for name in BAD:
        daemon.apply(f"""
name: {name}
description: x
steps: [{{name: only, run: 'echo {name} >> {witness}; exec sleep 600'}}]
""")
    daemon.apply(f"""
name: good
description: x
steps: [{{name: only, run: 'echo good >> {witness}; read _ < {gate.path}'}}]
""")
    runs = {name: daemon.start_run(name) for name in (*BAD, "good")}
    steps = {name: seen(daemon.wait_started(run_id, "only")) for name, run_id in runs.items()}
    wait_until(lambda: len(witness.read_text().split()) == len(runs), "they do not begin")
    claims = {name: claim_in(log_file(daemon, run_id)) for name, run_id in runs.items()}
    daemon.kill()
    for name, text in BAD.items():
        shim = seen(claims[name]["pid"])
        for each in (shim, steps[name]):
            kill(each)
            wait_until(lambda each=each: not alive(each), "it does not die")  # type: ignore[misc]
        log_file(daemon, runs[name]).write_bytes(text(claims[name]))
    daemon.start()
    for name in BAD:
        run = daemon.wait_run(runs[name])
        process = daemon.process_of(run.id, "only")
        assert (name, run_state(run), process_state(process)) == (name, "FAILED", "LOST")
        assert "is damaged or forged" in process.error_message, name
    gate.release_now()
    assert run_state(daemon.wait_run(runs["good"])) == "SUCCEEDED"
    assert sorted(witness.read_text().split()) == sorted(runs)
    told = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).health.conditions
    assert [each.name for each in told] == ["attempt_records"]
    found = daemon.system.Doctor(system_pb2.DoctorRequest(), timeout=60).findings
    (damaged,) = [each for each in found if each.check == "attempt files"]
    assert f"{len(BAD)} damaged attempt files" in damaged.detail


FORGER = """
import os, signal, sys
from toband.supervise.shim import frames
witness, folder = sys.argv[1], os.path.dirname(os.environ["TOBAN_OUTPUT"])
with open(witness, "a") as file:
    file.write(os.environ["TOBAN_ATTEMPT_TOKEN"] + "\\n")
(name,) = [each for each in os.listdir(folder) if each.endswith(".log")]
with open(f"{folder}/{name}", "r+b") as file:
    seal = frames.read_claim(file.fileno())["seal"]
    file.seek(0, os.SEEK_END)
    file.write(frames.encode_end(1, {"seal": seal, "cause": "exited"}))
os.kill(os.getppid(), signal.SIGKILL)
signal.pause()
"""


def test_a_step_that_forges_its_end_record_is_lost_and_reported(daemon: Daemon, tmp_path: Path) -> None:
    """While the daemon runs: the record is read in a callback of its event loop."""
    witness = tmp_path / "witness"
    args = ["-c", FORGER, str(witness)]
    step = {"name": "only", "job_type": "exec", "target": sys.executable, "args": args}
    daemon.apply(json.dumps({"name": "forger", "description": "x", "steps": [step]}))
    run = daemon.run("forger")
    process = daemon.process_of(run.id, "only")

    assert (run_state(run), process_state(process)) == ("FAILED", "LOST")
    assert "its end record lacks 'error'" in process.error_message
    assert process.ending.orphans == run_pb2.ORPHANS_ENDED
    assert len(witness.read_text().split()) == 1
    told = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).health.conditions
    assert [each.name for each in told] == ["attempt_records"]
