"""A run's transition as rows: encoded in the caller's thread, written in the writer's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from toband.domain.attempt_model import Attempt
from toband.domain.run_model import StepRun
from toband.ports import RunChange, UpdateResult
from toband.store.rows import event_rows
from toband.store.rows.event_deduplication import append_events
from toband.store.rows.run_history import change_json
from toband.store.sql.attempt_codec import attempt_row, lock_leftover_row
from toband.store.sql.columns import Raw, printable, to_micros
from toband.store.sql.row_codec import letter_row, run_facts, step_item, step_row
from toband.store.sql.statements import Statements
from toband.store.sql.writer import Undo, WriteSession


@dataclass(slots=True)
class Write:
    """Raw rows, ready for the driver."""

    run: Raw
    state_changes: bool
    history: Raw
    new_steps: list[Raw]
    new_items: list[Raw]
    steps: list[Raw]
    new_attempts: list[Raw]
    attempts: list[Raw]
    letters: list[Raw]
    lock_leftovers: list[Raw]
    events: list[event_rows.NewEvent]


def encode(change: RunChange) -> Write:
    """Raises ValueError for a change that no transition can make, and for times without a zone.

    With `touched` it takes as long as there are steps in it, however many the run has.
    """
    before, after = change.before, change.after
    if after.id != before.id or after.sequence <= before.sequence:
        raise ValueError(f"cannot save run {before.id}: the change does not follow on it")
    facts = run_facts(after)
    write = Write(
        run=facts | {"run_id": before.id, "was_sequence": before.sequence, "was_state": before.state.value},
        state_changes=after.state is not before.state,
        history={},
        new_steps=[],
        new_items=[],
        steps=[],
        new_attempts=[],
        attempts=[],
        letters=[letter_row(letter) for letter in change.dead_letters],
        lock_leftovers=[lock_leftover_row(each) for each in change.lock_leftovers],
        events=[event_rows.encode(event) for event in change.events],
    )
    touched: list[tuple[Raw, Raw | None]] = []
    if after.steps is not before.steps:
        known = before.steps
        for step in _candidates(change):
            previous = known.get(step.id)
            if step is not previous:
                touched.append(_step(write, previous, step))
    write.history = {
        "run_id": after.id,
        "sequence": after.sequence,
        "at": to_micros(change.at),
        "event": printable(change.event),
        "change": change_json(facts, touched),
    }
    return write


def _candidates(change: RunChange) -> Iterable[StepRun]:
    """The steps that may differ, by position."""
    steps = change.after.steps
    if change.touched is None:
        return steps.values()
    return sorted((steps[name] for name in change.touched), key=attrgetter("position"))


def _step(write: Write, previous: StepRun | None, step: StepRun) -> tuple[Raw, Raw | None]:
    run_id = write.run["run_id"]
    row = step_row(run_id, step)
    if previous is not None:
        write.steps.append(row)
    else:
        write.new_steps.append(row)
        if (item := step_item(run_id, step)) is not None:
            write.new_items.append(item)
    if step.attempt is None or step.attempt.run_id != run_id:
        return row, None
    return row, _attempt(write, None if previous is None else previous.attempt, step.attempt)


def _attempt(write: Write, previous: Attempt | None, attempt: Attempt) -> Raw:
    row = attempt_row(attempt)
    if previous is None or previous.id != attempt.id:
        if previous is not None and not previous.state.terminal:
            raise ValueError(f"cannot save attempt {attempt.id}: {previous.id} of the same step still lives")
        write.new_attempts.append(row)
    elif previous is not attempt:
        write.attempts.append(row | {"was_token": previous.token})
    return row


def apply(sql: Statements, write: Write, session: WriteSession) -> UpdateResult:
    run = write.run
    if not session.run(sql.update_run_state if write.state_changes else sql.update_run, run):
        found = session.fetch(sql.run_exists, {"run_id": run["run_id"]})
        return UpdateResult.WRONG_STATE if found else UpdateResult.NOT_FOUND
    for update, rows in ((sql.update_attempt, write.attempts), (sql.update_step, write.steps)):
        if rows and session.run_many(update, rows) != len(rows):
            raise Undo(UpdateResult.WRONG_STATE)
    for insert, rows in (
        (sql.insert_attempt, write.new_attempts),
        (sql.insert_step, write.new_steps),
        (sql.insert_item, write.new_items),
        (sql.insert_letter, write.letters),
        (sql.insert_lock_leftover, write.lock_leftovers),
    ):
        if rows:
            session.run_many(insert, rows)
    session.run(sql.insert_history, write.history | {"position": session.next_position(sql.last_position)})
    if write.events:
        append_events(sql, session, write.events)
    return UpdateResult.UPDATED
