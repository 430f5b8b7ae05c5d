"""Every Python block of the documents: type-checked as a user would, and run against a daemon."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.daemon import Daemon, running_daemon
from helpers.wait import wait_until
from toban.sdk import SyncClient

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITHIN = 120.0


@dataclass(frozen=True)
class Snippet:
    document: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def in_a_step(self) -> bool:
        """Whether it is the module of a python step."""
        return "from toban.step import" in self.text

    @property
    def program(self) -> str:
        """A block may await at its top level; a program may not."""
        code = compile(self.text, str(self), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if not code.co_flags & inspect.CO_COROUTINE:
            return self.text
        body = textwrap.indent(self.text, "    ")
        return f"import asyncio\n\n\nasync def main() -> None:\n{body}\n\nasyncio.run(main())\n"


SNIPPETS = [
    Snippet(str(path.relative_to(ROOT)), path.read_text("utf-8").count("\n", 0, found.start()) + 1, found[1])
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for found in BLOCK.finditer(path.read_text("utf-8"))
]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("of") / "examples"
    shutil.copytree(ROOT / "examples", copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, examples: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("daemon") / "state") as daemon:
        toban(daemon, "apply", str(examples))
        yield daemon


def toban(daemon: Daemon, *arguments: str) -> str:
    command = [sys.executable, "-m", "toban.cli", "--server", daemon.socket, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_some() -> None:
    assert {snippet.document for snippet in SNIPPETS} >= {"README.md", "docs/api.md", "docs/sdk.md"}


@pytest.mark.parametrize("snippet", [each for each in SNIPPETS if not each.in_a_step], ids=str)
def test_a_program_runs(daemon: Daemon, examples: Path, snippet: Snippet) -> None:
    path = examples / "snippet.py"
    path.write_text(snippet.program, "utf-8")
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=examples,
        env={**os.environ, "TOBAN_SERVER": daemon.socket},
        capture_output=True,
        text=True,
        timeout=WITHIN,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.parametrize("snippet", [each for each in SNIPPETS if each.in_a_step], ids=str)
def test_a_step_runs(daemon: Daemon, tmp_path: Path, snippet: Snippet) -> None:
    (tmp_path / "snippet.py").write_text(snippet.text, "utf-8")
    (function,) = re.findall(r"^(?:async )?def (\w+)", snippet.text, re.MULTILINE)
    name = f"line-{snippet.line}"
    (tmp_path / "w.yaml").write_text(
        f"name: {name}\ndescription: A snippet.\non: {name}\n"
        f"steps: {{call: {{job_type: python, target: 'snippet:{function}'}}}}\n"
    )
    toban(daemon, "apply", str(tmp_path / "w.yaml"))
    with SyncClient(daemon.socket) as client:
        payload = {"entity": "issue", "data": {"id": 7}}
        event, _ = client.emit_event(name, payload)
        (started,) = wait_until(lambda: client.get_event(event.id).event.runs, "the event is decided")
        client.find_run(started.run_id).wait(timeout=WITHIN, check=True)


def test_types_are_right(tmp_path: Path) -> None:
    """mypy as a user runs it: strict, with the installed package."""
    for number, snippet in enumerate(SNIPPETS):
        if not snippet.in_a_step:
            (tmp_path / f"snippet_{number}.py").write_text(f"# {snippet}\n{snippet.program}", "utf-8")
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\n")
    # Of a working copy mypy must be told where the package is.
    working_copy = Path(inspect.getfile(SyncClient)).is_relative_to(ROOT / "client")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "client") if working_copy else ""},
        capture_output=True,
        text=True,
        timeout=WITHIN,
    )
    assert done.returncode == 0, done.stdout + done.stderr
