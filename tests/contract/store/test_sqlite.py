"""SQLite only: indexes, file modes, and damaged or foreign files."""

from __future__ import annotations

import re
import sqlite3
import stat
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert, text

from contract.builders import (
    NOW,
    ended,
    later,
    launched,
    new_run,
    request,
    save,
    stored_run,
    with_workflow,
)
from contract.builders import text as workflow_text
from contract.event_builders import new_event
from contract.scheduled import reminder
from toband.domain.attempt_model import AttemptState
from toband.domain.run_model import DeadLetterState, Run, RunState
from toband.ports import DatabaseOwner, IdKind, StoreError
from toband.store import SqlStore
from toband.store.rows.retention import SPANS
from toband.store.sql.statements import Statement
from toband.store.sql.tables import metadata, run_numbers


@pytest.fixture
def kind() -> str:
    return "sqlite"


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


async def test_durability_is_on(sql_store: SqlStore) -> None:
    def pragmas(session: Any) -> dict[str, Any]:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        return {name: session.connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names}

    found = await sql_store._write.do(pragmas)
    assert found["journal_mode"] == "wal"
    assert found["synchronous"] == 2
    assert found["foreign_keys"] == 1
    assert found["busy_timeout"] >= 1000


async def test_readers_cannot_write(sql_store: SqlStore) -> None:
    with (
        sql_store._database.reader.connect() as connection,
        pytest.raises(Exception, match="readonly"),
    ):
        connection.execute(text("DELETE FROM runs"))


async def test_a_reader_sees_one_moment(sql_store: SqlStore) -> None:
    await with_workflow(sql_store)
    with sql_store._database.reader.connect() as connection:
        count = text("SELECT count(*) FROM runs")
        assert connection.execute(count).scalar() == 0
        await stored_run(sql_store)
        assert connection.execute(count).scalar() == 0
    assert len(await sql_store.list_runs()) == 1


async def test_no_reader_keeps_its_moment(sql_store: SqlStore, url: str) -> None:
    """A transaction left open by a read would keep the log from ever being emptied."""
    await with_workflow(sql_store)
    run = await stored_run(sql_store)
    await sql_store.get_run(run.id)
    await sql_store.history(run.id)
    with closing(sqlite3.connect(path_of(url))) as other:
        busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert not busy


@pytest.mark.skipif(sys.platform == "win32", reason="permissions as POSIX knows them")
async def test_only_the_owner_reads_the_files(empty_url: str) -> None:
    store = SqlStore(empty_url)
    await store.open()
    await with_workflow(store)
    directory = path_of(empty_url).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    files = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in directory.iterdir()}
    assert files == {"toban.db": 0o600, "toban.db-wal": 0o600, "toban.db-shm": 0o600}
    await store.close()
    path_of(empty_url).chmod(0o644)
    again = SqlStore(empty_url)
    await again.open()
    await again.close()
    assert stat.S_IMODE(path_of(empty_url).stat().st_mode) == 0o600


async def test_space_of_deleted_rows_is_returned(empty_url: str) -> None:
    store = SqlStore(empty_url)
    await store.open()
    await fill(store)
    before = path_of(empty_url).stat().st_size
    await store._write.do(lambda session: session.connection.exec_driver_sql("DELETE FROM run_numbers"))
    assert (left := await store.release_space(100)) > 0
    assert await store.release_space(100_000) == 0 < left
    await store.checkpoint()
    assert path_of(empty_url).stat().st_size < before / 2
    assert not (await store.inspect()).problems
    await store.close()


async def test_a_database_of_an_older_release_can_shrink_after_a_start(empty_url: str) -> None:
    path = path_of(empty_url)
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("CREATE TABLE before (it)")
        connection.commit()
    owner = DatabaseOwner(
        installation="i", machine="m", host="h", pid=1, state_dir="/s", since=datetime(2026, 1, 1, tzinfo=UTC)
    )
    store = SqlStore(empty_url, owner)
    await store.open()
    with store._database.reader.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA auto_vacuum").scalar() == 2
    await fill(store)
    await store._write.do(lambda session: session.connection.exec_driver_sql("DELETE FROM run_numbers"))
    assert await store.release_space(100) > 0
    assert not (await store.inspect()).problems
    await store.close()


