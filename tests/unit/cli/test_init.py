from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from .conftest import Cli


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("shell", ["my-flow.yaml"]),
        ("python", ["my-flow.yaml", "my_flow_steps.py"]),
        ("schedule", ["my-flow.yaml"]),
    ],
)
def test_what_it_writes_is_valid(bare: Cli, tmp_path: Path, kind: str, files: list[str]) -> None:
    target = tmp_path / "new" / "workflows"
    result = bare("init", "my-flow", "--kind", kind, "--dir", str(target))
    assert (result.code, result.out) == (0, "".join(f"wrote {target / file}\n" for file in files))
    assert f"  toban apply {shlex.quote(str(target / 'my-flow.yaml'))}\n  toban run my-flow --follow\n" in result.err
    assert sorted(path.name for path in target.iterdir()) == sorted(files)
    checked = bare("validate", str(target / "my-flow.yaml"), "-o", "json")
    assert (checked.code, checked.data) == (0, [])
    text = (target / "my-flow.yaml").read_text()
    assert "{{{{" not in text
    assert "# " in text


def test_nothing_is_overwritten(bare: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_flow_steps.py").write_text("mine")
    result = bare("init", "my-flow", "--kind", "python")
    assert result.code == 6
    assert "cannot write my_flow_steps.py: it exists already" in result.err
    assert [path.name for path in tmp_path.glob("my*")] == ["my_flow_steps.py"]
    assert bare("init", "-o", "name").out == "first.yaml\n"
    assert bare("init").code == 6


@pytest.mark.parametrize("name", ["A b", "../x", "a\\b", "", "x" * 300])
def test_names_that_cannot_be_used(bare: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = bare("init", name)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("toban: cannot use the name ")
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_made(bare: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = bare("init", "--dir", str(tmp_path / "file" / "x"))
    assert result.code == 2
    assert "cannot write" in result.err
