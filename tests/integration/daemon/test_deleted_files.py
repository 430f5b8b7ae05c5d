"""Files that are deleted under a live daemon: it notices, and acknowledges nothing that would be lost."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from helpers.daemon import Daemon, run_state, running_daemon
from helpers.gate import Gate
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.v1 import run_pb2, system_pb2

DEFINITION = "name: quick\ndescription: for a test\nsteps: [{name: s, run: 'echo done'}]\n"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "s") as running:
        running.apply(DEFINITION)
        yield running


def condition(daemon: Daemon, name: str) -> system_pb2.HealthCondition | None:
    health = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).health
    return next((each for each in health.conditions if each.name == name), None)


def start(daemon: Daemon) -> None:
    daemon.runs.StartRun(run_pb2.StartRunRequest(workflow="quick"), timeout=20)


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_nothing_is_acknowledged_into_a_deleted_database(daemon: Daemon, suffix: str) -> None:
    assert run_state(daemon.run("quick")) == "SUCCEEDED"
    database = daemon.state_dir / f"toban.db{suffix}"
    database.rename(f"{database}.away")
    refusal = refused(lambda: start(daemon))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_FAILED")
    assert f"{database} was deleted or replaced while in use" in refusal.text
    found = wait_until(lambda: condition(daemon, "database"), "nobody noticed")
    assert found is not None
    assert found.status == system_pb2.HEALTH_STATUS_REFUSING
    assert "restore a backup" in found.detail
    assert not database.exists(), "an empty one was made in its place"
    # Put back, it is the same file, and all goes on.
    Path(f"{database}.away").rename(database)
    wait_until(lambda: condition(daemon, "database") is None, "nobody noticed the end of it")
    assert run_state(daemon.run("quick")) == "SUCCEEDED"


def test_after_its_log_was_deleted_a_clean_stop_still_brings_all_to_the_database(
    daemon: Daemon,
) -> None:
    run = daemon.run("quick")
    (daemon.state_dir / "toban.db-wal").unlink()
    refused(lambda: start(daemon))
    assert run_state(daemon.get_run(run.id)) == "SUCCEEDED", "who reads is answered"
    assert daemon.stop() == 0
    daemon.start()
    assert run_state(daemon.get_run(run.id)) == "SUCCEEDED"
    assert run_state(daemon.run("quick")) == "SUCCEEDED"


def test_a_database_that_was_deleted_is_noticed_without_a_write(daemon: Daemon) -> None:
    database = daemon.state_dir / "toban.db"
    database.rename(f"{database}.away")
    wait_until(lambda: condition(daemon, "database"), "nobody noticed")
    Path(f"{database}.away").rename(database)


def test_the_end_of_a_step_waits_until_the_database_is_back(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    daemon.apply(f"name: waits\ndescription: for a test\nsteps: [{{name: s, run: 'read _ < {gate.path}'}}]\n")
    run_id = daemon.start_run("waits")
    daemon.wait_started(run_id, "s")
    database = daemon.state_dir / "toban.db"
    database.rename(f"{database}.away")
    gate.release_now()
    wait_until(lambda: '"store_failed"' in daemon.log.read_text(), "the end was believed")
    Path(f"{database}.away").rename(database)
    assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"


def test_another_database_in_the_place_of_the_open_one_is_not_taken_for_it(daemon: Daemon) -> None:
    database = daemon.state_dir / "toban.db"
    copy = daemon.state_dir / "copy"
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    database.rename(f"{database}.away")
    copy.rename(database)
    assert "deleted or replaced" in refused(lambda: start(daemon)).text
    database.unlink()
    Path(f"{database}.away").rename(database)


def test_a_socket_that_was_deleted_is_made_again(daemon: Daemon) -> None:
    path, login = daemon.state_dir / "toban.sock", daemon.state_dir / "toban.sock.login"
    for _ in range(2):
        daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
        path.unlink()
        login.unlink()
        wait_until(lambda: path.exists() and login.exists(), "the sockets are not there again")
        assert stat.S_IMODE(os.stat(path).st_mode) == stat.S_IMODE(os.stat(login).st_mode) == 0o600
        # The connection of before still works, and so does a new one.
        daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
        daemon._drop_channel()
        assert run_state(daemon.run("quick")) == "SUCCEEDED"
    assert condition(daemon, "socket") is None
    assert daemon.stop() == 0
    assert not path.exists()
    assert not login.exists()


def test_a_socket_that_cannot_be_made_again_is_told(daemon: Daemon) -> None:
    path = daemon.state_dir / "toban.sock"
    daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
    path.unlink()
    path.mkdir()
    found = wait_until(lambda: condition(daemon, "socket"), "nobody noticed")
    assert found is not None
    assert "the path exists and is not a socket" in found.detail
    path.rmdir()
    wait_until(lambda: condition(daemon, "socket") is None, "the socket is not there again")
    daemon._drop_channel()
    assert run_state(daemon.run("quick")) == "SUCCEEDED"


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_start_without_the_database_of_its_runs_is_refused(daemon: Daemon, left: str) -> None:
    assert run_state(daemon.run("quick")) == "SUCCEEDED"
    assert daemon.stop() == 0
    database = daemon.state_dir / "toban.db"
    database.unlink()
    if left != "nothing":
        database.touch()
    daemon.start(wait=False)
    assert daemon.wait() == 1
    line = daemon.log.read_text().splitlines()[-1]
    assert line.startswith("toband: cannot use the database: the database of this state directory is gone: ")
    assert f"but there are runs in {daemon.state_dir}/runs; restore a backup" in line
    assert database.exists() is (left != "nothing")
    daemon.arguments = ("--new-database",)
    daemon.start()
    daemon.apply(DEFINITION)
    assert daemon.run("quick").number == 1


def test_a_state_directory_without_runs_remembers_its_database(daemon: Daemon) -> None:
    assert daemon.stop() == 0
    (daemon.state_dir / "toban.db").unlink()
    daemon.start(wait=False)
    assert daemon.wait() == 1
    assert "installation.json says that there was one" in daemon.log.read_text().splitlines()[-1]