async def fill(store: SqlStore) -> None:
    rows = [{"workflow": f"{number}-{'x' * 3000}", "last": 1} for number in range(1000)]
    await store._write.do(lambda session: session.connection.execute(insert(run_numbers), rows))
    await store.checkpoint()


async def test_a_file_that_is_something_else(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 100)
    with pytest.raises(StoreError, match="cannot open the database: file is not a database"):
        await SqlStore(f"sqlite:///{path}").open()
    assert path.read_text() == "Dear diary, " * 100


async def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot open the database"):
        await SqlStore(f"sqlite:///{tmp_path}/file/toban.db").open()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?uri=true"])
def test_a_database_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="without a file"):
        SqlStore(url)


# ------------------------------------------------------------------------------------------------ plans of queries


Ask = Callable[[SqlStore, Run], Awaitable[Any]]

ASKED: dict[str, Ask] = {
    "get_workflow": lambda store, _: store.get_workflow("backup"),
    "workflow_titles": lambda store, _: store.workflow_titles(["a", "b"]),
    "list_workflows": lambda store, _: store.list_workflows(after="a"),
    "list_workflows label": lambda store, _: store.list_workflows(after="a", labels={"a": "b"}),
    "list_workflows labels": lambda store, _: store.list_workflows(after="a", labels={"a": "b", "c": "d"}),
    "list_workflows kind": lambda store, _: store.list_workflows(after="a", kind=None),
    "workflows_using": lambda store, _: store.workflows_using("fetch"),
    "list_versions": lambda store, _: store.list_versions("backup", before=5),
    "get_version": lambda store, _: store.get_version("backup", 1),
    "get_run": lambda store, run: store.get_run(run.id),
    "get_run_page": lambda store, run: store.get_run_page(run.id, after=0, limit=2),
    "list_runs": lambda store, _: store.list_runs(),
    "list_runs before": lambda store, run: store.list_runs(before=run.id),
    "list_runs workflow": lambda store, run: store.list_runs(workflow="backup", before=run.id),
    "list_runs state": lambda store, run: store.list_runs(states=[RunState.FAILED], before=run.id),
    "list_runs both": lambda store, run: store.list_runs(workflow="backup", states=[RunState.FAILED], before=run.id),
    "list_runs label": lambda store, run: store.list_runs(labels={"a": "b"}, before=run.id),
    "list_runs labels": lambda store, run: store.list_runs(labels={"a": "b", "c": "d"}, before=run.id),
    "list_runs label workflow": lambda store, run: store.list_runs(
        labels={"a": "b"}, workflow="backup", states=[RunState.FAILED], before=run.id
    ),
    "list_runs parent label": lambda store, run: store.list_runs(
        parent_run=run.id, labels={"a": "b"}, workflow="backup", states=[RunState.FAILED]
    ),
    "list_runs parent": lambda store, run: store.list_runs(parent_run=run.id, before=run.id),
    "list_runs retries": lambda store, run: store.list_runs(retry_of=run.id),
    "list_runs parent state": lambda store, run: store.list_runs(
        parent_run=run.id, states=[RunState.FAILED], workflow="backup"
    ),
    "list_runs number": lambda store, run: store.list_runs(workflow="backup", number=1, labels={"a": "b"}),
    "list_runs ids": lambda store, run: store.list_runs(ids=[run.id], workflow="backup"),
    "list_runs between": lambda store, run: store.list_runs(workflow="backup", after="0", before=run.id),
    "list_runs between states": lambda store, run: store.list_runs(states=[RunState.FAILED], after="0"),
    "find_ids start": lambda store, run: store.find_ids(IdKind.RUN, run.id[:8], 10),
    "find_ids end": lambda store, run: store.find_ids(IdKind.RUN, run.id[-8:], 10),
    "find_ids process": lambda store, run: store.find_ids(IdKind.PROCESS, "abcd", 10),
    "latest_success": lambda store, _: store.latest_success("backup", ["s0", "s1"]),
    "list_dead_letters": lambda store, run: store.list_dead_letters(before=run.id),
    "list_dead_letters workflow": lambda store, run: store.list_dead_letters(workflow="backup", before=run.id),
    "list_dead_letters state": lambda store, run: store.list_dead_letters(states=[DeadLetterState.OPEN], before=run.id),
    "list_dead_letters both": lambda store, run: store.list_dead_letters(
        workflow="backup", states=[DeadLetterState.OPEN], before=run.id
    ),
    "get_dead_letter": lambda store, _: store.get_dead_letter("nope"),
    "run_of_request": lambda store, _: store.run_of_request(request()),
    "history": lambda store, run: store.history(run.id, after=1),
    "list_attempts": lambda store, _: store.list_attempts(),
    "list_attempts run": lambda store, run: store.list_attempts(run_id=run.id, before=run.id),
    "list_attempts step": lambda store, run: store.list_attempts(step="s0", before=run.id),
    "list_attempts both": lambda store, run: store.list_attempts(run_id=run.id, step="s0", before=run.id),
    "list_attempts workflow": lambda store, run: store.list_attempts(workflow="backup", before=run.id, after="0"),
    "list_attempts workflow step": lambda store, run: store.list_attempts(workflow="backup", step="s0"),
    "list_attempts workflow state": lambda store, run: store.list_attempts(
        workflow="backup", states=[AttemptState.FAILED], before=run.id
    ),
    "list_attempts workflow completed": lambda store, run: store.list_attempts(
        workflow="backup", states=[AttemptState.COMPLETED]
    ),
    "list_attempts job": lambda store, run: store.list_attempts(job="fetch", before=run.id),
    "list_attempts job state": lambda store, run: store.list_attempts(
        job="fetch", workflow="backup", states=[AttemptState.LOST], before=run.id
    ),
    "list_attempts state": lambda store, run: store.list_attempts(states=[AttemptState.TIMED_OUT], before=run.id),
    "defined_steps": lambda store, run: store.defined_steps(run),
    "run_attempts": lambda store, run: store.run_attempts(run.id, from_ordinal=1),
    "run_attempts step": lambda store, run: store.run_attempts(run.id, step="s0"),
    "get_attempt": lambda store, _: store.get_attempt("nope"),
    "earliest_alarm": lambda store, _: store.earliest_alarm(),
    "earliest_alarm after": lambda store, _: store.earliest_alarm(after=NOW),
    "due_schedules": lambda store, _: store.due_schedules(NOW),
    "due_schedules since": lambda store, _: store.due_schedules(NOW, since=NOW),
    "due_schedules page": lambda store, _: store.due_schedules(NOW, after=(NOW, "a")),
    "start_schedules": lambda store, _: store.start_schedules(after="a"),
    "get_schedule": lambda store, _: store.get_schedule("backup/0"),
    "list_schedules": lambda store, _: store.list_schedules(after="a"),
    "list_schedules workflow": lambda store, _: store.list_schedules(workflow="a", after="a"),
    "list_schedules subject": lambda store, _: store.list_schedules(subject="a", after="a"),
    "fires": lambda store, _: store.fires(after=NOW, before=NOW),
    "fires schedule": lambda store, _: store.fires(schedule_id="a", before=NOW),
    "fires workflow": lambda store, _: store.fires(workflow="a", before=NOW, after=NOW),
    "fires page": lambda store, _: store.fires(workflow="a", before=NOW, before_schedule="a/1", after=NOW),
    "forget_fires": lambda store, _: store.forget_fires(NOW, 5),
    "get_event": lambda store, _: store.get_event("nope"),
    "list_events": lambda store, _: store.list_events(before=5),
    "list_events type": lambda store, _: store.list_events(types=["A"], before=5),
    "events_after": lambda store, _: store.events_after(1, up_to=5),
    "events_after type": lambda store, _: store.events_after(1, up_to=5, types=["A"]),
    "pending_events": lambda store, _: store.pending_events(after=1),
    "last_event": lambda store, _: store.last_event(),
    "listened_types": lambda store, _: store.listened_types(),
    "listeners": lambda store, _: store.listeners("A"),
    "forget_events": lambda store, _: store.forget_events(NOW, 5),
    "retention_rules": lambda store, _: store.retention_rules(),
    "run_spans": lambda store, _: store.run_spans(),
    "kept_number": lambda store, _: store.kept_number("backup", 5),
    "stored_bytes": lambda store, _: store.stored_bytes(["a", "backup"]),
    "removable_runs age": lambda store, _: store.removable_runs(workflow="backup", finished_before=NOW, after="a"),
    "removable_runs number": lambda store, _: store.removable_runs(workflow="backup", number_below=5, after="a"),
    "unmeasured_runs": lambda store, run: store.unmeasured_runs(start=run.id),
}
# Where some other index would do, and walk through what nobody asked for.
BY_INDEX = {
    "earliest_alarm": "ix_schedules_alarm_id",
    "earliest_alarm after": "ix_schedules_alarm_id",
    "due_schedules": "ix_schedules_alarm_id",
    "due_schedules since": "ix_schedules_alarm_id",
    "due_schedules page": "ix_schedules_alarm_id",
    "start_schedules": "ix_schedules_id",
    "list_runs label": "ix_run_labels_label_content_run_id",
    "list_runs label workflow": "ix_run_labels_workflow_label_content_run_id",
    "list_runs parent state": "ix_runs_parent_run_id",
    "list_attempts workflow": "ix_process_executions_workflow_id",
    "list_attempts workflow step": "ix_process_executions_workflow_id",
    "list_attempts workflow state": "ix_process_executions_workflow_state_id",
    "list_attempts workflow completed": "ix_process_executions_workflow_id",
    "list_attempts job": "ix_process_executions_job_id",
    "list_attempts state": "ix_process_executions_state_id",
    "list_schedules workflow": "ix_schedules_workflow_id",
    "list_schedules subject": "ix_schedules_subject_id",
    "list_events type": "ix_events_type_sequence",
    "events_after type": "ix_events_type_sequence",
    "pending_events": "ix_events_sequence",
    "listeners": "ix_event_triggers_type_workflow_position",
    "run_spans": "ix_runs_workflow_id",
    "fires": "ix_fires_due_at_schedule_id",
    "fires workflow": "ix_fires_workflow_due_at_schedule_id",
    "fires page": "ix_fires_workflow_due_at_schedule_id",
}
# Sorted or merged, but only over what an index has cut to size.
SORTED: dict[str, Ask] = {
    "list_runs states": lambda store, run: store.list_runs(states=[RunState.FAILED, RunState.RUNNING], before=run.id),
    "list_runs all": lambda store, run: store.list_runs(
        workflow="backup", states=[RunState.FAILED, RunState.RUNNING], before=run.id
    ),
    "list_attempts live": lambda store, run: store.list_attempts(workflow="backup", states=[AttemptState.RUNNING]),
    "list_events types": lambda store, _: store.list_events(types=["A", "B"], before=5),
    "events_after types": lambda store, _: store.events_after(1, up_to=5, types=["A", "B"]),
    "decided_ahead": lambda store, _: store.decided_ahead(NOW),
    "current_run": lambda store, _: store.current_run("backup"),
    "active_run_ids": lambda store, _: store.active_run_ids(),
    "abandoned_attempts": lambda store, _: store.abandoned_attempts(),
    "counts": lambda store, _: store.counts(),
}


