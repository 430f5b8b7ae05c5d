"""Tokens and the audit log: names of valid tokens are unique, and the log is a chain that shows every change."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from toband.domain.audit_chain import AuditAnchor, AuditOutcome, AuditRecord, first_broken
from toband.domain.identity import Narrowing, Role
from toband.ports import Store, StoredToken, TokenExistsError

AT = datetime(2026, 11, 18, 9, 30, 0, 123456, tzinfo=UTC)
TOKEN = StoredToken(
    id="1f00", name="ci", role=Role.OPERATOR, narrowing=None, digest="d1", created_at=AT, created_by="uid:0 (root)"
)
RECORD = AuditRecord(
    at=AT,
    actor="token:ci",
    role="operator",
    source="unix:///run/toban/toban.sock",
    method="/toban.v1.RunService/StartRun",
    target="nightly",
    outcome=AuditOutcome.DONE,
)


async def test_tokens_are_stored_listed_and_revoked(store: Store) -> None:
    narrow = Narrowing(workflows=("nightly-*",), labels=(("team", "数据"),))
    second = replace(TOKEN, id="2f00", name="laptop", narrowing=narrow, expires_at=AT + timedelta(days=90))
    await store.create_token(TOKEN)
    await store.create_token(replace(second, created_at=AT + timedelta(seconds=1)))
    with pytest.raises(TokenExistsError, match="ci"):
        await store.create_token(replace(TOKEN, id="3f00"))
    await store.note_token_use("2f00", AT + timedelta(hours=1))

    first, other = await store.list_tokens()
    assert first == TOKEN
    assert (other.narrowing, other.expires_at) == (narrow, AT + timedelta(days=90))
    assert other.last_used_at == AT + timedelta(hours=1)

    assert await store.revoke_token("1f00", AT, "uid:0 (root)")
    assert not await store.revoke_token("1f00", AT + timedelta(days=1), "somebody else")
    assert not await store.revoke_token("none", AT, "uid:0 (root)")
    revoked = (await store.list_tokens())[0]
    assert (revoked.revoked_at, revoked.revoked_by) == (AT, "uid:0 (root)")
    # Its name is free again.
    await store.create_token(replace(TOKEN, id="4f00", created_at=AT + timedelta(seconds=2)))
    assert [each.name for each in await store.list_tokens()] == ["ci", "laptop", "ci"]


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
    assert await store.remove_audit(AT + timedelta(hours=1), limit=100) == 1
    assert await store.remove_audit(AT + timedelta(days=2), limit=1) == 1
    left = await store.list_audit()
    assert [entry.sequence for entry in left] == [3, 4]
    anchor = await store.audit_anchor()
    assert anchor.sequence == 2
    assert first_broken(left, anchor) is None
    assert first_broken(left, AuditAnchor()) is not None
    assert await store.remove_audit(AT + timedelta(days=9), limit=100) == 2
    assert await store.list_audit() == []
    # The chain continues after everything was removed.
    (entry,) = await store.append_audit([RECORD])
    assert entry.sequence == 5
    assert first_broken([entry], await store.audit_anchor()) is None
