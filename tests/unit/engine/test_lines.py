"""Whose turn it is among the runs of a workflow."""

from __future__ import annotations

from datetime import UTC, datetime

from toband.domain.model import Run
from toband.engine.lines import Lines

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Board:
    def __init__(self) -> None:
        self.begun: list[str] = []
        self.lines = Lines(self.begun.append)

    def enter(self, name: str, *, limit: int | None = 1, priority: int = 0, of: str = "w") -> Run:
        run = Run(id=name, workflow=of, version=1, created_at=NOW, priority=priority)
        self.lines.enter(run, limit)
        return run


def test_the_first_begins_at_once_and_the_next_when_it_is_over() -> None:
    board = Board()
    first, second = board.enter("1"), board.enter("2")
    assert board.begun == ["1"]
    assert board.lines.waits(second)
    assert not board.lines.waits(first)
    board.lines.leave(first)
    assert board.begun == ["1", "2"]
    assert not board.lines.waits(second)


def test_the_higher_priority_goes_first_then_the_older() -> None:
    board = Board()
    first = board.enter("1")
    board.enter("4")
    board.enter("2")
    urgent = board.enter("3", priority=5)
    assert board.lines.waiting("w") == ["2", "3", "4"]
    board.lines.leave(first)
    board.lines.leave(urgent)
    assert board.begun == ["1", "3", "2"]


def test_one_that_was_cancelled_while_it_waited_is_passed_over() -> None:
    board = Board()
    first, second = board.enter("1"), board.enter("2")
    board.enter("3")
    board.lines.leave(second)
    board.lines.leave(first)
    assert board.begun == ["1", "3"]


def test_as_many_as_may_are_under_way() -> None:
    board = Board()
    runs = [board.enter(str(number), limit=2) for number in range(4)]
    assert board.begun == ["0", "1"]
    assert board.lines.under_way("w") == ["0", "1"]
    board.lines.leave(runs[1])
    assert board.begun == ["0", "1", "2"]


def test_without_a_limit_nobody_waits() -> None:
    board = Board()
    board.enter("1")
    board.enter("2", limit=None)
    assert board.begun == ["1", "2"]


def test_a_run_that_was_under_way_before_a_restart_has_its_place() -> None:
    board = Board()
    old = Run(id="0", workflow="w", version=1, created_at=NOW)
    board.lines.begun(old)
    board.enter("1")
    assert board.begun == []
    board.lines.leave(old)
    assert board.begun == ["1"]


def test_workflows_do_not_wait_for_each_other_and_leave_nothing_behind() -> None:
    board = Board()
    runs = [board.enter("1"), board.enter("2", of="other")]
    assert board.begun == ["1", "2"]
    for run in runs:
        board.lines.leave(run)
        board.lines.leave(run)
    assert board.lines.under_way("w") == board.lines.waiting("other") == []
