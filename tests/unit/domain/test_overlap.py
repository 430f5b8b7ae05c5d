"""Overlap: which runs start, queue, are skipped, or replace others."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from toban.definition import JobType, Overlap, Step, Workflow
from toband.domain.overlap import (
    QUEUE_LIMIT,
    OverlapRule,
    is_full,
    may_queue,
    replacements,
    rule_for,
    scheduled_limit,
)
from toband.domain.run_model import Run, Trigger

RUN = Run(id="1", workflow="w", version=1, number=1, created_at=datetime(2026, 1, 1, tzinfo=UTC))
EVENT_RUN = replace(RUN, trigger=Trigger.EVENT, event={"id": "e"})
CHILD = replace(RUN, trigger=Trigger.PARENT, parent_run="p")
BACKFILLED = replace(RUN, trigger=Trigger.BACKFILL)
STEP = Step(id="s", name="s", job_type=JobType.SHELL, target="x", kwargs={}, env={})


def workflow(overlap: Overlap, *, of_events: Overlap = Overlap.QUEUE) -> Workflow:
    return Workflow(
        name="w",
        title="",
        labels={},
        params={},
        env={},
        steps={"s": STEP},
        overlap=overlap,
        event_overlap=of_events,
        max_active_runs=2,
    )


@pytest.mark.parametrize(
    ("overlap", "limit", "skip_limit", "queue_limit"),
    [
        (Overlap.SKIP, 2, 2, None),
        (Overlap.QUEUE, 2, None, QUEUE_LIMIT),
        (Overlap.REPLACE, 2, None, None),
        (Overlap.ALLOW, None, None, None),
    ],
)
def test_the_rule_of_a_run(
    overlap: Overlap, limit: int | None, skip_limit: int | None, queue_limit: int | None
) -> None:
    rule = rule_for(workflow(overlap), RUN)
    assert (rule.limit, rule.skip_limit, rule.queue_limit) == (limit, skip_limit, queue_limit)
    assert rule == rule_for(workflow(Overlap.SKIP, of_events=overlap), EVENT_RUN)
    assert scheduled_limit(workflow(overlap).to_dict()) == limit


@pytest.mark.parametrize("overlap", list(Overlap))
def test_a_child_waits_for_its_turn_and_is_never_refused(overlap: Overlap) -> None:
    rule = rule_for(workflow(overlap), CHILD)
    assert (rule.limit, rule.skip_limit) == (2, None)
    assert not rule.overflows(active=2, waiting=10 * QUEUE_LIMIT, ahead=0)


@pytest.mark.parametrize("overlap", list(Overlap))
def test_a_backfill_waits_for_free_slots_and_is_never_refused_or_replaced(overlap: Overlap) -> None:
    rule = rule_for(workflow(overlap), BACKFILLED)
    assert (rule.mode, rule.limit, rule.skip_limit) == (Overlap.QUEUE, 2, None)
    assert not rule.overflows(active=2, waiting=10 * QUEUE_LIMIT, ahead=0)
    assert may_queue(workflow(overlap), BACKFILLED)
    newer = replace(RUN, id="9", number=9)
    replacing = rule_for(workflow(Overlap.REPLACE), newer)
    begun = [replace(BACKFILLED, id=str(number), number=number) for number in (1, 2)]
    assert list(replacements(replacing, newer, [replace(BACKFILLED, id="3", number=3)], begun)) == []


def test_the_queue_has_an_end() -> None:
    rule = OverlapRule(Overlap.QUEUE, 2, 3)
    assert not rule.overflows(active=2, waiting=2, ahead=0)
    assert rule.overflows(active=2, waiting=3, ahead=0)
    # Runs that are about to enter take free slots first, then the queue.
    assert not rule.overflows(active=0, waiting=0, ahead=4)
    assert rule.overflows(active=0, waiting=0, ahead=5)


def test_a_limit_is_reached_by_as_many_active_runs() -> None:
    assert [is_full(2, active) for active in (1, 2, 3)] == [False, True, True]
    assert not is_full(None, 1000)


def test_only_the_newest_run_stays() -> None:
    alone, two = OverlapRule(Overlap.REPLACE, 1, None), OverlapRule(Overlap.REPLACE, 2, None)
    first, second, third = (replace(RUN, id=str(number), number=number) for number in (1, 2, 3))
    assert list(replacements(alone, third, [second], [first])) == [("2", third), ("1", third)]
    assert list(replacements(alone, first, [second], [third])) == [("1", second)]
    # A slot is free for it.
    assert list(replacements(two, third, [], [first])) == []
    assert list(replacements(two, third, [], [first, second])) == [("1", third)]
    assert not list(replacements(OverlapRule(Overlap.QUEUE, 1, QUEUE_LIMIT), third, [second], [first]))


def test_which_pending_runs_may_be_in_the_queue() -> None:
    assert [may_queue(workflow(each), RUN) for each in Overlap] == [each is not Overlap.ALLOW for each in Overlap]
    assert may_queue(workflow(Overlap.SKIP), CHILD)
    assert may_queue(None, EVENT_RUN)
