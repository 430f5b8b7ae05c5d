"""Texts about identities, roles and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toban.cli.human_text import enum_word, labels_text

if TYPE_CHECKING:
    from toban.v1 import access_pb2


def role_text(role: int, none: str = "none") -> str:
    """Such as `editor`."""
    from toban.v1 import access_rule_pb2

    return enum_word(access_rule_pb2.Role, role) if role else none


def narrowing_text(narrowing: access_pb2.Narrowing) -> str:
    """The workflows that an identity is limited to; empty if it is not limited."""
    parts = []
    if narrowing.workflows:
        parts.append(", ".join(narrowing.workflows))
    if narrowing.labels:
        parts.append(f"label {labels_text(narrowing.labels)}")
    return " or ".join(parts)


def outcome_text(entry: access_pb2.AuditEntry) -> str:
    """`done`, or `refused` with the reason."""
    from toban.v1 import access_pb2

    word = enum_word(access_pb2.AuditOutcome, entry.outcome)
    return f"{word}: {entry.reason}" if entry.reason else word
