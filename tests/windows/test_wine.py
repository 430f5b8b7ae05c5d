"""Runs scripts/test-windows as one test, so that it takes one of CI's workers while the others go on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

# Read at once: tests change the environment.
PRINTED = os.environ.get("TOBAN_TEST_WINDOWS", "")
SCRIPT = Path(__file__).parents[2] / "scripts/test-windows"
# The import contracts hold that `domain` uses nothing of the system: scripts/test-windows alone tests it too.
NOT_HERE = "--ignore=tests/unit/domain"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(
    not PRINTED,
    reason="TOBAN_TEST_WINDOWS does not name a file for the output of scripts/test-windows",
)
def test_the_windows_tests_pass() -> None:
    with open(PRINTED, "wb") as printed:
        done = subprocess.run([SCRIPT, NOT_HERE], stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        Path(PRINTED).with_suffix(".failed").write_text(f"scripts/test-windows {NOT_HERE}\n")
        pytest.fail("scripts/test-windows failed; its output has the reason", pytrace=False)
