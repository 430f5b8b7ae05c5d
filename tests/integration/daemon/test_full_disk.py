"""A daemon on a disk that is full, fails or takes no writes: it reports that, loses nothing, and recovers by itself."""

from __future__ import annotations

import shutil
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.daemon import Daemon, process_state, run_state, running_daemon, step_states
from helpers.gate import Gate
from helpers.refusal import Refusal, refused
from helpers.small_disk import MIB, fill, fill_inodes, read_only, small_disk
from helpers.wait import wait_until
from toban.v1 import run_pb2, system_pb2, workflow_pb2

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

GREEDY = """
import sys

with open(sys.argv[1], "wb", 0) as file:
    while True:
        try:
            file.write(bytes(4096))
        except OSError:
            pass
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "s") as path:
        yield path


@pytest.fixture
def daemon(disk: Path) -> Iterator[Daemon]:
    with running_daemon(disk) as running:
        running.apply(workflow("quick", "echo done"))
        yield running


def workflow(name: str, *commands: str) -> str:
    steps = "\n".join(f"  - {{name: s{number}, run: '{command}'}}" for number, command in enumerate(commands))
    return f"name: {name}\ndescription: for a test\noverlap: allow\nsteps:\n{steps}\n"


def health(daemon: Daemon) -> system_pb2.Health:
    return daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).health


def conditions(daemon: Daemon) -> dict[str, system_pb2.HealthCondition]:
    return {each.name: each for each in health(daemon).conditions}


def serving(daemon: Daemon, service: str) -> int:
    stub = health_pb2_grpc.HealthStub(daemon.channel)
    return int(stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20).status)


def refused_run(daemon: Daemon, name: str = "quick") -> Refusal:
    request = run_pb2.StartRunRequest(workflow=name)
    return refused(lambda: daemon.runs.StartRun(request, timeout=20))


def taken_in(daemon: Daemon) -> run_pb2.Run | None:
    """A run, as soon as one is taken in again."""
    try:
        return daemon.run("quick")
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # noqa: PT017
        return None


def ballast(disk: Path) -> int:
    path = disk / "ballast"
    return path.stat().st_blocks * 512 if path.exists() else 0


def test_a_step_fills_the_disk(daemon: Daemon, disk: Path, tmp_path: Path) -> None:
    filler, gate, other = disk / "filler", Gate(f"{tmp_path}/gate"), Gate(f"{tmp_path}/other")
    wait_until(lambda: ballast(disk) > MIB, "no space was set aside")
    daemon.apply(workflow("waits", f"read _ < {gate.path}"))
    daemon.apply(workflow("waits-too", f"read _ < {other.path}"))
    daemon.apply(workflow("fills", f"head -c 80000000 /dev/zero > {filler}", "echo after"))
    waiting, cancelled = daemon.start_run("waits"), daemon.start_run("waits-too")
    for run_id in (waiting, cancelled):
        daemon.wait_started(run_id, "s0")

    filling = daemon.run("fills")
    assert run_state(filling) == "FAILED"
    assert step_states(filling)["s0"] == "FAILED"
    assert b"No space left" in daemon.log_of(filling.id)[run_pb2.LOG_STREAM_STDERR]

    refusal = refused_run(daemon)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "DISK_FULL")
    assert refusal.text.startswith(f"cannot start a run: the file system of {disk} has ")
    assert refusal.metadata["path"] == str(disk)
    assert refusal.metadata["reserve"] == str(int(64 * MIB * 0.05))
    assert int(refusal.metadata["free"]) < int(refusal.metadata["reserve"])
    definition = workflow_pb2.Definition(source=workflow("new", "true"))
    request = workflow_pb2.CreateWorkflowRequest(definition=definition)
    refusal = refused(lambda: daemon.workflows.CreateWorkflow(request, timeout=20))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "DISK_FULL")

    found = health(daemon)
    assert found.status == system_pb2.HEALTH_STATUS_REFUSING
    (condition,) = found.conditions
    assert (condition.name, str(disk) in condition.detail) == ("disk", True)
    assert condition.HasField("since")
    wait_until(lambda: serving(daemon, "toban.v1.RunService") == NOT_SERVING, "health is not told")
    for service in ("", "toban.v1.SystemService", "toban.v1.WorkflowService"):
        assert serving(daemon, service) == SERVING

    # What runs goes on, and what makes room is not refused.
    gate.release_now()
    assert run_state(daemon.wait_run(waiting)) == "SUCCEEDED"
    daemon.cancel(cancelled)
    assert run_state(daemon.wait_run(cancelled)) == "CANCELLED"
    delete = workflow_pb2.DeleteWorkflowRequest(name="fills")
    daemon.workflows.DeleteWorkflow(delete, timeout=20)
    daemon.system.CollectGarbage(system_pb2.CollectGarbageRequest(), timeout=60)

    filler.unlink()
    run = wait_until(lambda: taken_in(daemon), "no run is taken in again")
    assert run_state(run) == "SUCCEEDED"
    wait_until(lambda: ballast(disk) > MIB, "no space was set aside again")
    assert health(daemon).status == system_pb2.HEALTH_STATUS_OK
    wait_until(lambda: serving(daemon, "toban.v1.RunService") == SERVING, "health is not told")


def test_a_step_that_has_filled_the_disk_goes_on(daemon: Daemon, disk: Path, tmp_path: Path) -> None:
    gate, full, pid = Gate(f"{tmp_path}/gate"), tmp_path / "full", daemon.pid
    fill_it = (
        f"echo begun; dd if=/dev/zero of=big bs=64k || echo full; echo full > {full}; read _ < {gate.path}; echo done"
    )
    daemon.apply(workflow("fills", fill_it, "echo after").replace("{name: s1,", "{name: s1, depends_on: [s0],"))
    run_id = daemon.start_run("fills")
    wait_until(full.exists, "the disk does not become full")
    wait_until(lambda: health(daemon).status == system_pb2.HEALTH_STATUS_REFUSING, "nobody noticed")
    assert refused_run(daemon).code is grpc.StatusCode.RESOURCE_EXHAUSTED

    gate.release_now()
    run = daemon.wait_run(run_id)
    assert (run_state(run), run.error_message) == ("SUCCEEDED", "")
    assert step_states(run) == {"s0": "SUCCEEDED", "s1": "SUCCEEDED"}
    process = daemon.process_of(run_id, "s0")
    assert (process_state(process), process.exit_code) == ("COMPLETED", 0)
    assert daemon.log_of(run_id, "s0")[run_pb2.LOG_STREAM_STDOUT].startswith(b"begun\n")
    assert refused_run(daemon).code is grpc.StatusCode.RESOURCE_EXHAUSTED

    (disk / "runs" / run_id / "work" / "big").unlink()
    assert run_state(wait_until(lambda: taken_in(daemon), "no run is taken in again")) == "SUCCEEDED"
    wait_until(lambda: health(daemon).status == system_pb2.HEALTH_STATUS_OK, "something is still said to be wrong")
    assert daemon.process is not None
    assert (daemon.pid, daemon.process.poll()) == (pid, None)


def test_the_end_of_a_step_is_recorded_on_a_disk_without_a_single_block(
    daemon: Daemon, disk: Path, tmp_path: Path
) -> None:
    gate = Gate(f"{tmp_path}/gate")
    daemon.apply(workflow("waits", f"read _ < {gate.path}", "exit 7"))
    wait_until(lambda: ballast(disk) > MIB, "no space was set aside")
    run_id = daemon.start_run("waits")
    daemon.wait_started(run_id, "s0")
    fill(disk / "filler")
    gate.release_now()
    run = daemon.wait_run(run_id)
    assert (run_state(run), run.steps[1].exit_code) == ("FAILED", 7)
    (disk / "filler").unlink()
    wait_until(lambda: taken_in(daemon), "no run is taken in again")


def test_a_disk_without_inodes(tmp_path: Path) -> None:
    with small_disk(tmp_path / "s", inodes=300) as disk, running_daemon(disk) as daemon:
        daemon.apply(workflow("quick", "echo done"))
        assert run_state(daemon.run("quick")) == "SUCCEEDED"
        fill_inodes(disk / "many")
        refusal = refused_run(daemon)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "DISK_FULL")
        assert "free inodes, the reserve is 15" in refusal.text
        # One may be free again, if the daemon had just tried to write.
        assert refusal.metadata["free"] in ("0", "1")
        assert (refusal.metadata["path"], refusal.metadata["reserve"]) == (str(disk), "15")
        shutil.rmtree(disk / "many")
        wait_until(lambda: taken_in(daemon), "no run is taken in again")


def test_a_reserve_of_ones_own(tmp_path: Path) -> None:
    environment = {"TOBAN_DISK_RESERVE": "40MiB"}
    with (
        small_disk(tmp_path / "s") as disk,
        running_daemon(disk, environment=environment) as daemon,
    ):
        daemon.apply(workflow("quick", "echo done"))
        fill(disk / "filler", leave=30 * MIB)
        assert "the reserve is 40 MiB" in refused_run(daemon).text


def test_a_database_on_another_disk_is_watched_too(tmp_path: Path) -> None:
    with small_disk(tmp_path / "db") as disk:
        arguments = ("--database", f"sqlite:///{disk}/sub/toban.db")
        with running_daemon(tmp_path / "s", *arguments) as daemon:
            daemon.apply(workflow("quick", "echo done"))
            wait_until((disk / "sub" / "toban.db-ballast").exists, "no space was set aside")
            fill(disk / "filler")
            refusal = refused_run(daemon)
            assert refusal.reason == "DISK_FULL"
            assert refusal.metadata["path"].startswith(str(disk))
            (disk / "filler").unlink()
            wait_until(lambda: taken_in(daemon), "no run is taken in again")


@pytest.mark.slow
def test_a_state_directory_that_becomes_read_only(daemon: Daemon, disk: Path) -> None:
    with read_only(disk):
        found = wait_until(lambda: conditions(daemon).get("state_dir"), "nobody noticed")
        assert found.status == system_pb2.HEALTH_STATUS_REFUSING
        assert found.detail == f"cannot write to {disk}: Read-only file system"
        refusal = refused_run(daemon)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DAEMON_UNHEALTHY")
        assert refusal.text == f"cannot start a run: {found.detail}"
        assert refusal.metadata["condition"] == "state_dir"
    wait_until(lambda: not conditions(daemon), "nobody noticed the end of it")
    assert run_state(daemon.run("quick")) == "SUCCEEDED"


@pytest.mark.slow
def test_a_lock_on_the_database_is_waited_for(daemon: Daemon, disk: Path, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    daemon.apply(workflow("waits", f"read _ < {gate.path}"))
    run_id = daemon.start_run("waits")
    daemon.wait_started(run_id, "s0")
    with closing(sqlite3.connect(disk / "toban.db", isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        gate.release_now()
        found = wait_until(lambda: conditions(daemon).get("database"), "nobody noticed")
        assert found.status == system_pb2.HEALTH_STATUS_REFUSING
        assert "another process has been writing to it for too long" in found.detail
        assert run_state(daemon.get_run(run_id)) == "RUNNING", "who reads is answered"
        foreign.execute("ROLLBACK")
    assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
    wait_until(lambda: not conditions(daemon), "nobody noticed the end of it")


def test_a_commit_without_space_is_tried_again_before_anybody_notices(disk: Path) -> None:
    environment = {"TOBAN_FAILPOINTS": "store.before_commit=ENOSPC@4"}
    with running_daemon(disk, environment=environment) as daemon:
        daemon.apply(workflow("three", "echo a", "echo b", "echo c"))
        assert run_state(daemon.run("three")) == "SUCCEEDED"
        assert '"store_failed"' not in daemon.log.read_text()


def test_a_step_that_takes_every_block_that_is_freed_can_be_cancelled(
    daemon: Daemon, disk: Path, tmp_path: Path
) -> None:
    wait_until(lambda: ballast(disk) > MIB, "no space was set aside")
    gates = [Gate(f"{tmp_path}/gate{number}") for number in range(4)]
    for number, gate in enumerate(gates):
        daemon.apply(workflow(f"waits{number}", f"read _ < {gate.path}"))
    program = tmp_path / "filler.py"
    program.write_text(GREEDY)
    daemon.apply(workflow("greedy", f"exec {sys.executable} {program} {disk}/filler"))
    waiting = [daemon.start_run(f"waits{number}") for number in range(len(gates))]
    for run_id in waiting:
        daemon.wait_started(run_id, "s0")
    greedy = daemon.start_run("greedy")
    daemon.wait_started(greedy, "s0")
    wait_until(lambda: conditions(daemon).get("disk"), "nobody noticed")
    for gate, run_id in zip(gates, waiting, strict=True):
        gate.release_now()
        assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
    daemon.cancel(greedy)
    assert run_state(daemon.wait_run(greedy)) == "CANCELLED"
    (disk / "filler").unlink()
    wait_until(lambda: taken_in(daemon), "no run is taken in again")


@pytest.mark.slow
def test_descriptors_that_run_out(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "s")
    daemon.program = ("prlimit", "--nofile=64:64", *daemon.program)
    try:
        daemon.start()
        daemon.apply(workflow("quick", "echo done"))
        assert run_state(daemon.run("quick")) == "SUCCEEDED"
        with ExitStack() as stack:
            for _ in range(64):
                held = stack.enter_context(socket.socket(socket.AF_UNIX))
                held.connect(f"{daemon.state_dir}/toban.sock")
            found = wait_until(lambda: conditions(daemon).get("descriptors"), "nobody noticed")
            assert found.status == system_pb2.HEALTH_STATUS_REFUSING
            refusal = refused_run(daemon)
            assert refusal.reason == "DAEMON_UNHEALTHY"
            assert refusal.metadata["condition"] == "descriptors"
        wait_until(lambda: "descriptors" not in conditions(daemon), "nobody noticed the end of it")
        assert run_state(daemon.run("quick")) == "SUCCEEDED"
    finally:
        daemon.clear()


# -- making room through the daemon


def delete(daemon: Daemon, run_id: str) -> None:
    daemon.runs.DeleteRun(run_pb2.DeleteRunRequest(id=run_id), timeout=60)


def fills_its_directory(daemon: Daemon, name: str) -> run_pb2.Run:
    daemon.apply(workflow(name, "head -c 80000000 /dev/zero > filler"))
    return daemon.run(name)


def without_ballast(disk: Path) -> None:
    """Whoever fills the disk took the ballast too, and the log of the database is as full."""
    (disk / "ballast").unlink(missing_ok=True)
    (disk / "ballast").mkdir()
    fill(disk / "rest")


@pytest.mark.parametrize("ballast_left", [True, False], ids=["with ballast", "without ballast"])
def test_deleting_the_last_run_of_a_workflow_frees_a_full_disk(daemon: Daemon, disk: Path, ballast_left: bool) -> None:
    wait_until(lambda: ballast(disk) > MIB, "no space was set aside")
    filling = fills_its_directory(daemon, "fills")
    assert (run_state(filling), filling.number) == ("FAILED", 1)
    if not ballast_left:
        without_ballast(disk)
    assert refused_run(daemon).reason == "DISK_FULL"
    delete(daemon, filling.id)
    assert not (disk / "runs" / filling.id).exists()
    run = wait_until(lambda: taken_in(daemon), "no run is taken in again")
    assert run is not None
    assert run_state(run) == "SUCCEEDED"
    assert daemon.run("fills").number == 2, "a number was used again"
    assert refused(lambda: daemon.get_run(filling.id)).code is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("ballast_left", [True, False], ids=["with ballast", "without ballast"])
def test_garbage_collection_frees_a_full_disk(disk: Path, tmp_path: Path, ballast_left: bool) -> None:
    """Not by age or number: sizes have to be known, and the disk has no room to note them."""
    gate, begun = Gate(f"{tmp_path}/gate"), tmp_path / "begun"
    environment = {"TOBAN_RETENTION_TOTAL_BYTES": "1MiB", "TOBAN_RETENTION_COMPRESS_AFTER": "none"}
    with running_daemon(disk, environment=environment) as daemon:
        daemon.apply(workflow("quick", "echo done"))
        fills = f"read _ < {gate.path}; head -c 80000000 /dev/zero > filler || true"
        daemon.apply(workflow("fills", f"if mkdir {begun}; then {fills}; fi"))
        wait_until(lambda: ballast(disk) > MIB, "no space was set aside")
        first = daemon.start_run("fills")
        wait_until(begun.exists, "the step does not begin")
        last = daemon.run("fills")
        gate.release_now()
        assert run_state(daemon.wait_run(first)) == "SUCCEEDED"
        if not ballast_left:
            without_ballast(disk)
        assert refused_run(daemon).reason == "DISK_FULL"
        collected = daemon.system.CollectGarbage(system_pb2.CollectGarbageRequest(), timeout=60)
        assert [run.id for run in collected.runs] == [first]
        wait_until(lambda: taken_in(daemon), "no run is taken in again")
        assert daemon.get_run(last.id).number == 2


# -- starting


def test_it_starts_on_a_full_disk_and_tells_what_is_there(daemon: Daemon, disk: Path) -> None:
    run = daemon.run("quick")
    wait_until(lambda: ballast(disk) > MIB, "no space was set aside")
    assert daemon.stop() == 0
    fill(disk / "filler")
    daemon.start()
    assert run_state(daemon.get_run(run.id)) == "SUCCEEDED"
    assert refused_run(daemon).reason == "DISK_FULL"
    (disk / "filler").unlink()
    wait_until(lambda: taken_in(daemon), "no run is taken in again")


def test_without_ballast_it_says_why_it_cannot_start(daemon: Daemon, disk: Path) -> None:
    assert daemon.stop() == 0
    (disk / "ballast").unlink(missing_ok=True)
    fill(disk / "filler")
    daemon.start(wait=False)
    assert daemon.wait() == 1
    lines = daemon.log.read_text().splitlines()
    assert lines[-1].startswith("toband: cannot open the database: ")
    assert "full" in lines[-1]
    (disk / "filler").unlink()
    daemon.start()
    assert run_state(daemon.run("quick")) == "SUCCEEDED"


def test_killed_on_a_full_disk_it_takes_up_what_runs(daemon: Daemon, disk: Path, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    daemon.apply(workflow("waits", f"read _ < {gate.path}"))
    run_id = daemon.start_run("waits")
    daemon.wait_started(run_id, "s0")
    wait_until(lambda: ballast(disk) > MIB, "no space was set aside")
    daemon.kill()
    fill(disk / "filler")
    gate.release_now()
    daemon.start()
    assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
    (disk / "filler").unlink()
    wait_until(lambda: taken_in(daemon), "no run is taken in again")
