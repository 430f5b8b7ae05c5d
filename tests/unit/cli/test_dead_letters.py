from __future__ import annotations

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.v1 import dead_letter_pb2, run_pb2

from .conftest import Cli

Letter = dead_letter_pb2.DeadLetter


@pytest.fixture
def letter(daemon: FakeDaemon) -> Letter:
    daemon.add_workflow("nightly")
    record = daemon.add_run("nightly", state=run_pb2.RUN_STATE_FAILED)
    return daemon.add_letter(record, "one", "exit code 7")


def test_list(cli: Cli, daemon: FakeDaemon, letter: Letter) -> None:
    result = cli("dead-letters", "list")
    header, row = result.out.splitlines()
    names = ["ID", "RUN", "STEP", "STATE", "ATTEMPTS", "CREATED", "(JST)", "ERROR"]
    assert header.split() == names
    assert row.split()[:4] == [letter.id, "nightly#1", "one", "open"]
    assert row.endswith("exit code 7")
    assert cli("dead-letters", "list", "--workflow", "nightly", "-o", "name").out == (f"{letter.id}\n")
    unknown = cli("dead-letters", "list", "--workflow", "nigthly")
    assert (unknown.code, "did you mean nightly?" in unknown.err) == (5, True)


def test_what_is_taken_care_of_is_not_listed(cli: Cli, daemon: FakeDaemon, letter: Letter) -> None:
    assert cli("dead-letters", "discard", letter.id).out == f"discarded {letter.id}\n"
    assert cli("dead-letters", "list").err == "no open dead letters\n"
    assert cli("dead-letters", "list", "--all", "-o", "name").out == f"{letter.id}\n"
    (found,) = cli("dead-letters", "list", "--state", "discarded", "-o", "json").data
    assert found["state"] == "discarded"
    assert cli("dead-letters", "list", "--state", "requeued").err == "no dead letters\n"


def test_show(cli: Cli, letter: Letter) -> None:
    result = cli("dead-letters", "show", letter.id)
    lines = result.out.splitlines()
    assert "state:       open" in lines
    assert f"run:         nightly#1 ({letter.run_id})" in lines
    assert "class:       RETRYABLE_TRANSIENT" in lines
    assert f"`toban dead-letters requeue {letter.id}` retries it" in result.err
    assert "`toban logs nightly#1 --step one`" in result.err


def test_requeue(cli: Cli, daemon: FakeDaemon, letter: Letter) -> None:
    result = cli("dead-letters", "requeue", letter.id)
    new = list(daemon.runs.values())[-1].run
    assert (result.code, result.out) == (0, f"started nightly#2 ({new.id})\n")
    shown = cli("dead-letters", "show", letter.id)
    assert "requeued as: nightly#2" in shown.out.splitlines()
    assert "by uid:1000" in shown.out
    again = cli("dead-letters", "requeue", letter.id)
    assert again.code == 6
    assert again.err.splitlines()[1] == (f"hint: `toban dead-letters show {letter.id}` shows its state")
    assert cli("dead-letters", "discard", letter.id).code == 6


def test_requeue_and_wait(cli: Cli, daemon: FakeDaemon, letter: Letter) -> None:
    daemon.on_call["WatchRun"] = lambda: daemon.finish(list(daemon.runs.values())[-1], run_pb2.RUN_STATE_TIMED_OUT)
    assert cli("dead-letters", "requeue", letter.id, "--wait").code == 124


def test_one_that_is_not_there(cli: Cli, letter: Letter) -> None:
    result = cli("dead-letters", "show", "nonsense")
    assert (result.code, result.err.splitlines()) == (
        5,
        [
            "toban: cannot show dead letter nonsense: no dead letter 'nonsense'",
            "hint: `toban dead-letters list --all` lists all dead letters",
        ],
    )


def test_discard_for_programs(cli: Cli, letter: Letter) -> None:
    (found,) = cli("dead-letters", "discard", letter.id, "-o", "json").data
    assert found["resolved_by"] == "uid:1000"
