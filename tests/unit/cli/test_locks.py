from __future__ import annotations

import uuid

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.v1 import run_pb2, system_pb2

from .conftest import Cli

USER = run_pb2.LockUser(run_id="0192", workflow="backup", run_number=7)
STEP = run_pb2.LockUser(run_id="0193", workflow="report", run_number=2, step="read")


@pytest.fixture
def locks(daemon: FakeDaemon) -> list[system_pb2.Lock]:
    left = system_pb2.LockLeftover(run_id="0190", workflow="import", step="load", process_execution_id="0191")
    daemon.locks = [
        system_pb2.Lock(name="db", size=1, holders=[USER], waiting=[STEP], waiting_total=3),
        system_pb2.Lock(name="gpu", size=2, leftovers=[left]),
    ]
    return daemon.locks


def test_list(cli: Cli, daemon: FakeDaemon, locks: list[system_pb2.Lock]) -> None:
    header, first, second = cli("locks", "list").out.splitlines()
    assert header.split() == ["LOCK", "SIZE", "HELD", "BY", "WAITING"]
    assert " ".join(first.split()) == "db 1 backup#7 report#2 step read; and 2 more"
    assert second.startswith("gpu   2     processes left by import step load since")
    locks[1].leftovers[0].run_id = daemon.add_run("import").run.id
    assert "processes left by import#1 step load since" in cli("locks", "list").out
    locks[1].leftovers[0].step = ""
    assert "processes left by import#1, which cannot be loaded, since" in cli("locks", "list").out
    assert cli("locks", "list", "-o", "name").out == "db\ngpu\n"
    assert [lock["waiting_total"] for lock in cli("locks", "list", "-o", "json").data] == [3, 0]


def test_no_locks(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("locks", "list").err == "no locks\n"


def test_release(cli: Cli, daemon: FakeDaemon, locks: list[system_pb2.Lock]) -> None:
    assert cli("locks", "release", "gpu", "--run", str(uuid.uuid4())).err == "no ended attempt keeps gpu held\n"
    run = daemon.add_run("import").run
    locks[1].leftovers[0].run_id = run.id
    locks[1].leftovers[0].since.FromJsonString("2026-02-01T00:15:30Z")
    done = cli("locks", "release", "gpu")
    header, row = done.out.splitlines()
    assert header.split() == ["WORKFLOW", "STEP", "SINCE", "(JST)", "RUN"]
    assert row.split() == ["import", "load", "2026-02-01", "09:15:30", "import#1"]
    assert done.err == "released gpu: 1 attempt\n"
    again = cli("locks", "release", "gpu")
    assert (again.code, again.err) == (0, "no ended attempt keeps gpu held\n")
