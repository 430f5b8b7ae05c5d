"""What is committed: nothing that looks like a secret, and no waived security rule without a reason."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from toban.token_text import new_token_text

ROOT = Path(__file__).parents[2]
SCAN = ROOT / "scripts" / "lib" / "committed_secrets.py"
PLANTED = {
    "a private key": "-----BEGIN {}PRIVATE KEY-----".format("EC "),
    "a token of Toban": new_token_text().text,
    "a JSON web token": ".".join(["eyJhbGciOiJSUzI1NiJ9", "eyJzdWIiOiJhaWtvIiwiZXhwIjoxfQ", "c2lnbmF0dXJlLW9mLWl0"]),
    "a token of GitHub": "ghp_" + "a1B2" * 9,
    "a key of AWS": "AKIA" + "A1B2" * 4,
    "a password in an address": "postgresql://aiko:" + "k9fj2mxq" + "@db/toban",
}


def scan(*files: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-I", str(SCAN), *map(str, files)], capture_output=True, text=True, timeout=60
    )
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("kind", PLANTED)
def test_a_secret_is_found_with_its_line(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f"first = 1\nvalue = '{PLANTED[kind]}'\n")
    code, printed = scan(file)
    assert code == 1
    assert f"settings.toml:2: looks like {kind}" in printed


def test_a_waived_line_and_a_placeholder_pass(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        f"value = '{PLANTED['a key of AWS']}'  # not a secret: an example\n"
        "database = 'postgresql://user:password@host/toban'\n"
    )
    assert scan(file) == (0, "")


def test_a_waiver_needs_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f"value = '{PLANTED['a key of AWS']}'  # not a secret:\n")
    assert scan(file)[0] == 1


def test_every_waived_security_rule_has_its_reason() -> None:
    tops = ("client", "daemon", "scripts", "examples", "tests")
    files = [path for top in tops for path in (ROOT / top).rglob("*.py") if path != Path(__file__)]
    waived = re.compile(r"# noqa: (?P<rules>[A-Z]+\d+(?:,? *[A-Z]+\d+)*)(?P<reason> - \S.*)?")
    found = [
        (path, line, match["reason"])
        for path in files
        for line in path.read_text("utf-8").splitlines()
        if (match := waived.search(line)) and re.search(r"\bS\d", match["rules"])
    ]
    assert len(found) > 10
    assert [(str(path.relative_to(ROOT)), line.strip()) for path, line, reason in found if reason is None] == []


def test_every_security_rule_that_is_off_has_its_reason() -> None:
    """In the configuration too; none is off as a whole."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    lint = text[text.index("[tool.ruff.lint]") : text.index("[tool.mypy]")]
    chosen, _, off = lint.partition("ignore = [")
    assert '"S"' in chosen
    assert '"S"' not in off
    lines = [line for line in off.splitlines() if re.search(r'"S\d', line)]
    assert len(lines) > 3
    assert [line for line in lines if not re.search(r"# \S", line)] == []
