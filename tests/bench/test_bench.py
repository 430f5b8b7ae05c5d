"""The benchmark: runs, prints what its documentation says, refuses a daemon without syncs, and leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from scripts.lib.bench import due, scheduled, workflows
from scripts.lib.bench.results import Result, Series, Target
from scripts.lib.bench.sizes import Sizes

import toband
from toban.definition.timing.due import next_due
from toban.definition.timing.schedule_spec import Schedule

if sys.platform == "win32":
    pytest.skip("the daemon does not run on Windows yet", allow_module_level=True)

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "scripts.lib.bench")
# Some hundred syncs and a dozen daemons, on whatever machine this is.
WITHIN = 600.0


def can_trace() -> bool:
    strace = shutil.which("strace")
    return strace is not None and subprocess.run([strace, "-qq", "-o", "/dev/null", "true"]).returncode == 0


pytestmark = [
    pytest.mark.skipif(not can_trace(), reason="there is no strace here, or it may not trace"),
    pytest.mark.timeout(2 * WITHIN),
]


def bench(work: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--dir", str(work), *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=WITHIN,
    )


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_tells_everything_for_programs(tmp_path: Path) -> None:
    document = told(bench(tmp_path, "--quick", "--json"))
    assert list(tmp_path.iterdir()) == []
    assert document.keys() == {"format", "machine", "sizes", "durability", "results", "holds"}
    assert document["format"] == 1
    assert document["holds"] is None, "a quick run judges nothing"
    assert document["machine"].keys() == {
        "cpus",
        "cpu",
        "memory_mb",
        "kernel",
        "python",
        "filesystem",
        "sync_ms",
        "load",
    }
    assert document["durability"]["journal_mode"] == "wal"
    for count in document["durability"]["counts"]:
        assert count["counted"] >= count["least"] > 0
    results = document["results"]
    assert results.keys() == {
        "chain",
        "fanout",
        "graph",
        "rows",
        "items",
        "log",
        "plain",
        "masked",
        "search",
        "lines",
        "trigger",
        "memory",
        "help",
        "list",
        "tab",
        "first",
        "resolve",
        "emit",
        "start",
        "loaded",
        "idle",
        "due",
        "pages",
        "status",
        "changes",
        "grid",
        "days",
        "boot",
    }
    for name, result in results.items():
        compared = name in (
            "chain",
            "fanout",
            "graph",
            "rows",
            "items",
            "log",
            "plain",
            "masked",
            "search",
            "lines",
            "help",
            "list",
            "tab",
            "first",
            "resolve",
            "emit",
            "start",
            "pages",
            "status",
            "changes",
            "grid",
        )
        assert result.keys() >= {"what", "ours", "more", "target", "holds"}
        assert ("ratio" in result) == ("floor" in result) == compared
        for series in (result["ours"], *result["more"].values()):
            assert series.keys() == {"unit", "median", "samples"}
            assert series["median"] > 0
        assert len(result["ours"]["samples"]) == document["sizes"]["rounds"] == 1
        if compared:
            expected = result["ours"]["median"] / result["floor"]["median"]
            assert result["ratio"] == pytest.approx(expected, rel=0.01)
    assert {name: result["target"] for name, result in results.items()} == {
        "chain": {"at_most": 8},
        "fanout": {"at_least": 0.15},
        "graph": {"at_most": 1.3},
        "rows": {"at_most": 1.3},
        "items": {"at_most": 1.3},
        "log": {"at_least": 0.4},
        "plain": {"at_least": 0.5},
        "masked": {"at_least": 50, "of_ours": True},
        "search": {"at_most": 300, "of_ours": True},
        "lines": {"at_most": 100, "of_ours": True},
        "trigger": None,
        "memory": {"at_most": 90},
        "help": {"at_most": 6},
        "list": {"at_most": 12},
        "tab": {"at_most": 12},
        "first": {"at_most": 1, "plus": 150},
        "resolve": {"at_most": 3},
        "emit": {"at_most": 25},
        "start": {"at_most": 3, "plus": 1000},
        "loaded": {"at_most": 160},
        "idle": {"at_most": 1},
        "due": {"at_most": 1500},
        "pages": {"at_most": 3},
        "status": {"at_most": 3},
        "changes": {"at_most": 3},
        "grid": {"at_most": 3},
        "days": {"at_most": 500},
        "boot": {"at_most": 3000},
    }


def test_shows_a_table_of_what_is_asked_for(tmp_path: Path) -> None:
    done = bench(tmp_path, "--quick", "--only", "fanout", "--rounds", "3")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (row,) = (line for line in lines if line.startswith("fanout "))
    assert row.count("steps/s") == 2
    assert ">= 0.15" in row
    assert "MISSED" not in row, "a quick run judges nothing"
    assert not any(line.startswith(("chain", "log", "memory")) for line in lines)
    (spread,) = (line for line in lines if line.startswith("    floor "))
    assert spread.count(" to ") == 2


@pytest.mark.parametrize(("ours", "holds"), [(1300.0, True), (1600.0, True), (1601.0, False)])
def test_allows_something_beyond_the_share_of_the_floor(ours: float, holds: bool) -> None:
    result = Result(
        name="start",
        what="",
        floor=Series(unit="ms", samples=[200.0]),
        ours=Series(unit="ms", samples=[ours]),
        target=Target(at_most=3, plus=1000),
    )
    assert result.holds is holds
    assert result.ratio == ours / 200, "what is told is the plain ratio"


@pytest.mark.parametrize(("ours", "holds"), [(51.0, True), (49.0, False)])
def test_a_limit_of_the_figure_itself_does_not_depend_on_the_floor(ours: float, holds: bool) -> None:
    result = Result(
        name="masked",
        what="",
        floor=Series(unit="MB/s", samples=[10.0]),
        ours=Series(unit="MB/s", samples=[ours]),
        target=Target(at_least=50, of_ours=True),
    )
    assert result.holds is holds
    assert result.ratio == ours / 10


def test_schedules_that_were_moved_too_late_are_moved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, moved = 100.0, []

    class Slow:
        def drive(self, what: str, program: str, count: int, at: int) -> None:
            nonlocal now
            now += 4.0
            moved.append(at)

    def await_runs(daemon: Slow, **expected: int) -> dict[str, int]:
        return expected

    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(due, "last_row", lambda daemon: len(moved))
    monkeypatch.setattr(due, "await_calm", lambda daemon: None)
    monkeypatch.setattr(due, "await_runs", await_runs)
    measures = scheduled.Schedules(tmp_path, "true", Sizes.quick(), print)
    # 0.5 seconds ahead, then 2, then 5.
    assert measures._due_once(Slow(), 0.0) == {"at": 113, "count": 5, "after": 2}  # type: ignore[arg-type, comparison-overlap]
    assert moved == [101, 106, 113]


def test_schedules_that_are_not_due_are_due_in_no_round() -> None:
    """Also across the end of a year, and for those that had to move to the 28th."""
    zone = ZoneInfo("UTC")
    for day in (date(2026, 1, 1), date(2026, 11, 16), date(2028, 2, 29), date(2026, 12, 31)):
        now = datetime(day.year, day.month, day.day, tzinfo=UTC)
        for number in range(240):
            spec = Schedule(cron=json.loads(workflows.far(number, day)))
            found = next_due(spec, zone=zone, after=now, stored_at=now)
            assert found is not None
            assert found.at - now > timedelta(days=50)


def test_shows_where_the_time_of_a_step_goes(tmp_path: Path) -> None:
    profile = told(bench(tmp_path, "--quick", "--json", "--profile", "chain"))["profile"]["chain"]
    assert list(tmp_path.iterdir()) == []
    phases = profile["phases"]
    assert [phase["name"] for phase in phases] == [
        "decided -> claimed",
        "claimed -> started",
        "started -> ended",
        "ended -> recorded",
        "recorded -> next decided",
    ]
    # The phases follow one another without a gap; only the last step of the run is in none of them.
    assert 0 < sum(phase["mean_ms"] for phase in phases) < profile["per_step_ms"] * 1.5
    assert {sync["name"] for sync in profile["syncs"]} == {
        "database",
        "claim's file",
        "claim's directory",
        "end record",
    }
    assert profile["processor_ms"].keys() == {"daemon", "spawner", "shims and steps", "client"}


# What a part of the daemon is made to do instead of its syncs: none, none of directories, none after the first two.
NO_SYNC = """
def fsync(fd):
    pass
