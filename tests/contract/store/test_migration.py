"""A database of an older release, with all that is in it, is lifted to this one's form."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, Engine, text

from contract.builders import NOW, ended, later, launched, new_id, request, save, stored_run
from contract.builders import text as workflow_text
from contract.event_builders import event_run, on, resolution, stored_event
from contract.scheduled import reminder
from toban.definition import DefinitionKind, Retention
from toband.domain.attempt_model import AttemptState, TreeCause
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.run_index import moving
from toband.domain.run_model import Phase, Run, RunState, SkipReason, StepRun, StepState
from toband.ports import Counts, OwnerKind
from toband.store import SqlStore
from toband.store.sql import schema_revision
from toband.store.sql.columns import to_json, to_micros
from toband.store.sql.database import database

AT = to_micros(NOW)
STEPS = 3


def fill(connection: Connection, table: str, *rows: dict[str, Any]) -> None:
    """With the columns that the older release had."""
    names = list(rows[0])
    places = ", ".join(f":{name}" for name in names)
    connection.execute(text(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})"), rows)


def fill_all(connection: Connection, run_id: str, attempt_id: str) -> None:
    version = {
        "workflow": "backup",
        "version": 1,
        "digest": "d",
        "source": "# 1",
        "base_dir": "/srv",
        "parsed": "{}",
        "enabled": True,
        "created_at": AT,
    }
    workflow = {
        "name": "backup",
        "title": "Backup",
        "description": "",
        "labels": "{}",
        "enabled": True,
        "version": 1,
        "revision": 0,
        "owner": "api",
        "created_at": AT,
        "updated_at": AT,
    }
    fill(connection, "workflow_versions", version)
    fill(connection, "workflows", workflow)
    answer = json.dumps({**workflow, "labels": {}, "changed": True})
    fill(
        connection,
        "requests",
        {"caller": "me", "rpc": "Create", "request_id": "r-1", "digest": "d", "answer": answer, "created_at": AT},
    )
    fill(
        connection,
        "runs",
        {
            "id": run_id,
            "workflow": "backup",
            "version": 1,
            "number": 1,
            "scope": "full",
            "triggered_by": "API",
            "caller": "uid:7",
            "params": "{}",
            "priority": 3,
            "created_at": AT,
            "state": "RUNNING",
            "sequence": 1,
            "started_at": AT,
            "finished_at": None,
            "error": "",
            "failed_steps": 0,
            "ended_steps": 0,
            "total_steps": STEPS,
            "current_step": "s1",
            "cancel_requested_at": None,
            "ending_cause": None,
            "ending_at": None,
            "launches": 1,
            "timeout": 2.5,
        },
    )
    fill(connection, "step_runs", *(step_row(run_id, n, attempt_id) for n in range(STEPS)))
    fill(
        connection,
        "process_executions",
        {
            "id": attempt_id,
            "run_id": run_id,
            "step": "s1",
            "number": 1,
            "ordinal": 0,
            "created_at": AT,
            "token": "t",
            "state": "RUNNING",
            "command": "cp",
            "boot_id": "b",
            "pid": 7,
            "exit_code": None,
            "signal": None,
            "error_class": None,
            "error": "",
            "ending": None,
            "started_at": AT,
            "finished_at": None,
            "user_time": 0.0,
            "system_time": 0.0,
            "max_rss_bytes": 0,
            "stdout_bytes": 0,
            "stderr_bytes": 0,
            "dropped_bytes": 5,
        },
    )
    fill(connection, "run_sizes", {"run_id": run_id, "bytes": 9, "log_bytes": 8})
    entry = {
        "run": {
            "state": "RUNNING",
            "sequence": 1,
            "started_at": AT,
            "total_steps": STEPS,
            "current_step": "s1",
            "launches": 1,
            "timeout": 2.5,
        },
        "steps": [
            {"step": "s0", "state": "PENDING"},
            {
                "position": 1,
                "step": "s1",
                "state": "RUNNING",
                "attempts": 1,
                "started_at": AT,
                "attempt": {
                    "id": attempt_id,
                    "number": 1,
                    "created_at": AT,
                    "token": "t",
                    "state": "RUNNING",
                    "command": "cp",
                    "boot_id": "b",
                    "pid": 7,
                    "started_at": AT,
                    "dropped_bytes": 5,
                },
            },
            {"position": 2, "step": "s2", "state": "PENDING"},
        ],
    }
    fill(
        connection,
        "run_history",
        {"run_id": run_id, "sequence": 1, "at": AT, "event": "run_started", "change": json.dumps(entry)},
    )


def step_row(run_id: str, number: int, attempt_id: str) -> dict[str, Any]:
    running = number == 1
    return {
        "run_id": run_id,
        "position": number,
        "step": f"s{number}",
        "state": "RUNNING" if running else "PENDING",
        "reason": "",
        "attempts": int(running),
        "losses": 0,
        "attempt_id": attempt_id if running else None,
        "started_at": AT if running else None,
        "finished_at": None,
        "exit_code": None,
        "error_class": None,
        "result": None,
        "outputs": "{}",
    }


def migrate(engine: Engine, revision: str) -> None:
    with engine.connect() as connection:
        connection.execute(text("BEGIN"))
        config = schema_revision.migrations()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.execute(text("COMMIT"))


@pytest.fixture
def old(empty_url: str) -> tuple[str, str]:
    """The ids of the run and the attempt in a database of revision 0002."""
    run_id, attempt_id = new_id(), new_id()
    target = database(empty_url)
    target.prepare()
    migrate(target.writer, "0002")
    with target.writer.connect() as connection:
        fill_all(connection, run_id, attempt_id)
    target.close()
    return run_id, attempt_id


def check(run: Run, attempt_id: str) -> None:
    assert [(step.id, step.index, step.instance) for step in run.steps.values()] == [
        (f"s{number}", number, None) for number in range(STEPS)
    ]
    step = run.steps["s1"]
    assert (step.state, step.started_at, step.attempts) == (StepState.RUNNING, NOW, 1)
    assert (step.iteration, step.evaluated, step.source, step.artifacts) == (0, False, "", ())
    attempt = step.attempt
    assert attempt is not None
    assert (attempt.id, attempt.run_id, attempt.step) == (attempt_id, run.id, "s1")
    assert (attempt.state, attempt.pid, attempt.dropped_bytes) == (AttemptState.RUNNING, 7, 5)
    assert (attempt.iteration, attempt.child, attempt.job) == (1, False, "")
    assert (run.state, run.timeout, run.priority) == (RunState.RUNNING, 2.5, 3)
    assert (run.retry_of, run.parent_run, run.incomplete_steps, run.paused_at) == ("", "", 0, None)
    assert (run.schedule, run.scheduled_at, run.missed) == ("", None, ())
    assert (run.event, run.depth) == (None, 0)
    assert run.step_states == {StepState.RUNNING: 1, StepState.PENDING: STEPS - 1}


async def test_runs_steps_and_history_are_what_they_were(empty_url: str, old: tuple[str, str]) -> None:
    run_id, attempt_id = old
    store = SqlStore(empty_url)
    await store.open()
    try:
        assert (await store.inspect()).problems == []
        run = await store.get_run(run_id)
        assert run is not None
        check(run, attempt_id)
        assert moving(run.steps) == frozenset(("s1",))
        (entry,) = await store.history(run_id)
        assert entry.run == replace(run, step_states={})
        assert (await store.stored_size()).bytes == 9

        # And the run goes on.
        run = await save(store, run, ended(run, "s1"))
        run = await save(store, run, launched(run, "s2"))
        assert await store.get_run(run_id) == run
        later_entries = await store.history(run_id, after=1)
        assert [list(entry.run.steps) for entry in later_entries] == [["s1"], ["s2"]]
        assert later_entries[-1].run.steps["s2"] == run.steps["s2"]
        assert (await stored_run(store)).number == 2
    finally:
        await store.close()


async def test_workflows_and_answers_are_what_they_were(empty_url: str, old: tuple[str, str]) -> None:
    store = SqlStore(empty_url)
    await store.open()
    try:
        (workflow,) = await store.list_workflows()
        assert (workflow.name, workflow.kind) == ("backup", DefinitionKind.WORKFLOW)
        assert await store.counts() == Counts(workflows=1, active_runs=1, jobs=0)
        answered = await store.create_workflow(workflow_text(), at=NOW, request=request())
        assert answered == await store.get_workflow("backup")
    finally:
        await store.close()


async def test_what_workflows_say_of_retention_is_known(empty_url: str) -> None:
    """A database of revision 0004 has it in definitions only, which are too expensive to read at every pass."""
    rules = {"age": None, "runs": 3, "bytes": 1 << 40}
    definitions: dict[str, list[dict[str, Any]]] = {
        "early": [{}],
        "none": [{"retention": rules}, {"retention": None}],
        "own": [{"retention": None}, {"retention": rules}],
        "param": [{"retention": None, "params": [{"default": {"retention": {"runs": 1}}}]}],
    }
    target = database(empty_url)
    target.prepare()
    migrate(target.writer, "0004")
    with target.writer.connect() as connection:
        for name, versions in definitions.items():
            fill(
                connection,
                "workflow_versions",
                *(
                    {
                        "workflow": name,
                        "version": number,
                        "digest": "d",
                        "source": "# 1",
                        "base_dir": "/srv",
                        "parsed": to_json(parsed),
                        "enabled": True,
                        "created_at": AT,
                    }
                    for number, parsed in enumerate(versions, 1)
                ),
            )
            fill(
                connection,
                "workflows",
                {
                    "name": name,
                    "title": "",
                    "description": "",
                    "labels": "{}",
                    "enabled": True,
                    "version": len(versions),
                    "revision": 0,
                    "owner": "api",
                    "created_at": AT,
                    "updated_at": AT,
                },
            )
    target.close()
    store = SqlStore(empty_url)
    await store.open()
    try:
        assert (await store.inspect()).problems == []
        assert await store.retention_rules() == {"own": Retention(runs=3, bytes=1 << 40)}
    finally:
        await store.close()


async def test_large_values_are_what_they_were(empty_url: str, old: tuple[str, str]) -> None:
    """A database of revision 0006 has them in the rows of the run and its steps."""
    run_id, _ = old
    large = "x" * 20_000
    event = {"id": "e", "type": "T", "payload": {"diff": large}}
    target = database(empty_url)
    target.prepare()
    migrate(target.writer, "0006")
    with target.writer.connect() as connection:
        connection.execute(
            text("UPDATE runs SET params = :params, event = :event"),
            {"params": to_json({"text": large}), "event": to_json(event)},
        )
        for place, item in ((1, large), (2, "small")):
            connection.execute(
                text("UPDATE step_runs SET extra = :extra WHERE position = :place"),
                {"place": place << 14, "extra": to_json({"retries": 2, "item": item})},
            )
    target.close()
    store = SqlStore(empty_url)
    await store.open()
    try:
        run = await store.get_run(run_id)
        assert run is not None
        assert (run.params, run.event) == ({"text": large}, event)
        items = [(step.item, step.retries) for step in run.steps.values()]
        assert items == [(None, 0), (large, 2), ("small", 2)]
        (listed,) = await store.list_runs(workflow="backup")
        assert (listed.params, listed.params_bytes) == ({}, len(to_json({"text": large})))
        assert listed.event == {**event, "payload": {}}
    finally:
        await store.close()


async def test_schedules_are_what_they_were(empty_url: str) -> None:
    """A database of revision 0004: what it has of schedules stays, and events come to it."""
    run_id = new_id()
    bound = reminder("ticket-7")
    target = database(empty_url)
    target.prepare()
    migrate(target.writer, "0004")
    with target.writer.connect() as connection:
        fill(
            connection,
            "workflow_versions",
            {
                "workflow": "backup",
                "version": 1,
                "digest": "d",
                "source": "# 1",
                "base_dir": "/srv",
                "parsed": "{}",
                "enabled": True,
                "created_at": AT,
            },
        )
        fill(
            connection,
            "workflows",
            {
                "name": "backup",
                "title": "",
                "description": "",
                "labels": "{}",
                "enabled": True,
                "version": 1,
                "revision": 0,
                "owner": "api",
                "created_at": AT,
                "updated_at": AT,
            },
        )
        fill(
            connection,
            "runs",
            {
                "id": run_id,
                "workflow": "backup",
                "version": 1,
                "number": 1,
                "scope": "full",
                "triggered_by": "SCHEDULE",
                "caller": "",
                "params": "{}",
                "created_at": AT,
                "schedule": "backup/0",
                "scheduled_at": AT,
                "missed": f"[{AT}]",
                "state": "PENDING",
                "sequence": 0,
                "error": "",
                "failed_steps": 0,
                "ended_steps": 0,
                "total_steps": 0,
                "current_step": "",
                "launches": 0,
            },
        )
        fill(
            connection,
            "schedules",
            {
                "id": bound.id,
                "workflow": "",
                "position": 0,
                "spec": json.dumps(bound.spec.to_dict()),
                "zone": bound.zone,
                "at_start": False,
                "subject": bound.subject,
                "action": bound.action,
                "dedupe_key": "",
                "caller": "",
                "stored_at": AT,
                "next_due": to_micros(later(90)),
                "alarm": to_micros(later(90)),
                "occurrences": 0,
            },
        )
        fill(
            connection,
            "fires",
            {
                "schedule_id": "backup/0",
                "due_at": AT,
                "workflow": "backup",
                "outcome": "FIRED",
                "at": AT,
                "reason": "",
                "run_id": run_id,
                "more": 0,
            },
        )
    target.close()
    store = SqlStore(empty_url)
    await store.open()
    try:
        assert (await store.inspect()).problems == []
        run = await store.get_run(run_id)
        assert run is not None
        assert (run.schedule, run.scheduled_at, run.missed) == ("backup/0", NOW, (NOW,))
        assert (run.event, run.depth) == (None, 0)
        assert await store.list_schedules() == [bound]
        assert [fire.run_id for fire in await store.fires()] == [run_id]
        assert await store.last_event() == 0
        await store.update_workflow(workflow_text(triggers=(on("ORDER_PLACED"),)), at=NOW)
        (listener,) = await store.listeners("ORDER_PLACED")
        event = await stored_event(store)
        pair = event_run(event, listener.workflow, version=2)
        resolved = await store.resolve_event(resolution(event, pair))
        assert resolved is not None
        assert [(made.number, made.event) for made in resolved.runs] == [(2, event.seen())]
    finally:
        await store.close()


OLD_STEPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "when": ({"state": "SKIPPED", "reason": "when"}, {"skip_reason": SkipReason.WHEN}),
    "late": ({"state": "SKIPPED", "reason": "timed_out"}, {"skip_reason": SkipReason.TIMED_OUT}),
    "kept": (
        {"state": "SUCCEEDED", "reason": "kept", "extra": {"source": "earlier", "retries": 1}},
        {"source": "earlier", "retries": 1},
    ),
    "borrowed": (
        {"state": "SKIPPED", "reason": "scope", "extra": {"source": "earlier"}},
        {"skip_reason": SkipReason.SCOPE, "source": "earlier"},
    ),
    "failed": ({"state": "FAILED", "reason": "exit code 1"}, {"reason": "exit code 1"}),
    "stopped": (
        {"state": "FAILED", "reason": "exit code 1", "extra": {"not_before": AT}},
        {"reason": "exit code 1", "retry_stopped": True},
    ),
    "cancelled": ({"state": "CANCELLED", "reason": "aborted"}, {"reason": "the run was aborted"}),
    "waiting": (
        {"state": "READY", "reason": "timed out", "extra": {"not_before": AT}},
        {"reason": "timed out", "retrying": True, "not_before": NOW},
    ),
    "next": ({"state": "READY", "extra": {"phase": "next"}}, {"phase": Phase.NEXT}),
    "loop": (
        {"state": "CHECKING", "reason": "timed out", "extra": {"phase": "check"}},
        {"phase": Phase.CHECK, "overdue": TreeCause.LOOP_TIMEOUT},
    ),
}


async def test_texts_that_were_facts_are_facts(empty_url: str, old: tuple[str, str]) -> None:
    """A database of revision 0007 has them in the reasons of steps, in rows and in the history."""
    run_id, attempt_id = old
    target = database(empty_url)
    migrate(target.writer, "0007")
    rows = [
        {**step_row(run_id, 0, attempt_id), "position": position << 14, "step": name, "attempt_id": None}
        | {**given, "extra": to_json(given.get("extra", {}))}
        for position, (name, (given, _)) in enumerate(OLD_STEPS.items(), STEPS)
    ]
    entry = {
        "run": {"state": "RUNNING", "sequence": 2},
        "steps": [
            {"place": row["position"], "step": row["step"], "state": row["state"]}
            | {name: row[name] for name in ("reason", "extra") if row[name] not in ("", "{}")}
            for row in rows
        ],
    }
    with target.writer.connect() as connection:
        fill(connection, "step_runs", *rows)
        timed_out = "UPDATE process_executions SET child = :child, error = 'timed out' WHERE id = :id"
        connection.execute(text(timed_out), {"child": True, "id": attempt_id})
        fill(
            connection,
            "run_history",
            {"run_id": run_id, "sequence": 2, "at": AT, "event": "launch_due", "change": json.dumps(entry)},
        )
    target.close()
    store = SqlStore(empty_url)
    await store.open()
    try:
        assert (await store.inspect()).problems == []
        run = await store.get_run(run_id)
        assert run is not None
        assert (run.steps["s0"].overdue, run.steps["s1"].overdue) == (None, TreeCause.TIMEOUT)
        expected = {
            name: StepRun(id=name, index=index, state=StepState(given["state"]), **facts)
            for index, (name, (given, facts)) in enumerate(OLD_STEPS.items(), STEPS)
        }
        assert {name: run.steps[name] for name in OLD_STEPS} == expected
        (_, change) = await store.history(run_id)
        assert change.run.steps == expected
    finally:
        await store.close()


async def test_owners_are_what_they_were(empty_url: str, old: tuple[str, str]) -> None:
    """A database of revision 0007 has a removed file in the text of the owner, also in answers."""
    target = database(empty_url)
    migrate(target.writer, "0007")
    with target.writer.connect() as connection:
        connection.execute(text("UPDATE workflows SET owner = '/flows/a.yaml (removed)', enabled = :no"), {"no": False})
        answer = json.loads(connection.execute(text("SELECT answer FROM requests")).scalar_one())
        answer["owner"] = "/flows/a.yaml (removed)"
        connection.execute(text("UPDATE requests SET answer = :answer"), {"answer": json.dumps(answer)})
    target.close()
    store = SqlStore(empty_url)
    await store.open()
    try:
        stored = await store.get_workflow("backup")
        answered = await store.create_workflow(workflow_text(), at=NOW, request=request())
        for found in (stored, answered):
            assert found is not None
            assert (found.owner, found.owner_kind) == ("/flows/a.yaml", OwnerKind.REMOVED_FILE)
    finally:
        await store.close()


OLD_REASONS = {
    "disabled": (NotStartedReason.DISABLED, ""),
    "the workflow is gone": (NotStartedReason.DELETED, ""),
    "blackout until further notice": (NotStartedReason.BLACKOUT, "until further notice"),
    "overlap: run r is active": (NotStartedReason.OVERLAP, "run r is active"),
    "parameters: unknown\nparameter": (NotStartedReason.INVALID_PARAMS, "unknown\nparameter"),
    "100 runs of 'a' wait already, no more may": (
        NotStartedReason.QUEUE_FULL,
        "100 runs of 'a' wait already, no more may",
    ),
    "2026-02-01T00:00:00+00:00 was decided before": (NotStartedReason.DECIDED_BEFORE, ""),
    "nobody was there, and `misfire: skip` says to leave it": (
        NotStartedReason.MISFIRE_SKIP,
        "the daemon was not running",
    ),
    "its misfire_grace of 5 s passed before it could be caught up: others came first": (
        NotStartedReason.MISFIRE_GRACE,
        "not caught up within 5 s: others came first",
    ),
    "cannot start a run: full": (NotStartedReason.OTHER, "cannot start a run: full"),
}


async def test_the_ledger_is_what_it_was(empty_url: str, old: tuple[str, str]) -> None:
    """A database of revision 0007 has reasons and events in texts."""
    target = database(empty_url)
    migrate(target.writer, "0007")
    fire = {"schedule_id": "s", "workflow": "w", "at": AT, "run_id": "", "more": 0}
    rows = [
        {**fire, "due_at": AT + number, "outcome": "SKIPPED", "reason": reason}
        for number, reason in enumerate(OLD_REASONS)
    ]
    rows.append({**fire, "due_at": AT - 1, "outcome": "FIRED", "reason": "event e-1"})
    with target.writer.connect() as connection:
        fill(connection, "fires", *rows)
    target.close()
    store = SqlStore(empty_url)
    await store.open()
    try:
        (fired, *skipped) = reversed(await store.fires())
        assert (fired.event_id, fired.reason) == ("e-1", None)
        assert [each.reason for each in skipped] == [NotStarted(*expected) for expected in OLD_REASONS.values()]
    finally:
        await store.close()
