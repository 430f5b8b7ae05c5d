"""Refused calls: listed separately up to a limit, counted beyond it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from toband.domain.audit_chain import AuditOutcome, AuditRecord
from toband.engine.access.refused_calls import ENTRIES_AT_ONCE, KINDS_MOST, WINDOW, RefusedCalls, without_port

RECORD = AuditRecord(
    at=datetime(2026, 11, 18, tzinfo=UTC),
    actor="token:ci",
    role="viewer",
    source="tls://0.0.0.0:7233 ipv4:10.0.0.7:4711",
    method="RunService/StartRun",
    target="nightly",
    outcome=AuditOutcome.REFUSED,
    reason="ROLE_REQUIRED",
)


def test_the_first_is_recorded_as_it_is_and_the_others_are_counted() -> None:
    refused = RefusedCalls(0.0)
    for number in range(10_000):
        refused.add(replace(RECORD, source=f"tls://0.0.0.0:7233 ipv4:10.0.0.7:{number}", target=str(number)), 1.0)
    (first,) = refused.take(1.0)
    assert first == replace(RECORD, source="tls://0.0.0.0:7233 ipv4:10.0.0.7", target="0")
    assert not refused.take(WINDOW - 1)
    (others,) = refused.take(WINDOW)
    assert (others.target, others.detail) == ("9999", "9,999 more such calls, the last one at this time")
    assert not refused.take(3 * WINDOW)


def test_kinds_beyond_the_limit_are_counted_by_reason() -> None:
    refused = RefusedCalls(0.0)
    for number in range(10_000):
        reason = "ROLE_REQUIRED" if number % 2 else "CREDENTIAL_INVALID"
        refused.add(replace(RECORD, actor=f"token:{number}", reason=reason), 1.0)
    assert len(refused.take(1.0)) == KINDS_MOST
    ended = refused.take(WINDOW)
    assert sorted(each.reason for each in ended) == ["CREDENTIAL_INVALID", "ROLE_REQUIRED"]
    assert (
        ended[0].detail
        == f"{(10_000 - KINDS_MOST) // 2:,} calls, of more callers and methods than are listed one by one"
    )
    assert {each.actor for each in ended} == {""}


def test_a_day_of_a_flood_is_bounded() -> None:
    refused = RefusedCalls(0.0)
    entries = 0
    for minute in range(24 * 60):
        for number in range(KINDS_MOST):
            refused.add(replace(RECORD, actor=f"token:{minute}.{number}"), minute * 60.0)
        entries += len(refused.take(minute * 60.0 + 59.9))
        entries += len(refused.take(minute * 60.0 + 60.0))
    assert ENTRIES_AT_ONCE < entries < 13_000


def test_what_could_not_be_stored_comes_again() -> None:
    refused = RefusedCalls(0.0)
    refused.add(RECORD, 1.0)
    taken = refused.take(1.0)
    refused.add(replace(RECORD, actor="token:other"), 1.0)
    refused.put_back(taken)
    assert [each.actor for each in refused.take(1.0)] == ["token:ci", "token:other"]
    refused.put_back(list(taken) * 10_000)
    assert len(refused.take(1.0)) == 2 * KINDS_MOST


def test_the_port_of_a_peer_is_left_out() -> None:
    assert without_port("tls://h:1 ipv6:%5B::1%5D:99") == "tls://h:1 ipv6:%5B::1%5D"
    assert without_port("unix:///run/a.sock") == "unix:///run/a.sock"
