"""docs/first-ten-minutes.md is what really happens: its commands, run against a real daemon, print what it says.

`python tests/e2e/test_first_session.py` (scripts/gen-first-session) writes what they print now.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "first-ten-minutes.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEV = "toban dev"
WITHIN = 120.0

# What differs from run to run, and what stands for it in a comparison.
VARIABLE = (
    # Shown if a step ran for so long that its use was sampled.
    (re.compile(r"\nResource use:\n(?:(?!\$ |```).+\n)+"), ""),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"/\S*/toban-dev-\w+"), "DIRECTORY"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?![\d+])"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)?(ms|s|m|h|d)\b"), "SPAN"),
    (re.compile(r"\b\d+(\.\d+)? (B|KiB|MiB|GiB)"), "SIZE"),
    (re.compile(r"[ ─]+"), " "),
)


def commands(block: str) -> list[str]:
    return [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]


def comparable(text: str) -> str:
    for pattern, word in VARIABLE:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def environment(home: Path) -> dict[str, str]:
    programs = os.path.dirname(sys.executable)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TOBAN_", "XDG_"))}
    return {**kept, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "TZ": "UTC", "COLUMNS": "100"}


@contextmanager
def dev(home: Path) -> Iterator[tuple[str, str]]:
    """`toban dev`: what it prints, and the address in it."""
    command = ["toban", "dev"]
    daemon = subprocess.Popen(
        command, cwd=home, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    guard = threading.Timer(WITHIN, daemon.kill)
    guard.start()
    assert daemon.stdout is not None
    try:
        printed = ""
        for line in daemon.stdout:
            # The daemon's own log lines are not those of the command.
            if line.startswith(("toban: ", "       ", "export ")):
                printed += line
            if line.startswith("export TOBAN_SERVER="):
                break
        guard.cancel()
        found = re.search(r"^export TOBAN_SERVER=(\S+)$", printed, re.MULTILINE)
        assert found, printed
        yield printed, found[1]
    finally:
        guard.cancel()
        daemon.send_signal(signal.SIGINT)
        try:
            daemon.communicate(timeout=WITHIN)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.communicate()


def session() -> str:
    """The page with what its commands print now."""
    page = PAGE.read_text("utf-8")
    with tempfile.TemporaryDirectory(prefix="tf-") as directory, dev(Path(directory)) as (greeting, address):

        def printed(command: str) -> str:
            if command == DEV:
                return greeting
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=directory,
                env={**environment(Path(directory)), "TOBAN_SERVER": address},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=WITHIN,
            )
            return done.stdout

        def run(block: re.Match[str]) -> str:
            shown = (f"$ {command}\n{printed(command)}" for command in commands(block[1]))
            return f"```console\n{''.join(shown)}```"

        return BLOCK.sub(run, page)


def test_the_page_is_what_happens() -> None:
    assert comparable(session()) == comparable(PAGE.read_text("utf-8")), "run scripts/gen-first-session"


def test_a_stale_page_is_noticed() -> None:
    assert comparable("hello#1 succeeded after 239ms  x") == comparable("hello#1 succeeded after 1.2s x")
    sampled = "report ok\n\nResource use:\nSTEP  CPU\nreport  1%\n$ toban logs x\n"
    assert comparable(sampled) == comparable("report ok\n$ toban logs x\n")
    assert comparable("hello#1 succeeded") != comparable("hello#2 succeeded")


if __name__ == "__main__":
    PAGE.write_text(session(), "utf-8")
