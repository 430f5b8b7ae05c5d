"""What is drawn on a terminal: colours, tables that fit, the live view, and Ctrl-C."""

from __future__ import annotations

import pytest

from doubles.daemon.fake_daemon import FakeDaemon, RunRecord
from toban.v1 import run_pb2

from .conftest import OnTerminal


@pytest.fixture
def record(daemon: FakeDaemon) -> RunRecord:
    daemon.add_workflow("nightly")
    return daemon.add_run("nightly", state=run_pb2.RUN_STATE_FAILED)


def test_a_table_fits_and_has_colours(on_terminal: OnTerminal, daemon: FakeDaemon, record: RunRecord) -> None:
    terminal = on_terminal("--server", daemon.address, "runs", "list")
    assert terminal.end() == 0
    assert b"\x1b[31mfailed" in terminal.raw
    lines = terminal.text.splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    # What has no room is left out rather than broken into pieces.
    assert "ID" not in lines[0].split()


def test_a_wide_terminal_shows_everything(on_terminal: OnTerminal, daemon: FakeDaemon, record: RunRecord) -> None:
    terminal = on_terminal("--server", daemon.address, "runs", "list", columns=160)
    assert terminal.end() == 0
    assert record.run.id in terminal.text


@pytest.mark.parametrize(
    ("arguments", "env"), [(["--no-color"], {}), ([], {"NO_COLOR": "1"})], ids=["flag", "variable"]
)
def test_colours_can_be_refused(
    on_terminal: OnTerminal,
    daemon: FakeDaemon,
    record: RunRecord,
    arguments: list[str],
    env: dict[str, str],
) -> None:
    terminal = on_terminal(*arguments, "--server", daemon.address, "runs", "show", "nightly", env=env)
    assert terminal.end() == 0
    assert b"\x1b[3" not in terminal.raw
    assert "failed" in terminal.text


