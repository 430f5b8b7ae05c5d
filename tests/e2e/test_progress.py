"""Progress and levels of real steps, as people see them with `toban`, also across the end of the daemon."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.daemon import Daemon, running_daemon, steps_of, texts
from helpers.gate import Gate
from helpers.wait import wait_until
from toban.v1 import run_pb2

OUT, ERR = run_pb2.LOG_STREAM_STDOUT, run_pb2.LOG_STREAM_STDERR

FUNCTIONS = '''
import sys
import toban.step


def count(context):
    """Reports on both streams, and from the context."""
    for number in range(1, 21):
        context.progress(number, 20, "量子コンピュータ")
        print("::log level=%s row %d" % ("error" if number == 20 else "debug", number), file=sys.stderr)
    toban.step.progress(20.5, message="two lines\\nin one")
    return "done"
'''

USE = "printf '<%s>\\n' {{ steps.count.stderr }}; echo '::log level=info fine'"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "state") as started:
        yield started


def toban(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toban.cli", "--server", daemon.socket, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)


def progress_of(daemon: Daemon, run_id: str, step: str) -> tuple[float, float, str]:
    found = steps_of(daemon.get_run(run_id))[step]
    return found.progress_current, found.progress_total, found.progress_message


def apply(daemon: Daemon, name: str, steps: object, base_dir: Path) -> None:
    daemon.apply(json.dumps({"name": name, "description": "for a test", "steps": steps}), str(base_dir))


def test_a_python_step_reports_and_people_see_it(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(FUNCTIONS, encoding="utf-8")
    steps = {
        "count": {"job_type": "python", "target": "counting:count"},
        "use": {"run": USE, "depends_on": ["count"]},
    }
    apply(daemon, "counting", steps, tmp_path)
    followed = toban(daemon, "run", "counting", "--follow").stdout.splitlines()
    assert [line for line in followed if "::" in line] == []
    assert "count | error: row 20" in followed
    assert "use | <>" in followed
    run_id = daemon.runs.GetCurrentRun(run_pb2.GetCurrentRunRequest(workflow="counting"), timeout=20).run.id
    assert progress_of(daemon, run_id, "count") == (20.5, 0, "two lines in one")
    shown = toban(daemon, "runs", "show", "counting").stdout
    assert "20.5 two lines in one" in shown
    assert toban(daemon, "logs", "counting", "--level", "warning").stdout == "count | error: row 20\n"
    raw = toban(daemon, "logs", "counting", "--step", "count", "--raw").stdout
    assert raw.count("::progress") == 21
    assert "::progress 20/20 量子コンピュータ\n" in raw
    objects = [json.loads(line) for line in toban(daemon, "logs", "counting", "-o", "json").stdout.splitlines()]
    found = {(each["level"], each["message"]) for each in objects if each.get("level") in ("info", "error")}
    assert found == {("info", "fine"), ("error", "row 20")}


def test_progress_outlives_the_daemon(daemon: Daemon, tmp_path: Path) -> None:
    gate, end = Gate(f"{tmp_path}/gate"), Gate(f"{tmp_path}/end")
    script = (
        f"echo '::progress 1/3 first'; printf '::progress 2/3 '; read _ < {gate.path}; echo second; echo text; "
        f"printf '::log level='; read _ < {end.path}; echo 'warning late'; echo '::progress 3/3 third'"
    )
    apply(daemon, "outlives", {"only": {"run": script}}, tmp_path)
    run_id = daemon.start_run("outlives")
    wait_until(lambda: progress_of(daemon, run_id, "only") == (1, 3, "first"), "no progress")
    first = daemon.chunks(run_id)
    assert texts(first) == {}
    daemon.kill()
    gate.release_now()
    daemon.start()
    wait_until(lambda: progress_of(daemon, run_id, "only") == (2, 3, "second"), "no progress after the restart")
    second = daemon.chunks(run_id, first[-1].position)
    assert texts(second) == {("only", OUT): b"text\n"}
    daemon.kill()
    end.release_now()
    daemon.start()
    daemon.wait_run(run_id)
    assert progress_of(daemon, run_id, "only") == (3, 3, "third")
    rest = daemon.chunks(run_id, second[-1].position)
    assert texts(rest) == {("only", OUT): b"late\n"}
    assert [record.level for record in rest[0].chunk.records] == [run_pb2.LOG_LEVEL_WARNING]
    assert daemon.chunks(run_id, rest[0].position) == rest[1:]
    assert texts(daemon.chunks(run_id)) == {("only", OUT): b"text\nlate\n"}
