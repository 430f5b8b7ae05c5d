"""`toban status` and `toban top` through a real daemon: on a terminal, for programs, and with nothing stored."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.command import Toban
from helpers.daemon import Daemon, running_daemon
from helpers.wait import wait_until
from unit.cli.terminal import Terminal

if sys.platform == "win32":
    pytest.skip("there are no such terminals", allow_module_level=True)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("status") / "state") as started:
        yield started


@pytest.fixture(scope="module")
def toban(daemon: Daemon) -> Toban:
    return Toban(daemon)


@pytest.fixture(scope="module")
def scene(daemon: Daemon, toban: Toban) -> None:
    """One that failed, one that is running and has another run waiting, one that never ran."""
    empty = toban("status").out
    assert "0 workflows" in empty
    assert "no workflows yet: `toban apply FILE` stores one" in empty
    zone = {"cron": "0 3 * * *", "timezone": "Asia/Tokyo"}
    for definition in (
        {"name": "nightly", "title": "夜間バッチ", "schedule": zone, "steps": {"dump": {"run": "exit 3"}}},
        {"name": "busy", "overlap": "queue", "labels": {"team": "data"}, "steps": {"hold": {"run": "exec sleep 600"}}},
        {"name": "idle", "enabled": False, "steps": {"only": {"run": "true"}}},
    ):
        daemon.apply(json.dumps({"description": "for a test", **definition}))
    toban("run", "nightly", "--wait", code=1)
    toban("run", "busy")
    toban("run", "busy")
    wait_until(lambda: "2 active runs: 1 running, 1 waiting" in toban("status").out, "a run runs, another one waits")


@pytest.mark.usefixtures("scene")
def test_everything_is_on_one_screen(toban: Toban) -> None:
    lines = toban("status").out.splitlines()
    assert lines[0].startswith("toband ")
    assert ", health ok, up " in lines[0]
    assert lines[1].startswith("3 workflows, 1 disabled; 2 active runs: 1 running, 1 waiting; 1 failed since ")
    header, busy, idle, nightly = lines[3:7]
    assert header.split() == [
        "WORKFLOW",
        "TITLE",
        "LAST",
        "RUN",
        "STATE",
        "AGE",
        "RUNNING",
        "WAITING",
        "SUCCESS",
        "DUE",
        "DUE",
        "AT",
    ]
    assert busy.startswith("busy")
    assert "#2" in busy
    assert busy.split()[-5:] == ["1", "1", "-", "-", "-"]
    assert idle.split() == ["idle", "-", "never", "ran", "-", "-", "-", "-", "disabled", "-"]
    assert "#1        failed" in nightly
    assert "0/1" in nightly
    assert "  in " in nightly
    assert nightly.endswith(" 03:00 Asia/Tokyo")
    assert "Failed since" in lines[8]
    assert lines[10].startswith("nightly#1  failed")
    assert lines[10].endswith("step dump failed: exit code 3")
    assert lines[11] == "`toban runs show nightly#1` shows what failed"


@pytest.mark.usefixtures("scene")
def test_a_run_waits_for_the_same_in_a_list_as_alone(toban: Toban) -> None:
    assert "state:      pending (waits for its turn)" in toban("runs", "show", "busy#2").out
    (queued,) = (line for line in toban("ps").out.splitlines() if line.startswith("busy#2"))
    assert "pending (waits for its turn)" in queued


@pytest.mark.usefixtures("scene")
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_narrow_terminal_leaves_columns_out(daemon: Daemon, columns: int) -> None:
    terminal = Terminal("--server", daemon.socket, "status", columns=columns)
    assert terminal.end() == 0
    rows = [line.split() for line in terminal.text.splitlines()]
    header = next(row for row in rows if row[:1] == ["WORKFLOW"])
    assert {"STATE", "AGE", "DUE"} <= set(header)
    assert ("AT" in header) == (columns == 120)
    (nightly,) = (row for row in rows if row[:1] == ["nightly"])
    assert "failed" in nightly


@pytest.mark.usefixtures("scene")
def test_workflows_are_chosen_by_text_and_label(toban: Toban) -> None:
    assert toban("status", "夜間", "-o", "name").out == "nightly\n"
    assert toban("status", "--label", "team=data", "-o", "name").out == "busy\n"
    assert "no workflows match" in toban("status", "unknown").out
    cut = toban("status", "--limit", "1").out
    assert "\nbusy " in cut, "the one with active runs matters most"
    assert "… and 2 more: " in cut


@pytest.mark.usefixtures("scene")
def test_programs_get_everything(toban: Toban) -> None:
    found = toban("status", "-o", "json").data
    assert found["daemon"]["version"]
    assert [each["name"] for each in found["summaries"]] == ["busy", "idle", "nightly"]
    nightly = found["summaries"][2]
    assert nightly["next_due_zone"] == "Asia/Tokyo"
    assert nightly["last_run"]["number"] in (1, "1")
    assert [run["workflow"] for run in found["failures"]] == ["nightly"]
    assert "summaries:\n- name: busy\n" in toban("status", "-o", "yaml").out


@pytest.mark.usefixtures("scene")
def test_top_shows_the_running_steps(toban: Toban) -> None:
    def shown() -> str:
        return toban("top", "--once").out

    wait_until(lambda: "B  " in shown().splitlines()[-1], "the step was measured")
    lines = shown().splitlines()
    assert lines[1].startswith("runs: 1 running, 1 waiting; slots: 1 of ")
    assert re.fullmatch(r"daemon: \d+\.\d\d CPU cores, [\d.]+ MiB of memory", lines[2])
    assert lines[3].startswith("steps: ")
    assert lines[5].split() == ["WORKFLOW", "STEP", "CPU", "MEMORY", "PROCESSES", "TIME", "PID", "COMMAND"]
    assert lines[6].startswith("busy      hold")
    found = toban("top", "-o", "json").data
    own = found["daemon"]["load"]
    assert own["cpu"] >= 0
    assert own["cpu_time"] > 0.1
    resident = int(Path(f"/proc/{toban.daemon.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert int(own["rss_bytes"]) == pytest.approx(resident, rel=0.2)
    assert [each["step"] for each in found["process_executions"]] == ["hold"]
    assert toban("top", "-o", "name").out.strip() == found["process_executions"][0]["id"]


@pytest.mark.usefixtures("scene")
@pytest.mark.parametrize("command", [("top",), ("status", "--watch")])
@pytest.mark.parametrize("ends", ["q", "ctrl-c"])
def test_a_live_screen_ends_cleanly(daemon: Daemon, command: tuple[str, ...], ends: str) -> None:
    terminal = Terminal("--server", daemon.socket, *command, "--interval", "0.2", rows=10, columns=60)
    before = terminal.modes()
    terminal.wait_for("busy")
    drawn = terminal.raw.count(b"\x1b[H")
    while terminal.raw.count(b"\x1b[H") < drawn + 2:
        terminal.wait_for_more()
    if ends == "q":
        terminal.press("q")
    else:
        terminal.press_ctrl_c()
    code, after = terminal.end_with_modes()
    assert code == 0
    assert after == before, "keys are read with Enter and echo again"
    assert terminal.raw.startswith(b"\x1b[?1049h\x1b[?25l")
    assert terminal.raw.rstrip().endswith(b"\x1b[?25h\x1b[?1049l")
    pictures = terminal.raw.decode().split("\x1b[H")[1:]
    assert all(picture.count("\n") < 10 for picture in pictures), "no picture is higher than the terminal"


@pytest.mark.usefixtures("scene")
def test_the_watched_status_follows_runs_across_a_restart(daemon: Daemon, toban: Toban) -> None:
    terminal = Terminal("--server", daemon.socket, "status", "--watch", "--interval", "3600", rows=40, columns=120)
    terminal.wait_for("nightly")
    toban("run", "nightly")
    terminal.wait_for("nightly#2")
    daemon.kill()
    terminal.wait_for("no answer from the daemon for ")
    daemon.start()
    toban("run", "nightly")
    terminal.wait_for("nightly#3")
    terminal.press("q")
    assert terminal.end_with_modes()[0] == 0


def test_many_changes_are_drawn_together(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "state") as daemon:
        daemon.apply(
            json.dumps({"name": "quick", "description": "x", "overlap": "allow", "steps": {"a": {"run": "true"}}})
        )
        terminal = Terminal("--server", daemon.socket, "status", "--watch", rows=40, columns=120)
        terminal.wait_for("never ran")
        before, began = terminal.raw.count(b"\x1b[H"), time.monotonic()
        for _ in range(40):
            daemon.run("quick")
        terminal.wait_for("#40")
        took = time.monotonic() - began
        assert terminal.raw.count(b"\x1b[H") - before <= took / 0.4 + took + 2
        terminal.press("q")
        assert terminal.end_with_modes()[0] == 0


@pytest.mark.usefixtures("scene")
def test_programs_watch_the_status_by_line(daemon: Daemon, toban: Toban) -> None:
    command = [sys.executable, "-m", "toban.cli", "--server", daemon.socket, "status", "--watch", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["daemon"]["pid"] == daemon.pid
        number = toban("run", "nightly", "-o", "json").data["number"]
        for line in program.stdout:
            if line.strip() and int(json.loads(line)["failures"][0]["number"]) == number:
                break
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 0