"""
NO_DIRECTORY = """
def fsync(fd, sync=os.fsync):
    import stat
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        sync(fd)
"""
NO_THIRD = """
def fsync(fd, sync=os.fsync, seen=[]):
    seen.append(fd)
    if len(seen) <= 2:
        sync(fd)
"""


def changed_daemon(work: Path) -> Path:
    """A copy of the daemon's package, to be changed."""
    return Path(shutil.copytree(Path(toband.__file__).parent, work / "toband"))


def refused(work: Path, daemon: Path) -> str:
    """Why the bench would not measure this daemon."""
    work.mkdir()
    done = bench(work, "--quick", PYTHONPATH=str(daemon.parent))
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stdout == ""
    assert "nothing was timed" in done.stderr
    assert list(work.iterdir()) == []
    return done.stderr


@pytest.mark.parametrize(
    ("instead", "missing"),
    [
        pytest.param(NO_SYNC, "claims, file and then directory: 0", id="none"),
        pytest.param(NO_DIRECTORY, "claims, file and then directory: 0", id="no-directory"),
        pytest.param(NO_THIRD, "end records, after the claim: 0", id="no-end"),
    ],
)
def test_times_nothing_when_a_shim_does_not_sync(tmp_path: Path, instead: str, missing: str) -> None:
    daemon = changed_daemon(tmp_path)
    with (daemon / "supervise" / "shim" / "shim.py").open("a") as file:
        file.write(f"\n{instead}\nos.fsync = fsync\n")
    said = refused(tmp_path / "w", daemon)
    assert missing in said
    assert "commits of the database" not in said


def test_times_nothing_when_commits_do_not_sync(tmp_path: Path) -> None:
    daemon = changed_daemon(tmp_path)
    module = daemon / "store" / "sql" / "database.py"
    text = module.read_text()
    assert text.count("synchronous = FULL") == 1
    module.write_text(text.replace("synchronous = FULL", "synchronous = NORMAL"))
    said = refused(tmp_path / "w", daemon)
    assert "commits of the database: " in said
    assert "claims" not in said


def test_refuses_a_place_where_syncs_cost_nothing() -> None:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    if not any(words[1] == "/dev/shm" and words[2] == "tmpfs" for words in mounts):
        pytest.skip("there is no tmpfs to try it on")
    done = bench(Path("/dev/shm"))
    assert done.returncode == 2
    assert "it is tmpfs, where a sync costs nothing" in done.stderr


def test_leaves_nothing_when_it_is_stopped(tmp_path: Path) -> None:
    words = [*COMMAND, "--dir", str(tmp_path), "--only", "fanout", "--rounds", "50"]
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE) as process:
        try:
            deadline = time.monotonic() + WITHIN
            while not list(tmp_path.glob("*/fanout.yaml")):
                assert process.poll() is None
                assert time.monotonic() < deadline
                signal.sigtimedwait([], 0.02)
            process.terminate()
            assert process.wait(WITHIN) == 143
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []
