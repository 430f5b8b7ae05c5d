"""The end of scripts/test: its directory is removed, and nothing that a killed test left mounted in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/lib/remove_work.sh"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, to mount"
)


def removed(work: Path, mounts: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a mount namespace of its own."""
    script = f"set -e; cd {work}; {mounts}; exec {SCRIPT} {work}"
    return subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "kept").write_text("x")
    (tmp_path / "work/in the way/low").mkdir(parents=True)
    (tmp_path / "work/file").write_text("x")
    return directory


def test_what_is_mounted_is_not_removed(tmp_path: Path, outside: Path) -> None:
    mounts = f"mount -t tmpfs none 'in the way'; mkdir 'in the way/low'; mount --bind {outside} 'in the way/low'"
    done = removed(tmp_path / "work", mounts)
    assert done.returncode == 0, done.stderr
    assert (outside / "kept").read_text() == "x"
    assert not (tmp_path / "work").exists()


def test_nothing_is_removed_while_something_stays_mounted(tmp_path: Path, outside: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "umount").write_text("#!/bin/sh\nexit 32\n")
    (programs / "umount").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    done = removed(tmp_path / "work", f"mount --bind {outside} 'in the way/low'", PATH=path)
    assert done.returncode == 1
    assert "is left, because something is mounted in it" in done.stderr
    assert (outside / "kept").read_text() == "x"
    assert (tmp_path / "work/file").exists()