def plan_of(store: SqlStore, statement: str, parameters: Any) -> list[str]:
    with store._database.reader.connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        return [row[3] for row in rows]


def walks_a_table(statement: str, plan: Sequence[str]) -> bool:
    """Row by row, to find some of them. Without a condition a walk in order of the key is what is wanted."""
    tables = "|".join(metadata.tables)
    walks = (re.match(rf"SCAN ({tables})(?! USING)", line) for line in plan)
    return any(walks) and "WHERE" in statement


@pytest.mark.parametrize("name", [*ASKED, *SORTED])
async def test_every_query_has_its_index(sql_store: SqlStore, name: str) -> None:
    await with_workflow(sql_store)
    run = await stored_run(sql_store)
    run = await save(sql_store, run, launched(run, "s0"))
    run = await save(sql_store, run, ended(run, "s0"))
    seen: list[tuple[str, Any]] = []

    def record(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith(("SELECT", "WITH")):
            seen.append((statement, parameters))

    event.listen(sql_store._database.reader, "before_cursor_execute", record)
    await (ASKED | SORTED)[name](sql_store, run)
    event.remove(sql_store._database.reader, "before_cursor_execute", record)
    assert seen
    for statement, parameters in seen:
        plan = plan_of(sql_store, statement, parameters)
        assert not walks_a_table(statement, plan), (statement, plan)
        assert name in SORTED or not any("TEMP B-TREE" in line for line in plan), (statement, plan)
        assert any(BY_INDEX.get(name, "") in line.split() for line in plan) or name not in BY_INDEX, plan


async def test_spans_are_found_without_going_through_runs(sql_store: SqlStore) -> None:
    """Neither the table nor an index of it is walked: with many runs of few workflows that would be slow."""
    plan = plan_of(sql_store, str(SPANS.compile(sql_store._database.reader)), ())
    looks = [line for line in plan if re.search(r"\b(runs|others)\b", line)]
    assert len(looks) == 5
    for line in looks:
        assert re.match(r"SEARCH (runs|others) USING COVERING INDEX", line), plan


async def test_every_written_row_is_found_by_an_index(sql_store: SqlStore) -> None:
    for name, statement in vars(sql_store._sql).items():
        assert isinstance(statement, Statement)
        plan = plan_of(sql_store, statement.sql, (None,) * statement.sql.count("?"))
        assert not walks_a_table(statement.sql, plan), (name, plan)


async def test_what_is_written_beside_runs_has_its_index(sql_store: SqlStore) -> None:
    seen: list[tuple[str, Any]] = []

    def record(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if not statement.startswith(("BEGIN", "PRAGMA")):
            seen.append((statement, parameters))

    event.listen(sql_store._database.writer, "before_cursor_execute", record)
    await with_workflow(sql_store)
    await sql_store.create_run(new_run(), max_active=1, request=request())
    await sql_store.set_enabled("backup", False, at=new_run().created_at)
    await sql_store.delete_workflow("none", at=NOW)
    await sql_store.update_workflow(workflow_text(source="# 2"), at=new_run().created_at)
    await sql_store.discard_dead_letter("none", at=new_run().created_at, by="me")
    await sql_store.delete_runs(["none"])
    await sql_store.removable_runs(after="a")
    await sql_store.forget_requests(new_run().created_at)
    await sql_store.create_schedule(reminder("a", dedupe_key="k"))
    await sql_store.cancel_schedule("none", at=NOW)
    await sql_store.cancel_by_subject("a", at=NOW)
    await sql_store.forget_schedules(NOW)
    await sql_store.add_events([new_event(dedupe_key="k")], request=request("r-2"))
    await sql_store.add_events([new_event(dedupe_key="k")])
    await sql_store.forget_events(later(1), 1)
    event.remove(sql_store._database.writer, "before_cursor_execute", record)
    assert len(seen) > 15
    for statement, parameters in seen:
        plan = plan_of(sql_store, statement, parameters)
        assert not walks_a_table(statement, plan), (statement, plan)
