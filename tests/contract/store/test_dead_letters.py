"""Dead letters: written with the transition that makes them, closed once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from contract.builders import (
    NOW,
    finished,
    later,
    launched,
    new_id,
    new_run,
    request,
    save,
    stored_run,
    with_workflow,
)
from toban.definition import ErrorClass
from toband.domain.run_model import DeadLetter, DeadLetterState, Run, RunState
from toband.ports import (
    ActiveRunError,
    DeadLetterClosedError,
    RunChange,
    RunGoneError,
    Store,
    UpdateResult,
)

OPEN, REQUEUED, DISCARDED = DeadLetterState


def letter_of(run: Run, **changes: Any) -> DeadLetter:
    values: dict[str, Any] = {
        "id": new_id(),
        "run_id": run.id,
        "workflow": run.workflow,
        "step": "s0[3]",
        "attempt_id": "attempt-1",
        "attempts": 4,
        "error": "exit code 75 三",
        "error_class": ErrorClass.RETRYABLE_RATE_LIMIT,
        "created_at": NOW,
    }
    return DeadLetter(**(values | changes))


async def failed(store: Store, workflow: str = "backup", letters: int = 1) -> list[DeadLetter]:
    """Those of a run that has just ended."""
    run = await stored_run(store, workflow)
    made = [letter_of(run) for _ in range(letters)]
    change = RunChange(
        before=run,
        after=finished(run, RunState.FAILED),
        at=later(3),
        event="attempt_ended",
        dead_letters=tuple(made),
    )
    assert await store.save(change) is UpdateResult.UPDATED
    return made


async def test_letters_come_with_their_transition(store: Store) -> None:
    await with_workflow(store)
    one, two = await failed(store, letters=2)
    assert await store.get_dead_letter(one.id) == one
    assert await store.list_dead_letters() == [two, one]
    assert await store.get_dead_letter("nope") is None


async def test_a_transition_that_is_refused_leaves_no_letter(store: Store) -> None:
    await with_workflow(store)
    stale = await stored_run(store)
    run = await save(store, stale, launched(stale, "s0"))
    for before in (stale, replace(run, sequence=7), new_run()):
        letter = letter_of(before)
        change = RunChange(before=before, after=finished(before), at=NOW, event="x", dead_letters=(letter,))
        assert await store.save(change) is not UpdateResult.UPDATED
    assert await store.list_dead_letters() == []


async def test_what_processes_said_is_kept_whatever_it_is(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    letter = letter_of(run, error="bad\0byte \udcff")
    after = launched(run, "s0")
    change = RunChange(before=run, after=after, at=NOW, event="x", dead_letters=(letter,))
    assert await store.save(change) is UpdateResult.UPDATED
    stored = replace(letter, error="bad\ufffdbyte \ufffd")
    assert await store.get_dead_letter(letter.id) == stored


async def test_letters_are_listed_newest_first(store: Store) -> None:
    await with_workflow(store, "a", "b")
    letters = [letter for name in "abab" for letter in await failed(store, name, 2)]
    for place in (1, 2, 7):
        closed = await store.discard_dead_letter(letters[place].id, at=NOW, by="me")
        assert closed is not None
        letters[place] = closed[0]
    newest = letters[::-1]
    of_a = [letter for letter in newest if letter.workflow == "a"]

    assert await store.list_dead_letters() == newest
    assert await store.list_dead_letters(limit=3) == newest[:3]
    assert await store.list_dead_letters(before=newest[2].id, limit=3) == newest[3:6]
    assert await store.list_dead_letters(workflow="a") == of_a
    for states in ([OPEN], [DISCARDED], [OPEN, DISCARDED], [REQUEUED], list(DeadLetterState)):
        assert await store.list_dead_letters(states=states) == [letter for letter in newest if letter.state in states]
        assert (
            await store.list_dead_letters(workflow="a", states=states, limit=2)
            == [letter for letter in of_a if letter.state in states][:2]
        )
    assert await store.list_dead_letters(workflow="c") == []


async def test_a_letter_is_discarded_once(store: Store) -> None:
    await with_workflow(store)
    (letter,) = await failed(store)
    closed = replace(letter, state=DISCARDED, resolved_at=later(5), resolved_by="uid:1000")
    answer = await store.discard_dead_letter(letter.id, at=later(5), by="uid:1000")
    assert answer == (closed, True)
    assert await store.get_dead_letter(letter.id) == closed
    again = await store.discard_dead_letter(letter.id, at=later(6), by="uid:2000")
    assert again == (closed, False)
    assert await store.discard_dead_letter("nope", at=NOW, by="me") is None


def repeating(letter: DeadLetter, **changes: Any) -> Run:
    return new_run(letter.workflow, retry_of=letter.run_id, created_at=later(7), **changes)


async def test_a_letter_is_requeued_with_its_run(store: Store) -> None:
    await with_workflow(store)
    (letter,) = await failed(store)
    run, new = await store.create_run(repeating(letter), max_active=1, request=request(), requeue=letter.id, by="uid:7")
    assert new
    closed = replace(letter, state=REQUEUED, resolved_at=later(7), resolved_by="uid:7", requeued_as=run.id)
    assert await store.get_dead_letter(letter.id) == closed
    # The same request is the same run; another one comes too late.
    again = await store.create_run(repeating(letter), max_active=1, request=request(), requeue=letter.id, by="uid:7")
    assert again == (run, False)
    with pytest.raises(DeadLetterClosedError) as refused:
        await store.create_run(repeating(letter), max_active=None, requeue=letter.id)
    assert refused.value.letter == closed
    assert await store.discard_dead_letter(letter.id, at=NOW, by="me") == (closed, False)
    assert len(await store.list_runs()) == 2


async def test_a_letter_stays_open_when_its_run_is_refused(store: Store) -> None:
    await with_workflow(store)
    (letter,) = await failed(store)
    await stored_run(store)
    with pytest.raises(ActiveRunError):
        await store.create_run(repeating(letter), max_active=1, requeue=letter.id)
    assert await store.get_dead_letter(letter.id) == letter


async def test_of_two_who_requeue_one_gets_through(stores: list[Store]) -> None:
    await with_workflow(stores[0])
    (letter,) = await failed(stores[0])
    results = await asyncio.gather(
        *(stores[n % 2].create_run(repeating(letter), max_active=None, requeue=letter.id) for n in range(6)),
        return_exceptions=True,
    )
    assert sum(isinstance(result, tuple) for result in results) == 1
    assert sum(isinstance(result, DeadLetterClosedError) for result in results) == 5


async def test_letters_go_with_their_run(store: Store) -> None:
    await with_workflow(store)
    (letter,) = await failed(store)
    (other,) = await failed(store)
    await store.delete_runs([letter.run_id])
    assert await store.list_dead_letters() == [other]
    for run in (repeating(letter), new_run()):
        with pytest.raises(RunGoneError):
            await store.create_run(run, max_active=None, requeue=letter.id)
    found = await store.inspect()
    assert "1 dead letter" in found.facts
