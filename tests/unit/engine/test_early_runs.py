"""Runs that are started before a restart has taken up those of before."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from toban.definition import JobType, Overlap, Step, Workflow
from toband.domain.plan import Plan
from toband.domain.run_events import CancelRequested, RunStarted
from toband.domain.run_model import Run, RunState
from toband.domain.transition import Ids
from toband.engine.runs.registry import Runs

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEP = Step(id="s", name="s", job_type=JobType.SHELL, target="x", kwargs={}, env={})


class Actor:
    def __init__(self, run_id: str, state: RunState, overlap: Overlap) -> None:
        self.run = Run(id=run_id, workflow="w", version=1, number=int(run_id), created_at=NOW, state=state)
        self.plan = Plan(Workflow(name="w", title="", labels={}, params={}, env={}, steps={"s": STEP}, overlap=overlap))
        self.base_dir = ""
        self.posted: list[object] = []

    def post(self, event: object) -> None:
        self.posted.append(event)


@pytest.fixture
def runs() -> Runs:
    made: dict[str, Any] = dict.fromkeys(
        (
            "store",
            "launcher",
            "files",
            "logs",
            "values",
            "artifacts",
            "clock",
            "changes",
            "health",
            "evaluation",
        )
    )
    made["store"] = SimpleNamespace(check_owner=None)
    made["files"] = cast(Any, type("Files", (), {"work": staticmethod(lambda _: "")}))
    ids = Ids(new_id=lambda: "", new_token=lambda: "")
    return Runs(**made, ids=ids, server="")


def known(runs: Runs, *actors: Actor) -> None:
    for actor in actors:
        runs._actors[actor.run.id] = cast(Any, actor)


def test_they_wait_for_their_turn_behind_those_of_before(runs: Runs) -> None:
    begun = Actor("1", RunState.RUNNING, Overlap.QUEUE)
    queued = Actor("2", RunState.PENDING, Overlap.QUEUE)
    early = Actor("3", RunState.PENDING, Overlap.QUEUE)
    known(runs, begun, queued, early)
    runs._line_up(cast(Any, early))
    assert early.posted == []
    runs.line_up(cast(Any, [begun, queued]))
    assert (queued.posted, early.posted) == ([], [])
    assert runs._lines.waiting("w") == ["2", "3"]
    runs._lines.leave(begun.run)
    assert queued.posted == [RunStarted()]


def test_one_that_is_over_by_then_is_passed_over(runs: Runs) -> None:
    gone = Actor("1", RunState.PENDING, Overlap.QUEUE)
    runs._line_up(cast(Any, gone))
    gone.run = replace(gone.run, state=RunState.CANCELLED)
    runs.line_up([])
    assert gone.posted == []
    assert runs._lines.waiting("w") == runs._lines.under_way("w") == []


def test_of_runs_that_replace_each_other_the_newest_stays(runs: Runs) -> None:
    begun = Actor("1", RunState.RUNNING, Overlap.REPLACE)
    queued = Actor("2", RunState.PENDING, Overlap.REPLACE)
    early = Actor("3", RunState.PENDING, Overlap.REPLACE)
    known(runs, begun, queued, early)
    runs._line_up(cast(Any, early))
    runs.line_up(cast(Any, [begun, queued]))
    cancelled = CancelRequested(reason="replaced by run 3")
    assert cancelled in queued.posted
    assert cancelled in begun.posted
    assert early.posted == []


def test_an_older_one_does_not_replace_a_newer_one(runs: Runs) -> None:
    newer = Actor("2", RunState.RUNNING, Overlap.REPLACE)
    older = Actor("1", RunState.PENDING, Overlap.REPLACE)
    known(runs, newer, older)
    runs.line_up(cast(Any, [newer, older]))
    assert newer.posted == []
    assert older.posted == [CancelRequested(reason="replaced by run 2")]