def test_the_live_view(on_terminal: OnTerminal, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    terminal = on_terminal("--server", daemon.address, "run", "nightly", "--follow")
    daemon.wait_for("WatchRun")
    daemon.wait_for("StreamLogs")
    (record,) = daemon.runs.values()
    daemon.step(record, "one", run_pb2.STEP_STATE_RUNNING)
    terminal.wait_for("one  running")
    terminal.wait_for("nightly#1 running")
    daemon.write(record, "one", b"\x1b[32mgreen\x1b[0m\x1b[2J\nhalf")
    # Colours pass; what would tear the list of steps is escaped.
    terminal.wait_for("one | green\\x1b[2J\n")
    assert b"\x1b[32mgreen" in terminal.raw
    assert b"\x1b[2J" not in terminal.raw
    daemon.write(record, "one", b" line\r\n10%\r20%\n")
    terminal.wait_for("one | half line\n")
    terminal.wait_for("one | 20%\n")
    daemon.step(record, "one", run_pb2.STEP_STATE_RUNNING, progress_current=5, progress_total=20, progress_message="行")
    terminal.wait_for("5/20 (25%) 行")
    daemon.step(record, "one", run_pb2.STEP_STATE_RUNNING, progress_current=6, progress_total=20)
    terminal.wait_for("6/20 (30%)")
    daemon.step(record, "one", run_pb2.STEP_STATE_FAILED, exit_code=4)
    daemon.finish(record, run_pb2.RUN_STATE_FAILED, "step one: exit code 4")
    assert terminal.end() == 1
    last = terminal.text.splitlines()[-3:]
    assert "one  failed" in last[0]
    assert "exit code 4" in last[0]
    assert last[1].startswith("nightly#1 failed after ")
    assert b"\x1b[?25h" in terminal.raw, "the cursor is shown again"


def test_more_steps_than_rows(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    record = daemon.add_run("nightly", steps=[f"s{number:03}" for number in range(200)])
    daemon.step(record, "s150", run_pb2.STEP_STATE_RUNNING)
    daemon.finish(record, run_pb2.RUN_STATE_CANCELLED)
    from toban.cli.wait.live_view import _choose

    chosen = _choose(list(record.run.steps), 10)
    assert len(chosen) == 10
    assert "s150" in {step.id for step in chosen}
    assert [step.index for step in chosen] == sorted(step.index for step in chosen)


def test_ctrl_c_detaches_from_the_live_view(on_terminal: OnTerminal, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    terminal = on_terminal("--server", daemon.address, "run", "nightly", "-f")
    daemon.wait_for("WatchRun")
    (record,) = daemon.runs.values()
    daemon.step(record, "one", run_pb2.STEP_STATE_RUNNING)
    terminal.wait_for("one  running")
    terminal.press_ctrl_c()
    assert terminal.end() == 131
    assert "toban: detached; run nightly#1 continues" in terminal.text
    assert "Traceback" not in terminal.text
    assert b"\x1b[?25h" in terminal.raw


def test_a_terminal_that_can_nothing_gets_plain_lines(on_terminal: OnTerminal, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")

    def work() -> None:
        (record,) = daemon.runs.values()
        daemon.write(record, "one", b"hello\n")
        daemon.finish(record, run_pb2.RUN_STATE_SUCCEEDED)

    daemon.on_call["StreamLogs"] = work
    terminal = on_terminal("--server", daemon.address, "run", "nightly", "-f", env={"TERM": "dumb", "NO_COLOR": "1"})
    assert terminal.end() == 0
    assert "one | hello\n" in terminal.text
    assert b"\x1b" not in terminal.raw


def test_logs_on_a_terminal_pass_as_they_are(on_terminal: OnTerminal, daemon: FakeDaemon, record: RunRecord) -> None:
    daemon.write(record, "one", b"\x1b[35mmagenta\x1b[0m\n")
    terminal = on_terminal("--server", daemon.address, "logs", "nightly")
    assert terminal.end() == 0
    assert terminal.raw == b"\x1b[35mmagenta\x1b[0m\r\n"


def test_levels_on_a_terminal_have_colours(on_terminal: OnTerminal, daemon: FakeDaemon, record: RunRecord) -> None:
    daemon.write(record, "one", b"a\n", b"b\n")
    for line, level in zip(record.chunks[-1].records, (run_pb2.LOG_LEVEL_INFO, run_pb2.LOG_LEVEL_ERROR), strict=True):
        line.level, line.message = level, line.data.decode().strip()
    terminal = on_terminal("--server", daemon.address, "logs", "nightly")
    assert terminal.end() == 0
    assert terminal.raw == b"info: a\r\n\x1b[31merror:\x1b[0m b\r\n"


def test_the_live_view_of_instances_and_loops(on_terminal: OnTerminal, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    terminal = on_terminal("--server", daemon.address, "run", "nightly", "-f", columns=100)
    daemon.wait_for("WatchRun")
    (record,) = daemon.runs.values()
    first = record.run.steps[0]
    first.instances = 2
    for number in range(2):
        record.run.steps.add(id=f"one[{number}]", parent="one", instance=number, max_iterations=9, iteration=2)
    daemon.step(record, "one", run_pb2.STEP_STATE_RUNNING)
    daemon.step(record, "one[0]", run_pb2.STEP_STATE_CHECKING)
    daemon.step(
        record, "one[1]", run_pb2.STEP_STATE_RUNNING, waiting_for=run_pb2.WAITING_FOR_APPROVAL, approvers=["alice"]
    )
    terminal.wait_for("waits for approval by alice")
    terminal.wait_for("2 instances: 1 running, 1 checking")
    assert "  one[0]  checking" in terminal.text
    assert "iteration 2/9" in terminal.text
    terminal.wait_for("`toban runs approve nightly#1 'one[1]'` approves one[1]")
    daemon.finish(record, run_pb2.RUN_STATE_SUCCEEDED)
    assert terminal.end() == 0
