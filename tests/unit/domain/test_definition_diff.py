"""The difference of two texts: as `diff -u` shows it, and bounded in size and time."""

from __future__ import annotations

import time
from difflib import unified_diff
from random import Random

import pytest

from toband.domain.definition_diff import DIFF_MOST, definition_diff


@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_difference_that_diff_shows(seed: int) -> None:
    random = Random(seed)
    old = [f"line {random.randrange(40)}" for _ in range(random.randrange(60))]
    new = list(old)
    for _ in range(random.randrange(4)):
        place = random.randrange(len(new) + 1)
        new[place : place + random.randrange(3)] = [f"new {n}" for n in range(random.randrange(3))]
    shown = definition_diff("\n".join(old), "\n".join(new)).splitlines()
    assert _applied(old, shown) == new
    expected = list(unified_diff(old, new, lineterm=""))[2:]
    assert sum(line[0] in "+-" for line in shown) <= max(8, 2 * sum(line[0] in "+-" for line in expected))


def _applied(old: list[str], shown: list[str]) -> list[str]:
    """What `patch` makes of it."""
    made: list[str] = []
    at = 0
    for line in shown:
        if line.startswith("@@"):
            start, _, count = line.split()[1].removeprefix("-").partition(",")
            first = int(start) - (1 if int(count) else 0)
            made += old[at:first]
            at = first
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert old[at] == line[1:]
            made += [] if line[0] == "-" else [old[at]]
            at += 1
    return made + old[at:]


def test_equal_texts() -> None:
    assert definition_diff("a\nb\n", "a\nb\n") == ""


def test_a_whole_text() -> None:
    assert definition_diff("", "a\nb\n") == "@@ -0,0 +1,2 @@\n+a\n+b"


def test_large_texts_take_little_time_and_space() -> None:
    random = Random(7)
    old, new = ("\n".join(random.choice("ab") for _ in range(100_000)) for _ in range(2))
    before = time.process_time()
    shown = definition_diff(f"same\n{old}\nend", f"same\n{new}\nend")
    assert time.process_time() - before < 2
    assert len(shown) < DIFF_MOST + 100
    assert "characters left out" in shown
    assert shown.startswith("@@ -1,")
