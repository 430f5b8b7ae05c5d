"""Runs are searched a bounded number at a time, and every page continues where the last one ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from toband.domain.run_model import Run
from toband.engine.runs.run_search import EXAMINED, RunSearch, SearchFilter

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def run(number: int, **fields: Any) -> Run:
    return Run(id=f"{number:09}", workflow="w", version=1, number=number, created_at=NOW, **fields)


@pytest.mark.parametrize(
    ("params", "text", "matches"),
    [
        ({"n": "5"}, "", True),
        ({"n": "5.0"}, "", False),
        ({"l": '[1,"a"]'}, "", True),
        ({"on": "true", "n": "5"}, "", True),
        ({"on": "true", "n": "6"}, "", False),
        ({"missing": ""}, "", False),
        ({}, "DISK is full", True),
        ({}, "team=a", True),
        ({}, "W#7", True),
        ({}, "n=5", True),
        ({"n": "5"}, "elsewhere", False),
    ],
)
def test_what_a_run_is_found_by(params: dict[str, str], text: str, matches: bool) -> None:
    found = run(7, params={"n": 5, "l": [1, "a"], "on": True}, labels={"team": "a"}, error="the disk is FULL")
    assert SearchFilter(params=params, text=text).matches(found) is matches


@pytest.mark.parametrize("size", [0, 1, 200, EXAMINED, EXAMINED * 2 + 3])
@pytest.mark.parametrize("every", [1, 700, EXAMINED * 3])
def test_all_pages_together_find_all(size: int, every: int) -> None:
    runs = [run(number, error="hit" if number % every == 0 else "") for number in range(size, 0, -1)]

    async def read(before: str, count: int) -> Sequence[Run]:
        start = size - int(before) + 1 if before else 0
        return runs[start : start + count]

    async def search() -> list[Run]:
        found: list[Run] = []
        before = ""
        while True:
            page, after = await RunSearch(cast(Any, None)).page(SearchFilter(params={}, text="hit"), read, before, 1000)
            assert len(page) <= 1000
            found += page
            if not after:
                return found
            assert not before or after < before
            before = after

    assert asyncio.run(search()) == [each for each in runs if each.error]
