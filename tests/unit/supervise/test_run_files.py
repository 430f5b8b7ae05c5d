"""Paths of run files, and files of large values."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toband.domain.attempt_model import Attempt, AttemptState
from toband.supervise.artifacts.value_files import ValueFiles
from toband.supervise.files.run_files import RunFiles

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")


def attempt_of(step: str, number: int = 1) -> Attempt:
    return Attempt(
        id="a",
        run_id="run",
        step=step,
        number=number,
        ordinal=0,
        token="0123456789abcdef",
        state=AttemptState.COMPLETED,
        created_at=datetime(2026, 2, 1, tzinfo=UTC),
    )


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    made = RunFiles(str(tmp_path / "runs"))
    os.makedirs(made.root)
    made.prepare("run", {})
    return made


def test_names_hold_nothing_that_shells_take_for_a_pattern(files: RunFiles) -> None:
    names = {
        step: files.log_name(attempt_of(step, 2)).removesuffix(".01234567.log")
        for step in ("build", "build.check", "build[3]", "build[3].check")
    }
    assert names == {
        "build": "build.2",
        "build.check": "build.check.2",
        "build[3]": "build.3.2",
        "build[3].check": "build.3.check.2",
    }


def test_no_name_is_a_device_of_windows(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    for step in ("con", "CON.check", "nul[3]", "com1[3].check"):
        first = files.log_name(attempt_of(step)).partition(".")[0]
        assert first == step.partition(".")[0].partition("[")[0] + "-"
    assert files.log_name(attempt_of("console")).startswith("console.1.")


@posix
def test_others_cannot_move_what_is_in_the_context_directory(files: RunFiles) -> None:
    context = files.context("run")
    assert stat.S_IMODE(os.stat(context).st_mode) == 0o1700
    # An access list may have widened it meanwhile.
    os.chmod(context, 0o1730)
    files.prepare("run", {})
    assert stat.S_IMODE(os.stat(context).st_mode) == 0o1730


def test_large_values_are_kept(files: RunFiles) -> None:
    values, attempt = ValueFiles(files), attempt_of("build[3]")
    result = {"rows": [1, 2.5, None, "三", "\ud800"], "big": "x" * 100_000}
    size = values.spill(attempt, result, {"a": "b\nc"})
    assert size == os.path.getsize(files.values(attempt)) > 100_000
    assert values.load(attempt) == (result, {"a": "b\nc"})
    values.spill(attempt, None, {})
    assert values.load(attempt) == (None, {})
    assert os.listdir(files.attempts("run")) == [os.path.basename(files.values(attempt))]
    if sys.platform != "win32":
        assert stat.S_IMODE(os.stat(files.values(attempt)).st_mode) == 0o600


def test_values_are_on_disk_before_they_have_their_name(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, os.replace

    def noted_fsync(fd: int) -> None:
        done.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def noted_replace(old: str, new: str) -> None:
        done.append("name")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    ValueFiles(files).spill(attempt_of("build"), [], {})
    assert done == ["file", "name"] + ([] if sys.platform == "win32" else ["directory"])


def test_values_that_are_gone_or_damaged(files: RunFiles) -> None:
    values, attempt = ValueFiles(files), attempt_of("build")
    with pytest.raises(FileNotFoundError):
        values.load(attempt)
    values.spill(attempt, [1, 2, 3], {})
    for damage in ("[1", "[]", '{"result": 1}', ""):
        Path(files.values(attempt)).write_text(damage)
        with pytest.raises(OSError, match="damaged"):
            values.load(attempt)
    with pytest.raises(FileNotFoundError):
        values.load(replace(attempt, number=2))
