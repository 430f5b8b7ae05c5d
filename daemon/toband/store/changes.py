"""One transition of a run as the rows it writes: encoded in the caller's thread, written in the writer's."""

from __future__ import annotations

from dataclasses import dataclass

from toband.domain.model import Attempt, StepRun
from toband.ports import RunChange, UpdateResult
from toband.store.codec import Raw, attempt_row, run_facts, step_row
from toband.store.columns import printable, to_micros
from toband.store.history import change_json
from toband.store.statements import Statements
from toband.store.writer import Session, Undo


@dataclass(slots=True)
class Write:
    """Raw rows, ready for the driver."""

    run: Raw
    state_changes: bool
    history: Raw
    new_steps: list[Raw]
    steps: list[Raw]
    new_attempts: list[Raw]
    attempts: list[Raw]


def encode(change: RunChange) -> Write:
    """Raises ValueError for a change that no transition can be, and for times without a zone."""
    before, after = change.before, change.after
    if after.id != before.id or after.sequence <= before.sequence:
        raise ValueError(f"cannot save run {before.id}: the change does not follow on it")
    facts = run_facts(after)
    write = Write(
        run=facts
        | {"run_id": before.id, "was_sequence": before.sequence, "was_state": before.state.value},
        state_changes=after.state is not before.state,
        history={},
        new_steps=[],
        steps=[],
        new_attempts=[],
        attempts=[],
    )
    touched: list[tuple[Raw, Raw | None]] = []
    if after.steps is not before.steps:
        known = before.steps
        for name, step in after.steps.items():
            previous = known.get(name)
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


def _step(write: Write, previous: StepRun | None, step: StepRun) -> tuple[Raw, Raw | None]:
    row = step_row(write.run["run_id"], step)
    (write.new_steps if previous is None else write.steps).append(row)
    if step.attempt is None:
        return row, None
    return row, _attempt(write, None if previous is None else previous.attempt, step.attempt)


def _attempt(write: Write, previous: Attempt | None, attempt: Attempt) -> Raw:
    row = attempt_row(attempt)
    if previous is None or previous.id != attempt.id:
        if previous is not None and not previous.state.terminal:
            raise ValueError(
                f"cannot save attempt {attempt.id}: {previous.id} of the same step still lives"
            )
        write.new_attempts.append(row)
    elif previous is not attempt:
        write.attempts.append(row | {"was_token": previous.token})
    return row


def apply(sql: Statements, write: Write, session: Session) -> UpdateResult:
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
    ):
        if rows:
            session.run_many(insert, rows)
    session.run(sql.insert_history, write.history)
    return UpdateResult.UPDATED
