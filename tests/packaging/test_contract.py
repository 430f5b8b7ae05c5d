"""The contract in proto/ may grow; a change that breaks clients of the committed one is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUF = Path(sys.prefix) / "bin" / "buf"

pytestmark = pytest.mark.skipif(not BUF.is_file(), reason="needs buf, of the extra dev")


def compare(proto: Path) -> tuple[int, str]:
    """As `scripts/check` does it."""
    done = subprocess.run(
        [ROOT / "scripts" / "lib" / "buf_breaking.sh", BUF, proto],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def changed(directory: Path, old: str, new: str) -> Path:
    """A copy of the contract with one text of run.proto replaced."""
    proto = directory / "proto"
    shutil.copytree(ROOT / "proto", proto)
    file = proto / "toban" / "v1" / "run.proto"
    text = file.read_text("utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), "utf-8")
    return proto


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("  rpc DeleteRun(", "  rpc RemoveRun(", "DeleteRun"),
        ("message GetRunRequest {", "message FetchRunRequest {", "GetRunRequest"),
        ("  RUN_STATE_FAILED = ", "  RUN_STATE_BROKEN = ", "RUN_STATE_FAILED"),
    ],
    ids=["method", "message", "state"],
)
def test_a_change_that_breaks_clients_is_refused(old: str, new: str, complaint: str, tmp_path: Path) -> None:
    code, printed = compare(changed(tmp_path, old, new))
    assert code == 1
    assert complaint in printed
    assert "scripts/gen-protos --image" in printed


def test_an_addition_is_accepted(tmp_path: Path) -> None:
    proto = changed(tmp_path, "message GetRunRequest {", "message GetRunRequest {\n  string added = 2000;")
    assert compare(proto) == (0, "")
