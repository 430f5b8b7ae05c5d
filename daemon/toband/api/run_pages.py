"""Runs with a page of their steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from toband.domain.run_model import Run
from toband.engine.errors import RunNotFoundError
from toband.ports import Store

STEPS = 500


async def run_page(store: Store, run_id: str, *, after: int = -1, limit: int = STEPS) -> Run:
    """The run with its steps after that position. Raises RunNotFoundError."""
    run = await store.get_run_page(run_id, after=after, limit=limit)
    if run is None:
        raise RunNotFoundError(run_id)
    return run


async def next_run_page(store: Store, run_id: str, after: int, limit: int) -> tuple[Run, bool]:
    """As `run_page`, and whether there are more steps. Raises RunNotFoundError."""
    run = await run_page(store, run_id, after=after, limit=limit + 1)
    steps = dict(islice(run.steps.items(), limit))
    return replace(run, steps=steps), len(run.steps) > limit
