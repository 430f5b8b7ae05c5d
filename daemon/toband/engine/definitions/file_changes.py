"""Changes of definitions that definition files caused, for the log and for the answer of a reload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import structlog

from toband.ports import AuditedCall, Clock, PutOutcome, StoredWorkflow

ACTOR = "files"
"""Of a change that no call makes, in the audit log."""

log = structlog.get_logger()


class ChangeKind(StrEnum):
    CREATED = "created"
    UPDATED = "updated"
    DISABLED = "disabled"
    DELETED = "deleted"


_KINDS = {PutOutcome.CREATED: ChangeKind.CREATED, PutOutcome.UPDATED: ChangeKind.UPDATED}


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChange:
    """`path` is the file that defines it, or defined it."""

    name: str
    kind: ChangeKind
    path: str


def audited_change(clock: Clock, path: str) -> AuditedCall:
    """What the audit log says of the changes that a file causes."""
    return AuditedCall(now=clock.now, actor=ACTOR, role="", source=path, method="DefinitionFiles/Load", repeatable=True)


def loaded(path: str, outcomes: Mapping[str, PutOutcome]) -> Sequence[DefinitionChange]:
    """Logs the definitions of a file that changed."""
    changes = [
        DefinitionChange(name=name, kind=_KINDS[outcome], path=path)
        for name, outcome in outcomes.items()
        if outcome in _KINDS
    ]
    for change in changes:
        log.info(
            "loaded a definition from its file",
            action="definition_loaded",
            definition=change.name,
            outcome=change.kind.value,
            path=path,
        )
    return changes


def removed(stored: StoredWorkflow, kind: ChangeKind) -> DefinitionChange:
    """Logs a definition that no file has any more."""
    log.warning(
        "no file defines a definition any more",
        action="definition_removed",
        definition=stored.name,
        outcome=kind.value,
        path=stored.owner,
    )
    return DefinitionChange(name=stored.name, kind=kind, path=stored.owner)
