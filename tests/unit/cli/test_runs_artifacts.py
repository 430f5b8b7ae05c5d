from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from doubles.daemon.fake_daemon import FakeDaemon, RunRecord
from toban.v1 import run_pb2

from .conftest import Cli


@pytest.fixture
def record(daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    monkeypatch.chdir(tmp_path)
    daemon.add_workflow("nightly")
    found = daemon.add_run("nightly", steps=["fetch", "build[0]", "build[1]"])
    for step in found.run.steps:
        name = "raw" if step.id == "fetch" else "log"
        step.parent = "" if step.id == "fetch" else "build"
        step.artifacts.add(name=name, path=f"{step.id}/{name}", type="data", files=2, bytes=1536)
    found.run.steps[1].artifacts[0].state = run_pb2.PROCESS_STATE_COMPLETED
    found.run.steps[2].artifacts[0].state = run_pb2.PROCESS_STATE_TIMED_OUT
    header = run_pb2.ArtifactHeader(file_name="raw.json", bytes=6)
    found.contents["fetch", "raw", ""] = (header, b"abc", b"def")
    return found


def test_list(cli: Cli, record: RunRecord) -> None:
    result = cli("runs", "artifacts", "nightly")
    assert result.code == 0
    header, first, second, third = result.out.splitlines()
    assert header.split() == ["STEP", "NAME", "TYPE", "FILES", "SIZE", "STATE", "PATH"]
    assert first.split() == ["fetch", "raw", "data", "2", "1.5", "KiB", "-", "fetch/raw"]
    assert [line.split("  ")[-2].strip() for line in (second, third)] == ["completed", "timed out"]
    names = cli("runs", "artifacts", "nightly", "--step", "build", "-o", "name")
    assert names.out == "build[0]/log\nbuild[1]/log\n"
    limited = cli("runs", "artifacts", "nightly", "--limit", "2", "-o", "json")
    assert [one["step"] for one in limited.data] == ["fetch", "build[0]"]
    assert limited.err.startswith("more available")


def test_show_counts_them(cli: Cli, record: RunRecord) -> None:
    line = "artifacts:  3, 4.5 KiB; see `toban runs artifacts nightly#1`"
    assert line in cli("runs", "show", "nightly").out.splitlines()


def test_no_artifacts(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    daemon.add_run("nightly")
    assert cli("runs", "artifacts", "nightly").err == "no artifacts\n"


def test_download_under_its_own_name(cli: Cli, record: RunRecord) -> None:
    result = cli("runs", "artifacts", "nightly", "--download", "raw")
    assert (result.code, result.out) == (0, "wrote raw.json: a file of 6 B\n")
    assert Path("raw.json").read_bytes() == b"abcdef"
    again = cli("runs", "artifacts", "nightly", "--download", "raw")
    assert again.code == 6
    assert "the file exists" in again.err
    assert sorted(path.name for path in Path().iterdir()) == ["raw.json"]


def test_download_to_a_place(cli: Cli, record: RunRecord) -> None:
    Path("there").mkdir()
    Path("mine").write_text("old")
    assert cli("runs", "artifacts", "nightly", "--download", "raw", "-O", "mine").code == 0
    assert Path("mine").read_bytes() == b"abcdef"
    named = cli("runs", "artifacts", "nightly", "--download", "raw", "-O", "there", "-o", "json")
    assert named.data == {"path": str(Path("there/raw.json")), "bytes": 6, "tar": False}
    missing = cli("runs", "artifacts", "nightly", "--download", "raw", "-O", "nowhere/x")
    assert missing.code == 2
    assert missing.err.startswith("toban: cannot write nowhere/x: ")
    if sys.platform != "win32":
        os.mkfifo("pipe")
        assert (
            "pipe: it is no regular file" in cli("runs", "artifacts", "nightly", "--download", "raw", "-O", "pipe").err
        )
        assert Path("pipe").is_fifo()


def test_download_to_standard_output(cli: Cli, record: RunRecord) -> None:
    result = cli("runs", "artifacts", "nightly", "--download", "raw", "-O", "-")
    assert (result.raw, result.err) == (b"abcdef", "")


def test_one_file_of_many(cli: Cli, record: RunRecord) -> None:
    header = run_pb2.ArtifactHeader(file_name="../../evil", bytes=1)
    record.contents["build[1]", "log", "a/b"] = (header, b"x")
    result = cli("runs", "artifacts", "nightly", "-S", "build[1]", "--download", "log", "--file", "a/b", "-o", "name")
    # The name that was suggested leads nowhere else.
    assert (result.code, result.out) == (0, "evil\n")


def test_a_broken_download_leaves_nothing(cli: Cli, record: RunRecord) -> None:
    header = run_pb2.ArtifactHeader(file_name="raw.json", bytes=6)
    record.contents["fetch", "raw", ""] = (header, b"abc", None)
    result = cli("runs", "artifacts", "nightly", "--download", "raw")
    assert result.code == 3
    assert list(Path().iterdir()) == []


def test_a_name_that_several_steps_have(cli: Cli, record: RunRecord) -> None:
    result = cli("runs", "artifacts", "nightly", "--download", "log")
    assert result.code == 2
    assert result.err.splitlines()[1] == "hint: choose one with --step: build[0], build[1]"


def test_a_name_that_none_has(cli: Cli, record: RunRecord) -> None:
    result = cli("runs", "artifacts", "nightly", "--download", "rwa")
    assert result.code == 5
    assert result.err.splitlines() == [
        "toban: cannot download rwa of nightly: no such artifact",
        "hint: artifacts: raw, log",
    ]


def test_a_place_without_a_name(cli: Cli, record: RunRecord) -> None:
    result = cli("runs", "artifacts", "nightly", "-O", "x")
    assert result.code == 2
    assert "--download NAME" in result.err
