"""Any value of a run, a step or an attempt is read back unchanged."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.builders import change, new_id, new_run, save, stored_run, with_workflow
from toban.definition import ErrorClass
from toband.domain.attempt_model import Attempt, AttemptState, Orphans, Progress, ResourceUse, TreeCause, TreeEnding
from toband.domain.run_model import (
    Artifact,
    Awaited,
    Ending,
    EndingCause,
    FinallyPart,
    Phase,
    Run,
    RunState,
    SkipReason,
    StepRun,
    StepState,
    Trigger,
)
from toband.ports import Store, UpdateResult
from toband.store.sql.columns import from_micros, printable, to_micros

ORIGIN = new_id()
"""A run that others may refer to."""

# The database outlives the examples of a test; each example makes rows of its own.
shared_store = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

times = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
maybe_times = st.none() | times
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
counts = st.integers(0, 2**31 - 1)
big = st.integers(-(2**63), 2**63 - 1)
seconds = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | big | seconds | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)

finally_parts = st.builds(
    FinallyPart,
    state=st.sampled_from(RunState),
    began_at=times,
    ending=st.none() | st.builds(Ending, cause=st.sampled_from(EndingCause), at=times),
)
endings = st.builds(
    TreeEnding,
    cause=st.sampled_from(TreeCause),
    signals=st.lists(words, max_size=3).map(tuple),
    leftovers=counts,
    survivors=counts,
    proved_empty=st.booleans(),
    took=seconds,
    survivor_pids=st.lists(counts, max_size=3).map(tuple),
    orphans=st.none() | st.sampled_from(Orphans),
    by_daemon=st.booleans(),
    limit=words,
    cgroup=st.booleans(),
)
ATTEMPT: dict[str, st.SearchStrategy[Any]] = {
    "id": st.builds(new_id),
    "run_id": st.just(""),
    "step": st.sampled_from(["s0", "s0.check"]),
    "number": counts,
    "ordinal": counts,
    "child": st.booleans(),
    "workflow": st.just("backup"),
    "job": words,
    "iteration": counts,
    "token": words,
    "state": st.sampled_from(AttemptState),
    "created_at": times,
    "command": words,
    "boot_id": words,
    "pid": st.none() | big,
    "exit_code": st.none() | big,
    "signal": st.none() | big,
    "error_class": st.none() | st.sampled_from(ErrorClass),
    "error": words,
    "ending": st.none() | endings,
    "started_at": maybe_times,
    "finished_at": maybe_times,
    "resources": st.builds(ResourceUse, user_time=seconds, system_time=seconds, max_rss_bytes=big),
    "stdout_bytes": big,
    "stderr_bytes": big,
    "dropped_bytes": big,
}
artifacts = st.builds(
    Artifact, name=words, path=words, type=words, files=counts, bytes=big, state=st.sampled_from(AttemptState)
)
STEP: dict[str, st.SearchStrategy[Any]] = {
    "id": st.just("s0"),
    "index": st.just(0),
    "parent": words,
    "instance": st.none(),
    "instances": counts,
    "released": counts,
    "ended": counts,
    "item": json_values,
    "item_bytes": st.just(0),  # of a copy without it
    "state": st.sampled_from(StepState),
    "phase": st.sampled_from(Phase),
    "reason": words,
    "skip_reason": st.none() | st.sampled_from(SkipReason),
    "retrying": st.booleans(),
    "skipped_by": words,
    "skip_note": words,
    "retry_stopped": st.booleans(),
    "overdue": st.none() | st.sampled_from(TreeCause),
    "evaluated": st.booleans(),
    "attempts": counts,
    "losses": counts,
    "retries": counts,
    "iteration": counts,
    "checks": counts,
    "check_token": words,
    "check_exit_code": st.none() | big,
    "fingerprint": words,
    "unchanged": st.booleans(),
    "not_before": maybe_times,
    "awaited": st.none()
    | st.builds(Awaited, until=maybe_times, events=st.lists(words, max_size=2).map(tuple), after=counts, file=words),
    "source": words,
    "artifacts": st.lists(artifacts, max_size=2).map(tuple),
    "spilled": big,
    "progress": st.none() | st.builds(Progress, current=seconds, total=seconds, message=words),
    "attempt": st.none() | st.builds(Attempt, **ATTEMPT),
    "started_at": maybe_times,
    "finished_at": maybe_times,
    "exit_code": st.none() | big,
    "error_class": st.none() | st.sampled_from(ErrorClass),
    "result": json_values,
    "outputs": st.dictionaries(st.text(max_size=5), st.text(max_size=10), max_size=3),
}
INSTANCE = STEP | {
    "id": st.just("s0[3]"),
    "instance": st.just(3),
    "attempt": st.none(),
}
RUN: dict[str, st.SearchStrategy[Any]] = {
    "id": st.builds(new_id),
    "workflow": st.just("backup"),
    "version": st.just(1),
    "number": st.just(0),
    "scope": words,
    "state": st.sampled_from(RunState),
    "trigger": st.sampled_from(Trigger),
    "caller": words,
    "priority": st.integers(-100, 100),
    "params": st.dictionaries(st.text(max_size=5), json_values, max_size=3),
    "created_at": times,
    "started_at": maybe_times,
    "finished_at": maybe_times,
    "error": words,
    "failed_steps": counts,
    "incomplete_steps": counts,
    "ended_steps": counts,
    "total_steps": counts,
    "step_states": st.dictionaries(st.sampled_from(StepState), counts),
    "current_step": words,
    "progress": st.none() | st.builds(Progress, current=seconds, total=seconds, message=words),
    "cancel_requested_at": maybe_times,
    "paused_at": maybe_times,
    "retry_of": st.sampled_from(["", ORIGIN]),
    "from_run": st.sampled_from(["", ORIGIN]),
    "parent_run": words,
    "parent_step": words,
    "schedule": words,
    "scheduled_at": maybe_times,
    "missed": st.lists(times, max_size=3).map(tuple),
    "event": st.none() | st.dictionaries(st.text(max_size=5), json_values, max_size=3),
    "depth": counts,
    "pin": st.none(),  # no transition changes it
    "labels": st.dictionaries(words, words, max_size=3),
    "params_bytes": st.just(0),  # of a copy without them
    "ending": st.none() | st.builds(Ending, cause=st.sampled_from(EndingCause), at=times),
    "finally_part": st.none() | finally_parts,
    "steps": st.fixed_dictionaries({"s0": st.builds(StepRun, **STEP), "s0[3]": st.builds(StepRun, **INSTANCE)}),
    "sequence": st.integers(1, 2**63 - 1),
    "launches": counts,
    "timeout": st.none() | seconds,
    # What is known of a run while it is at work, and not compared.
    "touched": st.none(),
}


@pytest.mark.parametrize(("kind", "strategies"), [(Attempt, ATTEMPT), (StepRun, STEP), (Run, RUN)], ids=str)
def test_no_field_is_left_out(kind: type, strategies: dict[str, Any]) -> None:
    """A field that the model gains and the store forgets would be lost at the first restart."""
    assert set(strategies) == {field.name for field in fields(kind)}
    assert set(INSTANCE) == set(STEP)


@shared_store
@given(run=st.builds(Run, **RUN))
async def test_whatever_a_run_holds_comes_back(store: Store, run: Run) -> None:
    if await store.get_workflow("backup") is None:
        await with_workflow(store)
        await stored_run(store, id=ORIGIN)
    step = run.steps["s0"]
    if step.attempt is not None:
        step = replace(step, attempt=replace(step.attempt, run_id=run.id))
    run = replace(run, steps={**run.steps, "s0": step})
    # Born with an open step and nothing done, as runs are; all the rest comes with the first change.
    fresh = new_run(
        steps=1,
        id=run.id,
        scope=run.scope,
        trigger=run.trigger,
        caller=run.caller,
        labels=run.labels,
        priority=run.priority,
        params=run.params,
        created_at=run.created_at,
        retry_of=run.retry_of,
        from_run=run.from_run,
        parent_run=run.parent_run,
        parent_step=run.parent_step,
        schedule=run.schedule,
        scheduled_at=run.scheduled_at,
        missed=run.missed,
        event=run.event,
        depth=run.depth,
    )
    before, _ = await store.create_run(fresh, max_active=None)
    after = replace(run, number=before.number)
    assert await store.save(change(before, after)) is UpdateResult.UPDATED
    stored = await store.get_run(run.id)
    assert stored == after
    (entry,) = await store.history(run.id, after=0)
    assert (entry.sequence, entry.run) == (after.sequence, after)
    if step.attempt is not None:
        assert await store.get_attempt(step.attempt.id) == step.attempt


@dataclass(frozen=True)
class Move:
    """A save by a writer who read the run `behind` changes ago."""

    behind: int
    state: RunState


moves = st.builds(Move, behind=st.integers(0, 2), state=st.sampled_from(RunState))


@shared_store
@given(moves=st.lists(moves, max_size=8))
async def test_only_who_knows_the_present_may_change_it(store: Store, moves: list[Move]) -> None:
    if await store.get_workflow("backup") is None:
        await with_workflow(store)
    past = [await stored_run(store, steps=1)]
    for number, move in enumerate(moves):
        known = past[max(0, len(past) - 1 - move.behind)]
        after = replace(known, state=move.state, sequence=known.sequence + 1, error=f"move {number}")
        allowed = known is past[-1] and not known.state.terminal
        result = await store.save(change(known, after))
        assert result is (UpdateResult.UPDATED if allowed else UpdateResult.WRONG_STATE)
        if allowed:
            past.append(after)
    run = past[-1]
    assert await store.get_run(run.id) == run
    entries = await store.history(run.id)
    assert [(entry.sequence, entry.run.state, entry.run.error) for entry in entries] == [
        (after.sequence, after.state, after.error) for after in past[1:]
    ]
    assert (run.id in await store.active_run_ids()) is not run.state.terminal
    if not run.state.terminal:
        await save(store, run, replace(run, state=RunState.FAILED, sequence=run.sequence + 1))


@given(time=times)
def test_times_come_back_in_utc(time: datetime) -> None:
    assert from_micros(to_micros(time)) == time
    elsewhere = time.astimezone(timezone(timedelta(hours=9)))
    assert to_micros(elsewhere) == to_micros(time)
    assert from_micros(to_micros(elsewhere)).tzinfo is UTC


@given(text=st.text(st.characters()))
def test_any_text_becomes_printable(text: str) -> None:
    mended = printable(text)
    mended.encode()
    assert "\0" not in mended
    assert printable(mended) == mended
    if text.isprintable():
        assert mended == text
