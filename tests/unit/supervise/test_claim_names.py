"""Second names of claims: linked with the first, removed when nothing depends on them any more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers.wait import wait_for
from toband.supervise.files.run_files import RunFiles
from toband.supervise.launch import claim_names
from toband.supervise.launch.claim_names import ClaimNames


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClaimNames:
    monkeypatch.setattr(claim_names, "SETTLE_AFTER", 0.01)
    return ClaimNames(RunFiles(str(tmp_path / "runs")))


def left(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "runs" / ".claims").iterdir()}


async def test_what_is_settled_goes_and_what_came_later_stays(names: ClaimNames, tmp_path: Path) -> None:
    directory = tmp_path / "runs" / ".claims"
    directory.mkdir(parents=True)
    for name in ("ended", "active", "settled"):
        (directory / name).touch()
    names.open()
    (directory / "new").touch()
    names.settle("settled")
    names.settle("unknown")
    await wait_for(lambda: left(tmp_path) == {"ended", "active", "new"}, "it stays")
    names.settle_others({"active"})
    await wait_for(lambda: left(tmp_path) == {"active", "new"}, "it stays")
    names.settle("new")
    names.close()
    assert left(tmp_path) == {"active"}


if sys.platform != "win32":
    import os

    from toband.supervise.shim.attempt_file import claim

    def test_a_claim_is_had_under_both_names_or_not_at_all(tmp_path: Path) -> None:
        second = tmp_path / "claims" / "token"
        fd = claim(str(tmp_path), "first", {"format": 1}, str(second))
        assert fd is not None
        os.close(fd)
        assert second.samefile(tmp_path / "first")
        assert claim(str(tmp_path), "first", {"format": 1}, str(second)) is None
        (tmp_path / "first").unlink()
        assert claim(str(tmp_path), "first", {"format": 1}, str(second)) is None
        assert {path.name for path in tmp_path.iterdir()} == {"claims"}
