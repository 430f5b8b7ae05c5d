"""The session with curl in docs/http.md is what really happens: its commands, run against a real gateway, print that.

`python tests/e2e/test_http_session.py` (scripts/gen-first-session) writes what they print now.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.daemon import running_daemon
from helpers.gateway import running_gateway

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
HEADING = "## A session with curl\n"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
URL = "http://127.0.0.1:7280"
MARK = "--- the next command ---"
WITHIN = 120.0

# What differs from run to run, and what stands for it in a comparison.
VARIABLE = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"^id: [\w=-]+$", re.MULTILINE), "id: POSITION"),
    # Empty if it is about to start.
    (re.compile(r'"run_id": "(ID)?"'), '"run_id": "ID"'),
)
_missing = [name for name in ("bash", "curl", "openssl", "sed") if shutil.which(name) is None]


def split(page: str) -> tuple[str, str, str]:
    """What comes before the session, the session, and what comes after it."""
    before, heading, rest = page.partition(HEADING)
    assert heading
    session, next_heading, after = rest.partition("\n## ")
    return before + heading, session, next_heading + after


def commands(block: str) -> list[str]:
    return [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]


def comparable(text: str) -> str:
    for pattern, word in VARIABLE:
        text = pattern.sub(word, text)
    return text


def printed(every: list[str], directory: Path, server: str, url: str) -> list[str]:
    """What each command prints: all of them in one shell, whose variables they share."""
    script = "\n".join(f"printf '%s\\n' '{MARK}'\n{command.replace(URL, url)}" for command in every)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TOBAN_")}
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=directory,
        env={**kept, "PATH": path, "HOME": str(directory), "TOBAN_SERVER": server, "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN,
    )
    return [part.removeprefix("\n") for part in done.stdout.split(MARK)[1:]]


def session(directory: Path) -> str:
    """The page with what its commands print now."""
    before, text, after = split(PAGE.read_text("utf-8"))
    blocks = BLOCK.findall(text)
    with running_daemon(directory / "s") as daemon, running_gateway(daemon.socket, "--no-link") as gateway:
        every = [command for block in blocks for command in commands(block)]
        outputs = iter(printed(every, directory, daemon.socket, gateway.url))

    def run(block: re.Match[str]) -> str:
        shown = (f"$ {command}\n{_ended(next(outputs))}" for command in commands(block[1]))
        return f"```console\n{''.join(shown)}```"

    return before + BLOCK.sub(run, text) + after


def _ended(text: str) -> str:
    """Ends with a line break, which an answer of JSON does not have; a stream has an empty line for each event."""
    text = text.rstrip("\n")
    return f"{text}\n" if text else ""


@pytest.mark.skipif(bool(_missing), reason=f"needs {', '.join(_missing)}")
def test_the_page_is_what_happens(tmp_path: Path) -> None:
    assert comparable(session(tmp_path)) == comparable(PAGE.read_text("utf-8")), "run scripts/gen-first-session"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="th-") as made:
        page = session(Path(made))
    PAGE.write_text(page, "utf-8")
