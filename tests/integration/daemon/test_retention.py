"""Finished logs and old runs on a real daemon: compressed under its readers' eyes, removed by the rules, never half."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from helpers.daemon import Daemon, run_state, running_daemon, texts
from helpers.gate import Gate
from helpers.processes import users_of
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.v1 import run_pb2 as pb
from toban.v1 import system_pb2

LINES = 300_000
LOUD = f"""
name: loud
description: prints a few megabytes on both streams
steps:
  - {{name: shout, run: "seq 1 {LINES}; seq -f '::progress %.0f/9' 9000; seq 1 {LINES} >&2; seq {LINES} -1 1"}}
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    settings = {"TOBAN_RETENTION_COMPRESS_AFTER": "1ms", "TOBAN_RETENTION_RUNS": "2"}
    with running_daemon(tmp_path / "s", environment=settings) as running:
        yield running


def toban(daemon: Daemon, *arguments: str) -> str:
    command = [sys.executable, "-m", "toban.cli", "--server", daemon.socket, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def collect(daemon: Daemon, dry_run: bool = False) -> system_pb2.CollectGarbageResponse:
    request = system_pb2.CollectGarbageRequest(dry_run=dry_run)
    return daemon.system.CollectGarbage(request, timeout=60)


def quick(name: str, **fields: Any) -> str:
    steps = [{"name": "say", "run": "echo said"}]
    return json.dumps({"name": name, "description": "d", **fields, "steps": steps})


def numbers(daemon: Daemon, workflow: str) -> list[int]:
    runs = daemon.runs.ListRuns(pb.ListRunsRequest(workflow=workflow), timeout=20).runs
    return sorted(run.number for run in runs)


def attempts(daemon: Daemon, run_id: str) -> list[str]:
    return sorted(os.listdir(daemon.state_dir / "runs" / run_id / "attempts"))


def directories(daemon: Daemon) -> list[str]:
    """Of runs; names that begin with a dot are the daemon's own."""
    return [name for name in os.listdir(daemon.state_dir / "runs") if not name.startswith(".")]


def snapshot(daemon: Daemon) -> dict[str, bytes]:
    """Every file of the runs. The second names of their claims are removed some time after their ends are stored."""
    top = daemon.state_dir / "runs"
    files = (path for path in top.rglob("*") if ".claims" not in path.parts and path.is_file())
    return {str(path): path.read_bytes() for path in files}


def test_readers_go_on_across_compression(daemon: Daemon) -> None:
    daemon.apply(LOUD)
    run_id = daemon.run("loud").id
    (name,) = [name for name in attempts(daemon, run_id) if name.endswith(".log")]
    original = (daemon.state_dir / "runs" / run_id / "attempts" / name).read_bytes()
    before = daemon.chunks(run_id)
    stored = daemon.chunks(run_id, raw=True)
    assert len(before) > 4
    assert b"::progress" not in b"".join(texts(before).values())

    following = daemon.runs.StreamLogs(pb.StreamLogsRequest(run_id=run_id, follow=True), timeout=60)
    read = [next(following)]
    # A supervisor that has told of its end may still be about to exit.
    wait_until(lambda: collect(daemon).compressed_logs, "not compressed")
    assert [each for each in attempts(daemon, run_id) if ".log" in each] == [f"{name}.gz"]
    read += list(following)
    assert texts(read) == texts(before)
    assert read[-1].end.complete

    assert daemon.chunks(run_id) == before
    assert texts(daemon.chunks(run_id, raw=True)) == texts(stored)
    for number in range(0, len(before) - 1, 2):
        rest = daemon.chunks(run_id, position=before[number].position)
        assert texts(rest) == texts(before[number + 1 :])
        assert rest[-1] == before[-1]
    tail = toban(daemon, "logs", run_id, "--step", "shout", "--tail", "3")
    assert tail == "3\n2\n1\n"
    compressed = daemon.state_dir / "runs" / run_id / "attempts" / f"{name}.gz"
    assert gzip.decompress(compressed.read_bytes()) == original
    assert collect(daemon).compressed_logs == 0


@pytest.mark.parametrize("place", ["compress.written", "compress.renamed"])
def test_a_crash_while_compressing_loses_nothing(tmp_path: Path, place: str) -> None:
    settings = {"TOBAN_RETENTION_COMPRESS_AFTER": "1ms"}
    with running_daemon(tmp_path / "s", environment=settings) as daemon:
        daemon.apply(LOUD)
        run_id = daemon.run("loud").id
        before = daemon.chunks(run_id)
        daemon.stop()
        wait_until(lambda: not users_of(daemon.state_dir), "supervisors stay")
        daemon.start({"TOBAN_FAILPOINTS": f"{place}=kill"})
        with pytest.raises(grpc.RpcError):
            collect(daemon)
        assert daemon.wait() == -signal.SIGKILL
        left = [name for name in attempts(daemon, run_id) if ".log" in name]
        assert len(left) == 2
        daemon.start()
        assert daemon.chunks(run_id) == before
        assert collect(daemon).compressed_logs == 1
        assert daemon.chunks(run_id) == before
        (name,) = [name for name in attempts(daemon, run_id) if ".log" in name]
        assert name.endswith(".log.gz")


@pytest.mark.parametrize("place", ["retention.marked", "retention.deleted"])
def test_a_crash_while_removing_leaves_nothing_behind(tmp_path: Path, place: str) -> None:
    settings = {"TOBAN_RETENTION_RUNS": "1"}
    with running_daemon(tmp_path / "s", environment=settings) as daemon:
        daemon.apply(quick("w"))
        runs = [daemon.run("w").id for _ in range(4)]
        daemon.stop()
        wait_until(lambda: not users_of(daemon.state_dir), "supervisors stay")
        daemon.start({"TOBAN_FAILPOINTS": f"{place}=kill"})
        with pytest.raises(grpc.RpcError):
            collect(daemon)
        assert daemon.wait() == -signal.SIGKILL
        assert set(runs) <= set(directories(daemon))
        daemon.start()
        done = collect(daemon)
        assert done.run_count + done.strays == 3
        assert numbers(daemon, "w") == [4]
        assert directories(daemon) == [runs[3]]
        assert daemon.run("w").number == 5


def test_what_would_go_is_what_goes(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(str(tmp_path / "gate"))
    held = [{"name": "wait", "run": f"read line < {gate.path}; seq 1 5000"}]
    daemon.apply(json.dumps({"name": "held", "description": "d", "overlap": "allow", "steps": held}))
    active = daemon.start_run("held")
    # From then on its files stay as they are.
    daemon.wait_started(active, "wait")
    daemon.apply(quick("by-daemon"))
    daemon.apply(quick("by-itself", retention={"runs": 1}))
    for _ in range(4):
        daemon.run("by-daemon")
        daemon.run("by-itself")
    files = snapshot(daemon)

    would = collect(daemon, dry_run=True)
    gone = [(run.workflow, run.number) for run in would.runs]
    assert sorted(gone) == [
        ("by-daemon", 1),
        ("by-daemon", 2),
        ("by-itself", 1),
        ("by-itself", 2),
        ("by-itself", 3),
    ]
    assert [run.id for run in would.runs] == sorted(run.id for run in would.runs)
    assert all(run.bytes > 0 and run.finished_at.seconds > 0 for run in would.runs)
    assert snapshot(daemon) == files
    assert numbers(daemon, "by-daemon") == [1, 2, 3, 4]
    shown = toban(daemon, "system", "gc", "--dry-run").splitlines()
    assert re.fullmatch(r"RUN +ENDED \([A-Z]+\) +SIZE +REASON +ID", shown[0])
    assert len(shown) == 7
    assert shown[-1].startswith("would remove 5 runs, 0 strays, ")
    assert snapshot(daemon) == files

    done = json.loads(toban(daemon, "system", "gc", "-o", "json"))
    assert [run["id"] for run in done["runs"]] == [run.id for run in would.runs]
    assert [run["reason"] for run in done["runs"]] == [run.reason for run in would.runs]
    assert (done["run_count"], done["bytes"]) == (would.run_count, would.bytes)
    assert numbers(daemon, "by-daemon") == [3, 4]
    assert numbers(daemon, "by-itself") == [4]
    assert len(directories(daemon)) == 4
    assert toban(daemon, "system", "gc") == ("removed 0 runs, 0 strays, 0 B; compressed 0 logs\n")
    assert toban(daemon, "system", "gc", "-o", "name") == ""

    gate.release_now()
    assert run_state(daemon.wait_run(active)) == "SUCCEEDED"
    assert daemon.run("by-itself").number == 5


def test_a_pinned_run_stays(tmp_path: Path) -> None:
    settings = {"TOBAN_RETENTION_RUNS": "1", "TOBAN_RETENTION_AGE": "1s", "TOBAN_RETENTION_TOTAL_BYTES": "1"}
    with running_daemon(tmp_path / "s", environment=settings) as daemon:
        daemon.apply(quick("kept"))
        first, second, _ = (daemon.run("kept").id for _ in range(3))
        pinned = daemon.runs.PinRun(pb.PinRunRequest(id=first, note="evidence"), timeout=20).run
        assert (pinned.id, pinned.pin.note, pinned.pin.by) == (first, "evidence", pinned.caller)
        assert pinned.pin.at.seconds > 0
        daemon.runs.PinRun(pb.PinRunRequest(id=first, note="audit"), timeout=20)
        daemon.kill()
    with running_daemon(tmp_path / "s", environment=settings) as daemon:
        assert daemon.get_run(first).pin.note == "audit"
        assert [run.pin.note for run in daemon.runs.ListRuns(pb.ListRunsRequest(), timeout=20).runs] == [
            "",
            "",
            "audit",
        ]
        assert [run.id for run in collect(daemon, dry_run=True).runs] == [second]
        collect(daemon)
        assert numbers(daemon, "kept") == [1, 3]
        assert daemon.log_of(first)[pb.LOG_STREAM_STDOUT] == b"said\n"
        delete = pb.DeleteRunRequest(id=first)
        refusal = refused(lambda: daemon.runs.DeleteRun(delete, timeout=20))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "RUN_PINNED")
        assert refusal.metadata == {"run_id": first}
        assert refusal.text == "cannot delete run kept#1: it is pinned; unpin it first"
        unpinned = daemon.runs.UnpinRun(pb.UnpinRunRequest(id=first), timeout=20).run
        assert not unpinned.HasField("pin")
        assert not daemon.runs.UnpinRun(pb.UnpinRunRequest(id=first), timeout=20).run.HasField("pin")
        collect(daemon)
        assert numbers(daemon, "kept") == [3]
        for call in (
            lambda: daemon.runs.PinRun(pb.PinRunRequest(id=first), timeout=20),
            lambda: daemon.runs.UnpinRun(pb.UnpinRunRequest(id=first), timeout=20),
        ):
            assert refused(call).reason == "RUN_NOT_FOUND"


def test_what_is_gone_is_told_as_gone(daemon: Daemon) -> None:
    daemon.apply(quick("w"))
    request = pb.StartRunRequest(workflow="w", request_id="once")
    first = daemon.runs.StartRun(request, timeout=20).run.id
    daemon.wait_run(first)
    position = daemon.chunks(first)[0].position
    for _ in range(2):
        daemon.run("w")
    assert [run.id for run in collect(daemon).runs] == [first]

    again = refused(lambda: daemon.runs.StartRun(request, timeout=20))
    assert (again.code, again.reason) == (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")
    assert again.metadata == {"run_id": first}
    assert "was deleted" in again.text
    assert numbers(daemon, "w") == [2, 3]
    for query in ({}, {"position": position}):
        log = refused(lambda query=query: daemon.chunks(first, **query))  # type: ignore[misc]
        assert (log.code, log.reason) == (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")


def test_a_log_that_somebody_deleted(daemon: Daemon) -> None:
    daemon.apply(quick("w"))
    run_id = daemon.run("w").id
    messages = daemon.chunks(run_id)
    assert messages[-1].end.complete
    directory = daemon.state_dir / "runs" / run_id / "attempts"
    for path in directory.glob("*.log"):
        path.unlink()
    (end,) = daemon.chunks(run_id)
    assert not end.end.complete
    assert run_state(daemon.get_run(run_id)) == "SUCCEEDED"
    # A position within that log is one that cannot be gone on from.
    inside = "1.0.0-5"
    expired = refused(lambda: daemon.chunks(run_id, position=inside))
    assert (expired.code, expired.reason) == (grpc.StatusCode.OUT_OF_RANGE, "LOG_EXPIRED")
    assert expired.metadata["step"] == "say"
    # One that is behind it is not hindered.
    assert daemon.chunks(run_id, position=messages[-1].position)[-1].end.complete


def test_all_logs_together_have_a_limit(tmp_path: Path) -> None:
    settings = {
        "TOBAN_LIMITS_TOTAL_LOGS": "4MiB",
        "TOBAN_RETENTION_RUNS": "1",
        "TOBAN_RETENTION_COMPRESS_AFTER": "none",
    }
    with running_daemon(tmp_path / "s", environment=settings) as daemon:
        daemon.apply(LOUD)
        full = daemon.run("loud")
        collect(daemon)
        assert (daemon.state_dir / "runs" / ".logs-full").exists()
        info = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
        (condition,) = [each for each in info.health.conditions if each.name == "logs"]
        assert condition.status == system_pb2.HEALTH_STATUS_DEGRADED
        assert "limits.total_logs" in condition.detail

        second = daemon.run("loud")
        assert run_state(second) == "SUCCEEDED"
        process = daemon.process_of(second.id, "shout")
        whole = daemon.process_of(full.id, "shout")
        assert process.dropped_bytes > 0
        kept = process.stdout_log_bytes + process.stderr_log_bytes
        # On a slow machine the logs may be found too large while the first run still prints.
        printed = whole.stdout_log_bytes + whole.stderr_log_bytes + whole.dropped_bytes
        assert kept + process.dropped_bytes == printed

        # Without the first run there is room again.
        assert collect(daemon).run_count == 1
        assert not (daemon.state_dir / "runs" / ".logs-full").exists()
        info = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
        assert not [each for each in info.health.conditions if each.name == "logs"]
        # It stays within the limit, so that it does not matter when the logs are added up again.
        daemon.apply(LOUD.replace("loud", "less").replace(str(LINES), str(LINES // 10)))
        third = daemon.process_of(daemon.run("less").id, "shout")
        assert third.stdout_log_bytes + third.stderr_log_bytes > 256 * 1024
        assert third.dropped_bytes == 0
