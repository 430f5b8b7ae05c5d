"""The audit log: a chain that shows every change of itself, written in the transactions of what it records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text as sql

from contract.builders import new_run, request, text, with_workflow
from doubles.clock import Clock
from toband.domain.audit_chain import AuditAnchor, AuditEntry, AuditOutcome, AuditRecord, first_broken
from toband.engine.access.audit_log import TAIL, AuditLog
from toband.ports import AuditedCall, AuditFilter, Store, WorkflowExistsError, auditing
from toband.store import SqlStore
from toband.store.sql.writer import WriteSession

AT = datetime(2026, 11, 18, 9, 30, 0, 123456, tzinfo=UTC)
RECORD = AuditRecord(
    at=AT,
    actor="token:ci",
    role="operator",
    source="unix:///run/toban/toban.sock",
    method="RunService/StartRun",
    target="nightly",
    outcome=AuditOutcome.DONE,
)


def called(**changes: object) -> AuditedCall:
    values = {"actor": "token:ci", "role": "editor", "source": "unix:///s", "method": "WorkflowService/UpdateWorkflow"}
    return AuditedCall(now=Clock(AT).now, **{**values, **changes})  # type: ignore[arg-type]


async def test_the_audit_log_is_a_chain(store: Store) -> None:
    odd = replace(RECORD, actor="名前\ud800\0", target="x" * 5000, detail="-old\n+new", reason="ROLE_TOO_LOW")
    added = [
        *await store.append_audit([RECORD, odd]),
        *await store.append_audit([replace(RECORD, outcome=AuditOutcome.REFUSED, at=AT + timedelta(microseconds=1))]),
    ]
    stored = await store.list_audit()
    assert stored == added
    assert [entry.sequence for entry in stored] == [1, 2, 3]
    assert stored[1].record.actor == "名前\ufffd\ufffd"
    assert first_broken(stored, await store.audit_anchor()) is None
    assert [entry.sequence for entry in await store.list_audit(newest=True, limit=2)] == [3, 2]
    assert [entry.sequence for entry in await store.list_audit(after=1, before=3)] == [2]

    changed = [stored[0], replace(stored[1], record=replace(odd, actor="root")), stored[2]]
    broken = first_broken(changed, AuditAnchor())
    assert broken is not None
    assert (broken.sequence, broken.reason) == (2, "its content has changed")
    gap = first_broken([stored[0], stored[2]], AuditAnchor())
    assert gap is not None
    assert (gap.sequence, gap.reason) == (3, "entry 2 is missing")
    forged = first_broken([stored[0], replace(stored[1], previous="0" * 64)], AuditAnchor())
    assert forged is not None
    assert forged.reason == "it does not continue the entry before it"


async def test_retention_removes_the_beginning_and_the_chain_goes_on(store: Store) -> None:
    times = [AT, AT + timedelta(days=1), AT - timedelta(days=5), AT + timedelta(days=3)]
    await store.append_audit([replace(RECORD, at=at) for at in times])
    assert await store.audit_anchor() == AuditAnchor()
    # The third is older, but behind one that stays.
    assert await store.remove_audit(AT + timedelta(hours=1), most=None, limit=100) == 1
    assert await store.remove_audit(AT + timedelta(days=2), most=None, limit=1) == 1
    left = await store.list_audit()
    assert [entry.sequence for entry in left] == [3, 4]
    anchor = await store.audit_anchor()
    assert anchor.sequence == 2
    assert first_broken(left, anchor) is None
    assert first_broken(left, AuditAnchor()) is not None
    assert await store.remove_audit(AT + timedelta(days=9), most=None, limit=100) == 2
    assert await store.list_audit() == []
    # The chain continues after everything was removed.
    (entry,) = await store.append_audit([RECORD])
    assert entry.sequence == 5
    assert first_broken([entry], await store.audit_anchor()) is None


async def test_retention_by_number(store: Store) -> None:
    await store.append_audit([RECORD] * 7)
    assert await store.remove_audit(None, most=3, limit=2) == 2
    assert await store.remove_audit(None, most=3, limit=100) == 2
    assert await store.remove_audit(None, most=3, limit=100) == 0
    assert [entry.sequence for entry in await store.list_audit()] == [5, 6, 7]


async def test_filters(store: Store) -> None:
    refused = replace(RECORD, outcome=AuditOutcome.REFUSED, actor="uid:7 (bo)", method="RunService/CancelRun")
    other = replace(RECORD, target="x_y%", at=AT + timedelta(hours=1))
    await store.append_audit([RECORD, refused, other])

    async def found(**conditions: object) -> list[int]:
        matching = AuditFilter(**conditions)  # type: ignore[arg-type]
        return [entry.sequence for entry in await store.list_audit(matching=matching)]

    assert await found() == [1, 2, 3]
    assert await found(actor="uid:7 (bo)") == [2]
    assert await found(method="StartRun") == await found(method="RunService/StartRun") == [1, 3]
    assert await found(method="%Run") == await found(method="Service/StartRun") == []
    assert await found(target="x_y%") == [3]
    assert await found(outcome=AuditOutcome.REFUSED) == [2]
    assert await found(since=AT + timedelta(minutes=1)) == [3]
    assert await found(until=AT + timedelta(minutes=1), outcome=AuditOutcome.DONE) == [1]


async def test_a_change_and_its_entry_are_one_transaction(store: Store) -> None:
    call = called(detail="force=true", request_id="r1")
    with auditing(call):
        await store.create_workflow(text(source="name: backup\nsteps: []\n"), at=AT)
    (entry,) = await store.list_audit()
    assert call.recorded
    assert (entry.record.actor, entry.record.target, entry.record.request_id) == ("token:ci", "backup", "r1")
    assert entry.record.detail == (
        "force=true; created workflow backup, version 1\n@@ -0,0 +1,2 @@\n+name: backup\n+steps: []"
    )
    with auditing(called()):
        await store.update_workflow(text(source="name: backup\nsteps: [x]\n"), at=AT)
    (entry,) = await store.list_audit(after=1)
    assert entry.record.detail == (
        "updated workflow backup, version 2\n@@ -1,2 +1,2 @@\n name: backup\n-steps: []\n+steps: [x]"
    )
    with auditing(called()):
        await store.delete_workflow("backup", at=AT)
    (entry,) = await store.list_audit(after=2)
    assert entry.record.detail.startswith("deleted workflow backup, version 2\n@@ -1,2 +0,0 @@\n-name: backup")


async def test_what_is_undone_or_changes_nothing_has_no_entry(store: Store) -> None:
    await with_workflow(store)
    call = called()
    with auditing(call):
        with pytest.raises(WorkflowExistsError):
            await store.create_workflow(text(), at=AT)
        # Beside another operation: undone by its savepoint alone.
        results = await asyncio.gather(
            store.create_workflow(text(), at=AT),
            store.put_definitions([text("another")], at=AT, dry_run=True),
            store.set_enabled("backup", True, at=AT),
            store.delete_workflow("nope", at=AT),
            return_exceptions=True,
        )
        assert isinstance(results[0], WorkflowExistsError)
        assert await store.update_workflow(text("nope"), at=AT) is None
        assert not await store.revoke_token("nope", AT, "x")
    assert not call.recorded
    assert await store.list_audit() == []


async def test_runs_started_together_are_recorded_with_their_calls(store: Store) -> None:
    await with_workflow(store)

    async def start(number: int) -> None:
        with auditing(called(method="RunService/StartRun", target="backup", request_id=str(number))):
            await store.create_run(new_run(), max_active=None)
            # Part of what follows from the run, not of the call.
            await store.create_run(new_run(), max_active=None)

    await asyncio.gather(*(start(number) for number in range(20)))
    entries = await store.list_audit()
    assert sorted(int(entry.record.request_id) for entry in entries) == list(range(20))
    assert {entry.record.detail.partition("#")[0] for entry in entries} == {"run backup"}
    assert first_broken(entries, AuditAnchor()) is None


async def test_a_pass_over_files_records_every_change(store: Store) -> None:
    with auditing(called(actor="files", repeatable=True)):
        await store.put_definitions([text(), text("second")], at=AT)
        await store.put_definitions([text()], at=AT)
        await store.set_enabled("backup", False, at=AT)
    assert [entry.record.target for entry in await store.list_audit()] == ["backup", "second", "backup"]


async def test_a_repeated_request_is_no_change(store: Store) -> None:
    for _ in range(2):
        call = called()
        with auditing(call):
            await store.create_workflow(text(), at=AT, request=request())
        assert call.recorded, "no entry of its own is waited for"
    assert len(await store.list_audit()) == 1


async def execute(store: SqlStore, *statements: str) -> None:
    def run(session: WriteSession) -> None:
        for each in statements:
            session.connection.execute(sql(each))

    await store._write.do(run)


_COLUMNS = "at, actor, role, source, method, target, outcome, reason, request_id, detail, previous, hash"
_COPY = (
    f"INSERT INTO audit_entries (sequence, {_COLUMNS}) "
    f"SELECT {{to}}, {_COLUMNS} FROM audit_entries WHERE sequence = {{of}}"
)


@pytest.mark.parametrize(
    ("statements", "sequence", "reason"),
    [
        (["UPDATE audit_entries SET actor = 'root' WHERE sequence = 1503"], 1503, "its content has changed"),
        (["UPDATE audit_entries SET at = at + 1 WHERE sequence = 1"], 1, "its content has changed"),
        (["DELETE FROM audit_entries WHERE sequence = 1503"], 1504, "entry 1503 is missing"),
        (["DELETE FROM audit_entries WHERE sequence = 1"], 2, "entry 1 is missing"),
        (
            [
                "UPDATE audit_entries SET sequence = -7 WHERE sequence = 12",
                "UPDATE audit_entries SET sequence = 12 WHERE sequence = 13",
                "UPDATE audit_entries SET sequence = 13 WHERE sequence = -7",
            ],
            12,
            "it does not continue the entry before it",
        ),
        ([_COPY.format(to=2501, of=2500)], 2501, "it does not continue the entry before it"),
        ([_COPY.format(to=0, of=2500)], 0, "it was added before the first entry"),
        (["DELETE FROM audit_entries WHERE sequence > 2400"], 2500, "it is missing, and all entries after it"),
        (["DELETE FROM audit_entries"], 2500, "it is missing, and all entries after it"),
    ],
)
async def test_verification_finds_the_entry(
    sql_store: SqlStore, statements: Sequence[str], sequence: int, reason: str
) -> None:
    # Equal records, so that a copy differs by its place alone.
    noted = (await sql_store.append_audit([replace(RECORD, detail=str(n // 2)) for n in range(2500)]))[-1]
    audit = AuditLog(sql_store, Clock())
    whole = await audit.verify(noted.sequence, noted.hash)
    assert (whole.broken, whole.entries, whole.first_sequence, whole.last) == (None, 2500, 1, noted)
    await execute(sql_store, *statements)
    broken = (await audit.verify(noted.sequence, noted.hash)).broken
    assert broken is not None
    assert (broken.sequence, broken.reason) == (sequence, reason)


async def test_an_entry_that_was_noted_shows_a_log_that_was_computed_anew(sql_store: SqlStore) -> None:
    noted = (await sql_store.append_audit([RECORD] * 3))[1]
    await execute(sql_store, "DELETE FROM audit_entries")
    await sql_store.append_audit([replace(RECORD, actor="mallory")] * 3)
    audit = AuditLog(sql_store, Clock())
    assert (await audit.verify()).broken is None
    broken = (await audit.verify(noted.sequence, noted.hash)).broken
    assert broken is not None
    assert (broken.sequence, broken.reason) == (2, "its hash is not the one that was noted")


async def test_verification_after_retention(sql_store: SqlStore) -> None:
    entries = await sql_store.append_audit([RECORD] * 10)
    audit = AuditLog(sql_store, Clock(AT), age=60.0, most=4)
    assert await audit.remove_old() == 6
    found = await audit.verify(entries[5].sequence, entries[5].hash)
    assert (found.broken, found.entries, found.first_sequence) == (None, 4, 7)
    # Of an entry that was removed long ago nothing is known.
    assert (await audit.verify(2, "f" * 64)).broken is None
    assert (await audit.verify(6, "f" * 64)).broken is not None


async def test_the_tail(sql_store: SqlStore) -> None:
    audit = AuditLog(sql_store, Clock())
    assert await audit.verify_tail() is None
    await sql_store.append_audit([RECORD] * 5)
    assert await audit.verify_tail() is None
    await execute(sql_store, "UPDATE audit_entries SET actor = 'root' WHERE sequence = 3")
    broken = await audit.verify_tail()
    assert broken is not None
    assert broken.sequence == 3
    await sql_store.append_audit([RECORD] * TAIL)
    assert await audit.verify_tail() is None


async def test_entries_after_a_stolen_tail_do_not_hide_it(sql_store: SqlStore) -> None:
    noted: AuditEntry = (await sql_store.append_audit([RECORD] * 5))[-1]
    await execute(sql_store, "DELETE FROM audit_entries WHERE sequence > 3")
    await sql_store.append_audit([replace(RECORD, actor="later")] * 5)
    broken = (await AuditLog(sql_store, Clock()).verify(noted.sequence, noted.hash)).broken
    assert broken is not None
    assert broken.sequence == 5
