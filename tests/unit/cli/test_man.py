from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from toban.cli.command_line import PROGRAM

from .conftest import Cli


@pytest.fixture
def pages(bare: Cli, tmp_path: Path) -> list[Path]:
    assert bare("man", "--to", str(tmp_path / "man1")).code == 0
    return sorted((tmp_path / "man1").iterdir())


def test_every_command_has_a_page(pages: list[Path], bare: Cli) -> None:
    expected = ["toban.1", *(f"toban-{name}.1" for name, entry in PROGRAM.entries.items() if not entry.words)]
    assert [page.name for page in pages] == sorted(expected)
    for page in pages:
        name = page.stem.removeprefix("toban").removeprefix("-")
        assert page.read_text() == bare("man", *([name] if name else [])).out


def test_a_page_has_what_the_help_has(bare: Cli) -> None:
    page = bare("man", "runs").out
    assert page.startswith('.TH "TOBAN\\-RUNS" 1 ')
    for text in (".SS toban runs list", "\\-\\-limit N", "Show at most N.", ".SH SEE ALSO"):
        assert text in page
    assert "\b" not in page
    main = bare("man").out
    assert "toban\\-runs(1)" in main
    assert "\\-\\-context NAME" in main


def test_wrong_names(bare: Cli, tmp_path: Path) -> None:
    assert bare("man", "rusn").code == 5
    assert bare("man", "runs", "--to", str(tmp_path)).code == 2
    (tmp_path / "file").touch()
    assert bare("man", "--to", str(tmp_path / "file")).code == 2


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_groff_has_no_warning(pages: list[Path]) -> None:
    for page in pages:
        command = ["groff", "-man", "-Tutf8", "-ww", "-z", str(page)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert done.stderr == "", page.name


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="needs mandoc")
def test_mandoc_has_no_warning_except_for_the_date(pages: list[Path]) -> None:
    # Pages without a date are the same whenever they are made.
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", *map(str, pages)], capture_output=True, text=True, timeout=60
    )
    assert [line for line in done.stdout.splitlines() if "missing date" not in line] == []
